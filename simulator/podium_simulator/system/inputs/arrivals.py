"""Several searches of several users that arrive one after another and share a cluster.

`podium simulate --system --jobs N` calls it. All jobs of a run have the same policy. Each has its own sample, the same
for every policy. The cost of sharing is a job's slowdown, as in parallel job scheduling. It is the time from arrival to
end, divided by the time that the same search takes alone on the whole cluster under the same policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from podium_core.domain.gpu_queue import QueueView
from podium_core.domain.keys import JobKey
from podium_core.policies.policy_text import parse_policy
from podium_simulator.replay.samples import Sample, draw_sample
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Scenario, SimJob
from podium_simulator.system.inputs.searches import search_job
from podium_simulator.system.results.comparison import (
    BASE,
    ClusterSpec,
    SearchResult,
    scenario_of,
    search_result,
    simulate_alone,
    time_limit,
)
from podium_simulator.system.results.fairness import UserShare, jain_index, user_shares
from podium_simulator.system.results.outcome import Outcome
from podium_simulator.traces.trace import Trace

# between the seeds of two samples of one run: more than the number of runs, so no sample is drawn twice
SEED_STRIDE = 10_000


@dataclass(frozen=True, slots=True)
class Arrivals:
    """`jobs` jobs of `users` users in turn, each `every` seconds after the one before; the first at 0.

    `queues`: those of the cluster. Each is then a user, whose jobs it holds; empty: users without queues.
    """

    jobs: int
    every: float = 0.0
    users: int = 1
    queues: tuple[QueueView, ...] = ()

    @property
    def weights(self) -> Mapping[str, float]:
        """Return the weight of each queue."""
        return {queue.name: queue.weight for queue in self.queues}

    def queue(self, number: int) -> str:
        """Return the queue of job `number`; empty without queues."""
        return self.queues[number % len(self.queues)].name if self.queues else ""

    def at(self, number: int) -> float:
        return number * self.every

    def key(self, task: str, number: int) -> JobKey:
        """Return the key of job `number`, counted from 0; names sort as numbers do."""
        users, jobs = len(str(self.users)), len(str(self.jobs))
        user = self.queue(number) or f"user-{number % self.users + 1:0{users}}"
        return JobKey(user, f"{task}-{number + 1:0{jobs}}")


@dataclass(frozen=True, slots=True)
class ArrivedJob:
    """Result of one job.

    `alone_seconds`: seconds that its search takes on the same cluster without other jobs.
    """

    result: SearchResult
    alone_seconds: float

    @property
    def key(self) -> JobKey:
        return self.result.outcome.only.job

    @property
    def arrived(self) -> float:
        return self.result.outcome.only.arrived

    @property
    def slowdown(self) -> float:
        return self.result.score.end / self.alone_seconds


@dataclass(frozen=True, slots=True)
class ArrivalsRun:
    """All jobs once under one policy.

    `jobs` by arrival, `users` by name. `end`: end of the last job, from the first arrival. `fairness`: Jain's index of
    the users' `of_equal`; None: users never competed.
    """

    policy: str
    seed: int
    jobs: tuple[ArrivedJob, ...]
    users: tuple[UserShare, ...]
    end: float

    @property
    def fairness(self) -> float | None:
        return jain_index([user.of_equal for user in self.users if user.of_equal is not None])


@dataclass(frozen=True, slots=True)
class ArrivalsComparison:
    """Results of all policies. `runs`: policy -> one run per seed, the same samples for all."""

    trace: Trace
    cluster: ClusterSpec
    arrivals: Arrivals
    size: int  # trials of a job
    runs: dict[str, tuple[ArrivalsRun, ...]]


@dataclass(frozen=True, slots=True)
class SharedCluster:
    """A cluster and the jobs that arrive on it. `memory`: bytes that a trial declares on its GPU."""

    cluster: ClusterSpec
    arrivals: Arrivals
    memory: int | None = None


def compare(
    trace: Trace,
    policies: Sequence[str],
    shared: SharedCluster,
    seeds: int,
    size: int,
    advance: Callable[[], None] = lambda: None,
) -> ArrivalsComparison:
    """Simulate all jobs once per policy and seed, and each job alone.

    `policies`: as in `comparison.compare`. `advance` is called after each run.
    """
    names = list(dict.fromkeys([BASE, *policies]))
    runs: dict[str, list[ArrivalsRun]] = {name: [] for name in names}
    for seed in range(seeds):
        drawn = draw_samples(trace, seed, size, shared.arrivals)
        makespans: dict[JobKey, float] = {}
        for name in names:  # fifo goes first
            outcome = simulate(scenario(drawn, name, shared, seed))
            if name == BASE:
                makespans = {end.job: end.ended - end.arrived for end in outcome.jobs}
            runs[name].append(_round(name, seed, drawn, outcome, makespans, shared))
            advance()
    size = min(size, len(trace.trials))
    results = {name: tuple(of_policy) for name, of_policy in runs.items()}
    return ArrivalsComparison(trace, shared.cluster, shared.arrivals, size, results)


def draw_samples(trace: Trace, seed: int, size: int, arrivals: Arrivals) -> tuple[Sample, ...]:
    """Return one sample per job, each with its own seed.

    The first one is that of the search without other jobs. More jobs or runs change no other sample.
    """
    return tuple(draw_sample(trace, seed + number * SEED_STRIDE, size) for number in range(arrivals.jobs))


def scenario(
    samples: Sequence[Sample],
    policy: str,
    shared: SharedCluster,
    seed: int,
) -> Scenario:
    cluster, arrivals = shared.cluster, shared.arrivals
    jobs = tuple(_job(sample, number, policy, shared) for number, sample in enumerate(samples))
    longest = arrivals.at(len(samples)) + sum(time_limit(sample, cluster) for sample in samples)
    return scenario_of(replace(cluster, queues=arrivals.queues), jobs, seed, longest)


def _job(sample: Sample, number: int, policy: str, shared: SharedCluster) -> SimJob:
    arrivals = shared.arrivals
    name, settings = parse_policy(policy)
    job = search_job(sample, name, shared.cluster.method, settings, created=arrivals.at(number), memory=shared.memory)
    gpus = replace(job.view.gpus, queue=arrivals.queue(number))
    return replace(job, view=replace(job.view, key=arrivals.key(sample.task, number), gpus=gpus))


def _round(
    policy: str,
    seed: int,
    samples: Sequence[Sample],
    outcome: Outcome,
    makespans: Mapping[JobKey, float],
    shared: SharedCluster,
) -> ArrivalsRun:
    """Return the result of one run. `makespans`: seconds that each job takes in fifo's run."""
    by_job, jobs = outcome.by_job(), []
    for number, sample in enumerate(samples):
        key = shared.arrivals.key(sample.task, number)
        own = search_result(policy, sample, by_job[key], makespans[key])
        jobs.append(ArrivedJob(own, simulate_alone(sample, policy, shared.cluster, shared.memory).makespan))
    shares = user_shares(outcome, shared.arrivals.weights)
    return ArrivalsRun(policy, seed, tuple(jobs), shares, outcome.makespan)
