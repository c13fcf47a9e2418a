"""Several searches of several users that arrive one after another and share a cluster.

`podium simulate --system --jobs N` calls it. All jobs of a run have the same policy. Each has its own sample, the same
for every policy. The cost of sharing is a job's slowdown: seconds from its arrival to its end, over those that the same
search takes alone on the whole cluster under the same policy (the slowdown of parallel job scheduling).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from podium_core.domain.snapshot import JobKey
from podium_core.policies.policy_text import parse_policy
from podium_simulator.replay.samples import Pool, draw
from podium_simulator.system.comparison import BASE, Place, Searched, alone, patience, searched, there
from podium_simulator.system.engine import simulate
from podium_simulator.system.fairness import UserShare, jain, shares
from podium_simulator.system.outcome import Outcome
from podium_simulator.system.scenario import Scenario, SimJob
from podium_simulator.system.searches import search
from podium_simulator.traces.trace import Recording

# between the seeds of two samples of one run: more than the number of runs, so no sample is drawn twice
STRIDE = 10_000


@dataclass(frozen=True, slots=True)
class Arrivals:
    """`jobs` jobs of `users` users in turn, each `every` seconds after the one before; the first at 0."""

    jobs: int
    every: float = 0.0
    users: int = 1

    def at(self, number: int) -> float:
        return number * self.every

    def key(self, task: str, number: int) -> JobKey:
        """Return the key of job `number`, counted from 0; names sort as numbers do."""
        users, jobs = len(str(self.users)), len(str(self.jobs))
        return JobKey(f"user-{number % self.users + 1:0{users}}", f"{task}-{number + 1:0{jobs}}")


@dataclass(frozen=True, slots=True)
class ArrivedJob:
    """Result of one job. `alone`: seconds that its search takes on the same cluster without other jobs."""

    search: Searched
    alone: float

    @property
    def key(self) -> JobKey:
        return self.search.outcome.only.job

    @property
    def arrived(self) -> float:
        return self.search.outcome.only.arrived

    @property
    def slowdown(self) -> float:
        return self.search.score.end / self.alone


@dataclass(frozen=True, slots=True)
class Round:
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
        return jain([user.of_equal for user in self.users if user.of_equal is not None])


@dataclass(frozen=True, slots=True)
class ArrivalsContest:
    """Results of all policies. `runs`: policy -> one run per seed, the same samples for all."""

    recording: Recording
    place: Place
    arrivals: Arrivals
    size: int  # trials of a job
    runs: dict[str, tuple[Round, ...]]


def contest(
    recording: Recording,
    policies: Sequence[str],
    place: Place,
    seeds: int,
    size: int,
    arrivals: Arrivals,
    memory: int | None = None,
) -> ArrivalsContest:
    """Simulate all jobs once per policy and seed, and each job alone.

    `policies`, `memory`: as in `comparison.compare`.
    """
    names = list(dict.fromkeys([BASE, *policies]))
    runs: dict[str, list[Round]] = {name: [] for name in names}
    for seed in range(seeds):
        drawn = pools(recording, seed, size, arrivals)
        makespans: dict[JobKey, float] = {}
        for name in names:  # fifo goes first
            outcome = simulate(scenario(drawn, name, place, arrivals, seed, memory))
            if name == BASE:
                makespans = {end.job: end.ended - end.arrived for end in outcome.jobs}
            runs[name].append(_round(name, seed, drawn, outcome, makespans, place, arrivals, memory))
    size = min(size, len(recording.trials))
    return ArrivalsContest(recording, place, arrivals, size, {name: tuple(found) for name, found in runs.items()})


def pools(recording: Recording, seed: int, size: int, arrivals: Arrivals) -> tuple[Pool, ...]:
    """Return one sample per job, each with its own seed.

    The first one is that of the search without other jobs. More jobs or runs change no other sample.
    """
    return tuple(draw(recording, seed + number * STRIDE, size) for number in range(arrivals.jobs))


def scenario(
    pools: Sequence[Pool], policy: str, place: Place, arrivals: Arrivals, seed: int, memory: int | None = None
) -> Scenario:
    jobs = tuple(_job(pool, number, policy, place, arrivals, memory) for number, pool in enumerate(pools))
    longest = arrivals.at(len(pools)) + sum(patience(pool, place) for pool in pools)
    return there(place, jobs, seed, longest)


def _job(pool: Pool, number: int, policy: str, place: Place, arrivals: Arrivals, memory: int | None) -> SimJob:
    name, settings = parse_policy(policy)
    job = search(pool, name, place.method, settings, created=arrivals.at(number), memory=memory)
    return replace(job, view=replace(job.view, key=arrivals.key(pool.task, number)))


def _round(
    policy: str,
    seed: int,
    pools: Sequence[Pool],
    outcome: Outcome,
    makespans: Mapping[JobKey, float],
    place: Place,
    arrivals: Arrivals,
    memory: int | None,
) -> Round:
    """Return the result of one run. `makespans`: seconds that each job takes in fifo's run."""
    apart, jobs = outcome.apart(), []
    for number, pool in enumerate(pools):
        key = arrivals.key(pool.task, number)
        own = searched(policy, pool, apart[key], makespans[key])
        jobs.append(ArrivedJob(own, alone(pool, policy, place, memory).makespan))
    return Round(policy, seed, tuple(jobs), shares(outcome), outcome.makespan)
