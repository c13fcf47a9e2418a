"""Comparison of policies on the same searches in the simulated system, always including fifo.

`podium simulate` calls it. Unlike the replay (`podium_simulator.replay.comparison`), it revives nothing: a trial that a
policy ended stays ended. So the best value may never be reached, and the best value so far is a result of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from podium_core.curves.best_value import better
from podium_core.curves.non_finite import diverged
from podium_core.domain.gpu_queue import QueueView
from podium_core.policies.fifo import Fifo
from podium_core.policies.policy_text import parse_policy
from podium_simulator.replay.history import Evaluation
from podium_simulator.replay.metrics import first_time_at, near_best_value, regret, target_value
from podium_simulator.replay.samples import Sample, draw_sample
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Drain, Faults, Method, NodeSpec, Scenario, SimJob, Timing
from podium_simulator.system.inputs.searches import search_job
from podium_simulator.system.results.outcome import TRAINING, Outcome
from podium_simulator.traces.trace import Trace

BASE = Fifo.name
TIME_LIMIT_FACTOR = 20.0


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Cluster on which the searches run. `queues` share its GPUs; empty: there are none."""

    nodes: tuple[NodeSpec, ...]
    method: Method = field(default_factory=Method)
    timing: Timing = field(default_factory=Timing)
    faults: Faults = field(default_factory=Faults)
    drains: tuple[Drain, ...] = ()
    queues: tuple[QueueView, ...] = ()

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)


@dataclass(frozen=True, slots=True)
class SearchScore:
    """Score of one search. Times are seconds from the job's arrival; None: never.

    `regret`: mean regret of the best value so far (0 to 1) over the time that fifo needs. `overhead`: share of the GPU
    time without training, or with training that was lost.
    """

    best: float | None  # as recorded; None: no finite value
    near_best: float | None  # until a value within 1 % of the start-to-best gap of the sample's best
    target: float | None
    end: float
    regret: float
    gpu_seconds: float
    overhead: float
    suspensions: int
    checkpoints: int  # each followed by a new pod
    migrations: int  # live migrations to another node


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of one policy on one sample."""

    policy: str
    seed: int
    outcome: Outcome
    score: SearchScore
    improvements: tuple[tuple[float, float], ...]  # (time, value) of each improvement of the best value so far


@dataclass(frozen=True, slots=True)
class SystemComparison:
    """Results of all policies. `runs`: policy, as it was typed -> one result per sample."""

    trace: Trace
    cluster: ClusterSpec
    samples: tuple[Sample, ...]
    runs: dict[str, tuple[SearchResult, ...]]


def compare(
    trace: Trace, policies: Sequence[str], cluster: ClusterSpec, seeds: int, size: int, memory: int | None = None
) -> SystemComparison:
    """Simulate each policy and seed.

    `policies`: as a user types them; raises a PolicyError where one is unknown. `memory`: bytes that a trial declares
    on its GPU.
    """
    samples = tuple(draw_sample(trace, seed, size) for seed in range(seeds))
    names = list(dict.fromkeys([BASE, *policies]))
    outcomes = {name: [simulate_alone(sample, name, cluster, memory) for sample in samples] for name in names}
    runs = {
        name: tuple(
            search_result(name, sample, mine, base.makespan)
            for sample, mine, base in zip(samples, outcomes[name], outcomes[BASE], strict=True)
        )
        for name in names
    }
    return SystemComparison(trace, cluster, samples, runs)


def simulate_alone(sample: Sample, policy: str, cluster: ClusterSpec, memory: int | None) -> Outcome:
    """Simulate one search that has the whole cluster."""
    name, settings = parse_policy(policy)
    job = search_job(sample, name, cluster.method, settings, memory=memory)
    return simulate(scenario_of(cluster, (job,), sample.seed, time_limit(sample, cluster)))


def scenario_of(cluster: ClusterSpec, jobs: tuple[SimJob, ...], seed: int, longest: float) -> Scenario:
    return Scenario(
        cluster.nodes,
        jobs,
        cluster.timing,
        cluster.faults,
        seed,
        longest,
        drains=cluster.drains,
        queues=cluster.queues,
    )


def time_limit(sample: Sample, cluster: ClusterSpec) -> float:
    """Return the virtual seconds after which a search is abandoned.

    A multiple of what one GPU would take for all of it, plus a repair of its node and the last drain that ends. Where
    nodes fail sooner than trials end, it would never end.
    """
    timing = cluster.timing
    start = timing.place + timing.gate + timing.load + timing.ended
    drained = max((drain.until for drain in cluster.drains if drain.until < math.inf), default=0.0)
    return TIME_LIMIT_FACTOR * (sum(trial.length + start for trial in sample.trials) + cluster.faults.repair) + drained


def search_result(policy: str, sample: Sample, outcome: Outcome, makespan: float) -> SearchResult:
    """Return the result of one search, in seconds from its arrival.

    `outcome`: of this search only (of several: `Outcome.by_job`). `makespan`: seconds that fifo takes for the same
    sample.
    """
    end = outcome.only
    improvements = best_so_far(outcome, sample.maximize)
    reached = tuple(Evaluation(time, 0, sample.sign * value) for time, value in improvements)
    everything = outcome.gpu_seconds()
    lost = sum(trial.lost_seconds * trial.gpus for trial in outcome.trials)
    score = SearchScore(
        best=improvements[-1][1] if improvements else None,
        near_best=first_time_at(reached, near_best_value(sample)),
        target=first_time_at(reached, target_value(sample)),
        end=end.ended - end.arrived,
        regret=regret(sample, reached, makespan),
        gpu_seconds=everything,
        overhead=(everything - outcome.gpu_seconds(TRAINING) + lost) / everything if everything else 0.0,
        suspensions=sum(trial.suspensions for trial in outcome.trials),
        checkpoints=sum(trial.checkpoints for trial in outcome.trials),
        migrations=sum(trial.migrations for trial in outcome.trials),
    )
    return SearchResult(policy, sample.seed, outcome, score, improvements)


def best_so_far(outcome: Outcome, maximize: bool) -> tuple[tuple[float, float], ...]:
    """Return seconds from the job's arrival and recorded values at which the best value so far improved.

    Raises ValueError for an outcome of several jobs: their values must not be mixed.
    """
    improvements: list[tuple[float, float]] = []
    arrived = outcome.only.arrived
    for seen in outcome.values:
        if not diverged(seen.value) and (not improvements or better(seen.value, improvements[-1][1], maximize)):
            improvements.append((seen.time - arrived, seen.value))
    return tuple(improvements)
