"""The incremental walk agrees with the plain definition: sort everybody at each instant, give to whoever fits."""

from __future__ import annotations

import math

import pytest
from engine_checks import cases, deterministic, feasible, work_conserving
from hypothesis import given, settings

from podium_optimisers.engine.cluster import Cluster, Costs
from podium_optimisers.engine.priority import Ordering
from podium_optimisers.engine.simulation import JobState, Simulation, simulate
from podium_optimisers.engine.workload import Workload
from podium_optimisers.preemptive.las import AttainedQueues
from podium_optimisers.preemptive.orders import Arrival, Remaining, Shortest
from podium_optimisers.preemptive.policies import Fifo, Las, Sjf, Srpt


class Plain:
    """The definition, with no data structure at all: every job of the system in a list."""

    name = "plain"

    def __init__(self, ordering: Ordering, preemptive: bool, backfill: bool, margin: float = 0.0) -> None:
        self.ordering, self.preemptive, self.backfill, self.margin = ordering, preemptive, backfill, margin
        self.jobs: list[JobState] = []
        self.keys: dict[int, float] = {}

    def begin(self, workload: Workload, cluster: Cluster, costs: Costs) -> Plain:
        return self

    def arrived(self, simulation: Simulation, job: JobState) -> None:
        self.jobs.append(job)
        self._ask(simulation, job)

    def finished(self, simulation: Simulation, job: JobState) -> None:
        self.jobs.remove(job)
        self.ordering.finished(job, simulation.now)

    def alarmed(self, simulation: Simulation, job: JobState) -> None:
        self.ordering.alarmed(job, simulation.now)
        self._ask(simulation, job)

    def decide(self, simulation: Simulation) -> None:
        waiting = sorted((j for j in self.jobs if j.place is None), key=lambda j: (self.keys[j.sequence], j.sequence))
        running = sorted(
            (j for j in self.jobs if j.place is not None), key=lambda j: (self._now(simulation, j), j.sequence)
        )
        free = simulation.cluster.gpus if self.preemptive else simulation.pool.free
        kept, chosen = [], []
        while waiting or (running and self.preemptive):
            if self.preemptive and running:
                job = running[0]
                if not waiting or not self.keys[waiting[0].sequence] + self.margin < self._now(simulation, job):
                    running.pop(0)
                    if job.gpus <= free:
                        kept.append(job)
                        free -= job.gpus
                    continue
            job = waiting.pop(0)
            if job.gpus <= free:
                chosen.append(job)
                free -= job.gpus
            elif not self.backfill:
                break
        if self.preemptive:
            for job in [j for j in self.jobs if j.place is not None and j not in kept]:
                simulation.preempt(job)
                self._ask(simulation, job)
        for job in chosen:
            simulation.start(job)
            self._ask(simulation, job)

    def _now(self, simulation: Simulation, job: JobState) -> float:
        key = self.keys[job.sequence]
        return key - simulation.now if self.ordering.falling else key

    def _ask(self, simulation: Simulation, job: JobState) -> None:
        key = self.ordering.key(job, simulation.now)
        self.keys[job.sequence] = key + simulation.now if self.ordering.falling and job.place is not None else key
        at = self.ordering.changes(job, simulation.now)
        if at < math.inf:
            simulation.alarm(job, at)


@settings(deadline=None)
@given(cases(exact=True))
def test_every_walk_is_the_plain_one(case: tuple[Workload, Cluster, Costs]) -> None:
    workload, cluster, charged = case
    pairs = [
        (Fifo(), Plain(Arrival(), False, False)),
        (Fifo(backfill=True), Plain(Arrival(), False, True)),
        (Sjf(), Plain(Shortest(), False, True)),
        (Sjf(backfill=False), Plain(Shortest(), False, False)),
        (Srpt(), Plain(Remaining(charged), True, True, charged.worst)),
        (Las((3.0,), 2.0), Plain(AttainedQueues((3.0,), 2.0), True, True)),
        (Las((1.0, 4.0)), Plain(AttainedQueues((1.0, 4.0)), True, True)),
    ]
    for policy, plain in pairs:
        assert simulate(workload, cluster, policy, charged).finish.tolist() == pytest.approx(
            simulate(workload, cluster, plain, charged).finish.tolist(), rel=1e-9
        ), policy.name


@settings(deadline=None)
@given(cases())
def test_gaps_are_filled(case: tuple[Workload, Cluster, Costs]) -> None:
    workload, cluster, charged = case
    for policy in (Fifo(backfill=True), Sjf(), Srpt(), Las((3.0,), 2.0)):
        outcome = deterministic(workload, cluster, policy, charged)
        feasible(outcome, cluster, charged)
        work_conserving(outcome, cluster)


@settings(deadline=None)
@given(cases())
def test_strict_fifo_starts_in_order_of_arrival(case: tuple[Workload, Cluster, Costs]) -> None:
    workload, cluster, charged = case
    outcome = deterministic(workload, cluster, Fifo(), charged)
    feasible(outcome, cluster, charged)
    order = sorted(range(len(workload)), key=lambda row: (workload.arrival[row], row))
    starts = [outcome.start[row] for row in order]
    assert starts == sorted(starts)
