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
from podium_core.policies.fifo import Fifo
from podium_core.policies.policy_text import parse_policy
from podium_simulator.replay.history import Reached
from podium_simulator.replay.metrics import first_at, goal_of, near_best, regret
from podium_simulator.replay.samples import Pool, draw
from podium_simulator.system.engine import simulate
from podium_simulator.system.outcome import TRAINING, Outcome
from podium_simulator.system.scenario import Drain, Faults, Method, NodeSpec, Scenario, SimJob, Timing
from podium_simulator.system.searches import search
from podium_simulator.traces.trace import Recording

BASE = Fifo.name
PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Place:
    """Cluster on which the searches run."""

    nodes: tuple[NodeSpec, ...]
    method: Method = field(default_factory=Method)
    timing: Timing = field(default_factory=Timing)
    faults: Faults = field(default_factory=Faults)
    drains: tuple[Drain, ...] = ()

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
    saves: int  # each followed by a new pod
    carries: int  # live migrations to another node


@dataclass(frozen=True, slots=True)
class Searched:
    """Result of one policy on one sample."""

    policy: str
    seed: int
    outcome: Outcome
    score: SearchScore
    stairs: tuple[tuple[float, float], ...]  # (time, value) of each improvement of the best value so far


@dataclass(frozen=True, slots=True)
class SystemContest:
    """Results of all policies. `runs`: policy, as it was typed -> one result per sample."""

    recording: Recording
    place: Place
    pools: tuple[Pool, ...]
    runs: dict[str, tuple[Searched, ...]]


def contest(
    recording: Recording, policies: Sequence[str], place: Place, seeds: int, size: int, memory: int | None = None
) -> SystemContest:
    """Simulate each policy and seed.

    `policies`: as a user types them; raises a PolicyError where one is unknown. `memory`: bytes that a trial declares
    on its GPU.
    """
    pools = tuple(draw(recording, seed, size) for seed in range(seeds))
    names = list(dict.fromkeys([BASE, *policies]))
    outcomes = {name: [alone(pool, name, place, memory) for pool in pools] for name in names}
    runs = {
        name: tuple(
            searched(name, pool, mine, base.makespan)
            for pool, mine, base in zip(pools, outcomes[name], outcomes[BASE], strict=True)
        )
        for name in names
    }
    return SystemContest(recording, place, pools, runs)


def alone(pool: Pool, policy: str, place: Place, memory: int | None) -> Outcome:
    """Simulate one search that has the whole cluster."""
    name, settings = parse_policy(policy)
    job = search(pool, name, place.method, settings, memory=memory)
    return simulate(there(place, (job,), pool.seed, patience(pool, place)))


def there(place: Place, jobs: tuple[SimJob, ...], seed: int, longest: float) -> Scenario:
    return Scenario(place.nodes, jobs, place.timing, place.faults, seed, longest, drains=place.drains)


def patience(pool: Pool, place: Place) -> float:
    """Return the virtual seconds after which a search is abandoned.

    A multiple of what one GPU would take for all of it, plus a repair of its node and the last drain that ends. Where
    nodes fail sooner than trials end, it would never end.
    """
    timing = place.timing
    start = timing.place + timing.gate + timing.load + timing.ended
    drained = max((drain.until for drain in place.drains if drain.until < math.inf), default=0.0)
    return PATIENCE * (sum(trial.length + start for trial in pool.trials) + place.faults.repair) + drained


def searched(policy: str, pool: Pool, outcome: Outcome, makespan: float) -> Searched:
    """Return the result of one search, in seconds from its arrival.

    `outcome`: of this search only (of several: `Outcome.by_job`). `makespan`: seconds that fifo takes for the same
    sample.
    """
    end = outcome.only
    stairs = best_so_far(outcome, pool.maximize)
    reached = tuple(Reached(time, 0, pool.sign * value) for time, value in stairs)
    everything = outcome.gpu_seconds()
    lost = sum(trial.lost_seconds * trial.gpus for trial in outcome.trials)
    score = SearchScore(
        best=stairs[-1][1] if stairs else None,
        near_best=first_at(reached, near_best(pool)),
        target=first_at(reached, goal_of(pool)),
        end=end.ended - end.arrived,
        regret=regret(pool, reached, makespan),
        gpu_seconds=everything,
        overhead=(everything - outcome.gpu_seconds(TRAINING) + lost) / everything if everything else 0.0,
        suspensions=sum(trial.suspensions for trial in outcome.trials),
        saves=sum(trial.saves for trial in outcome.trials),
        carries=sum(trial.carries for trial in outcome.trials),
    )
    return Searched(policy, pool.seed, outcome, score, stairs)


def best_so_far(outcome: Outcome, maximize: bool) -> tuple[tuple[float, float], ...]:
    """Return seconds from the job's arrival and recorded values at which the best value so far improved.

    Raises ValueError for an outcome of several jobs: their values must not be mixed.
    """
    found: list[tuple[float, float]] = []
    arrived = outcome.only.arrived
    for seen in outcome.values:
        if not diverged(seen.value) and (not found or better(seen.value, found[-1][1], maximize)):
            found.append((seen.time - arrived, seen.value))
    return tuple(found)
