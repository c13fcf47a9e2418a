"""The incremental scheduler agrees with a plain implementation that sorts all jobs at each instant."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from simulation_checks import assert_deterministic, assert_feasible, assert_work_conserving, cases

from podium_optimisers.engine.cluster import GpuCluster, PreemptionCosts
from podium_optimisers.engine.priority import JobOrdering
from podium_optimisers.engine.simulation import JobState, Simulation, simulate
from podium_optimisers.engine.workload import Workload
from podium_optimisers.preemptive.las import AttainedServiceOrdering
from podium_optimisers.preemptive.policies import (
    ArrivalOrdering,
    DurationOrdering,
    FifoPolicy,
    LasPolicy,
    RemainingTimeOrdering,
    SjfPolicy,
    SrptPolicy,
)


class PlainScheduler:
    """The definition without data structures: all jobs of the system are in one list."""

    name = "plain"

    def __init__(self, ordering: JobOrdering, preemptive: bool, backfill: bool, margin: float = 0.0) -> None:
        self.ordering, self.preemptive, self.backfill, self.margin = ordering, preemptive, backfill, margin
        self.jobs: list[JobState] = []
        self.keys: dict[int, float] = {}

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> PlainScheduler:
        return self

    def on_arrival(self, simulation: Simulation, job: JobState) -> None:
        self.jobs.append(job)
        self._ask(simulation, job)

    def on_completion(self, simulation: Simulation, job: JobState) -> None:
        self.jobs.remove(job)
        self.ordering.on_completion(job, simulation.now)

    def on_timer(self, simulation: Simulation, job: JobState) -> None:
        self.ordering.on_timer(job, simulation.now)
        self._ask(simulation, job)

    def decide(self, simulation: Simulation) -> None:
        waiting = sorted(
            (j for j in self.jobs if j.placement is None), key=lambda j: (self.keys[j.sequence], j.sequence)
        )
        running = sorted(
            (j for j in self.jobs if j.placement is not None), key=lambda j: (self._now(simulation, j), j.sequence)
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
            for job in [j for j in self.jobs if j.placement is not None and j not in kept]:
                simulation.preempt(job)
                self._ask(simulation, job)
        for job in chosen:
            simulation.start(job)
            self._ask(simulation, job)

    def _now(self, simulation: Simulation, job: JobState) -> float:
        key = self.keys[job.sequence]
        return key - simulation.now if self.ordering.decreasing else key

    def _ask(self, simulation: Simulation, job: JobState) -> None:
        key = self.ordering.key(job, simulation.now)
        self.keys[job.sequence] = (
            key + simulation.now if self.ordering.decreasing and job.placement is not None else key
        )
        at = self.ordering.next_change(job, simulation.now)
        if at < math.inf:
            simulation.set_timer(job, at)


@settings(deadline=None)
@given(cases(exact=True))
def test_the_scheduler_agrees_with_a_plain_implementation(case: tuple[Workload, GpuCluster, PreemptionCosts]) -> None:
    workload, cluster, costs = case
    pairs = [
        (FifoPolicy(), PlainScheduler(ArrivalOrdering(), False, False)),
        (FifoPolicy(backfill=True), PlainScheduler(ArrivalOrdering(), False, True)),
        (SjfPolicy(), PlainScheduler(DurationOrdering(), False, True)),
        (SjfPolicy(backfill=False), PlainScheduler(DurationOrdering(), False, False)),
        (SrptPolicy(), PlainScheduler(RemainingTimeOrdering(costs), True, True, costs.worst)),
        (LasPolicy((3.0,), 2.0), PlainScheduler(AttainedServiceOrdering((3.0,), 2.0), True, True)),
        (LasPolicy((1.0, 4.0)), PlainScheduler(AttainedServiceOrdering((1.0, 4.0)), True, True)),
    ]
    for policy, plain in pairs:
        assert simulate(workload, cluster, policy, costs).finish.tolist() == pytest.approx(
            simulate(workload, cluster, plain, costs).finish.tolist(), rel=1e-9
        ), policy.name


@settings(deadline=None)
@given(cases())
def test_backfilling_policies_are_work_conserving(case: tuple[Workload, GpuCluster, PreemptionCosts]) -> None:
    workload, cluster, costs = case
    for policy in (FifoPolicy(backfill=True), SjfPolicy(), SrptPolicy(), LasPolicy((3.0,), 2.0)):
        result = assert_deterministic(workload, cluster, policy, costs)
        assert_feasible(result, cluster, costs)
        assert_work_conserving(result, cluster)


@settings(deadline=None)
@given(cases())
def test_strict_fifo_starts_in_order_of_arrival(case: tuple[Workload, GpuCluster, PreemptionCosts]) -> None:
    workload, cluster, costs = case
    result = assert_deterministic(workload, cluster, FifoPolicy(), costs)
    assert_feasible(result, cluster, costs)
    order = sorted(range(len(workload)), key=lambda row: (workload.arrival[row], row))
    starts = [result.start[row] for row in order]
    assert starts == sorted(starts)
