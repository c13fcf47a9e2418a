"""The event loop on small cases that can be computed by hand, and its error checks."""

from __future__ import annotations

import pytest
from simulation_checks import assert_feasible

from podium_optimisers.engine.cluster import GpuCluster, GpuPool, PreemptionCosts, is_migration
from podium_optimisers.engine.simulation import JobScheduler, JobState, Simulation, simulate
from podium_optimisers.engine.workload import BatchJob, Workload
from podium_optimisers.preemptive.policies import FifoPolicy, SrptPolicy


class ManualPolicy:
    """A policy that makes no decisions: the test drives the simulation."""

    name = "manual"

    def __init__(self) -> None:
        self.waiting: list[JobState] = []
        self.calls: list[tuple[str, int, float]] = []

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> JobScheduler:
        return self

    def on_arrival(self, simulation: Simulation, job: JobState) -> None:
        self.waiting.append(job)
        self.calls.append(("arrival", job.index, simulation.now))

    def on_completion(self, simulation: Simulation, job: JobState) -> None:
        self.calls.append(("completion", job.index, simulation.now))

    def on_timer(self, simulation: Simulation, job: JobState) -> None:
        self.calls.append(("timer", job.index, simulation.now))

    def decide(self, simulation: Simulation) -> None: ...


def manual_simulation(
    *jobs: BatchJob, cluster: GpuCluster, costs: PreemptionCosts | None = None
) -> tuple[Simulation, ManualPolicy]:
    manual = ManualPolicy()
    simulation = Simulation(Workload.of(jobs), cluster, manual, costs, record=True)
    assert simulation.advance()
    return simulation, manual


def test_restart_and_migration_are_charged_to_the_job() -> None:
    """Job a runs 0-4 on node 0, restarts there at 5 (2 s), is preempted at 9 and moves to node 1 (6 s)."""
    simulation, manual = manual_simulation(
        BatchJob("a", 0, 10),
        BatchJob("b", 4, 1),
        BatchJob("c", 9, 50),
        cluster=GpuCluster(2, 1),
        costs=PreemptionCosts(2, 6),
    )
    (a,) = manual.waiting
    simulation.start(a)
    assert simulation.advance()
    simulation.preempt(a)
    simulation.start(manual.waiting[1])
    assert simulation.advance()  # b ends at 5
    simulation.start(a)
    assert (a.ready, a.finish) == (7.0, 13.0)
    assert simulation.advance()  # c at 9
    assert a.attained(simulation.now) == 6.0
    simulation.preempt(a)
    simulation.start(manual.waiting[2])
    simulation.start(a)
    assert (a.placement, a.ready, a.finish) == (((1, 1),), 15.0, 19.0)
    while simulation.advance():
        pass
    result = simulation.result()
    assert result.finish.tolist() == [19.0, 5.0, 59.0]
    assert result.preemptions.tolist() == [2, 0, 0]
    assert result.migrations.tolist() == [1, 0, 0]
    assert result.overhead == 8.0
    assert_feasible(result, GpuCluster(2, 1), PreemptionCosts(2, 6))


def test_a_preemption_during_the_restart_loses_no_work_and_gains_none() -> None:
    simulation, manual = manual_simulation(
        BatchJob("a", 0, 10),
        BatchJob("b", 3, 1),
        BatchJob("c", 5, 1),
        cluster=GpuCluster(1, 1),
        costs=PreemptionCosts(4),
    )
    a = manual.waiting[0]
    simulation.start(a)
    simulation.advance()
    simulation.preempt(a)
    simulation.start(a)  # ready at 7
    simulation.advance()
    simulation.preempt(a)
    assert a.done == 3.0
    assert simulation.overhead == 2.0


def test_completions_come_before_timers_and_timers_before_arrivals() -> None:
    simulation, manual = manual_simulation(
        BatchJob("a", 0, 5), BatchJob("b", 0, 9), BatchJob("c", 5, 1), cluster=GpuCluster(1, 2)
    )
    a, b = manual.waiting
    simulation.start(a)
    simulation.start(b)
    simulation.set_timer(b, 5.0)
    simulation.advance()
    assert manual.calls[2:] == [("completion", 0, 5.0), ("timer", 1, 5.0), ("arrival", 2, 5.0)]


def test_a_preemption_drops_the_timers_of_a_job() -> None:
    simulation, manual = manual_simulation(BatchJob("a", 0, 5), BatchJob("b", 1, 1), cluster=GpuCluster(1, 1))
    a = manual.waiting[0]
    simulation.start(a)
    simulation.set_timer(a, 2.0)
    simulation.advance()
    simulation.preempt(a)
    assert not simulation.advance(), "no events are left: the timer must not fire"


def test_impossible_actions_raise_errors() -> None:
    simulation, manual = manual_simulation(BatchJob("a", 0, 5), BatchJob("b", 0, 5), cluster=GpuCluster(1, 1))
    a, b = manual.waiting
    with pytest.raises(RuntimeError, match="job a cannot be preempted"):
        simulation.preempt(a)
    simulation.start(a)
    for job, name in ((a, "a"), (b, "b")):
        with pytest.raises(RuntimeError, match=f"job {name} cannot start"):
            simulation.start(job)
    while simulation.advance():
        pass
    with pytest.raises(RuntimeError, match="policy manual left job b waiting forever"):
        simulation.result()


def test_no_gpu_is_allocated_or_released_twice() -> None:
    pool = GpuPool(GpuCluster(2, 4))
    pool.allocate(((0, 0b0011),))
    with pytest.raises(RuntimeError, match="node 0"):
        pool.allocate(((0, 0b0110),))
    pool.release(((0, 0b0011),))
    with pytest.raises(RuntimeError, match="already free"):
        pool.release(((0, 0b0001),))


@pytest.mark.parametrize(
    ("taken", "gpus", "last", "want"),
    [
        ((), 2, None, ((0, 0b0011),)),
        (((0, 0b0011),), 2, None, ((0, 0b1100),)),
        (((0, 0b0011),), 3, None, ((1, 0b0111),)),
        (((0, 0b0001),), 6, None, ((0, 0b0110), (1, 0b1111))),
        ((), 2, ((1, 0b0101),), ((1, 0b0101),)),
        (((1, 0b0001),), 2, ((1, 0b0101),), ((1, 0b0110),)),
        (((1, 0b0111),), 2, ((1, 0b0101),), ((0, 0b0011),)),
    ],
    ids=["first", "best-fit", "whole-on-one", "spread", "where-it-was", "same-node", "moves"],
)
def test_placement_of_a_gang(
    taken: tuple[tuple[int, int], ...], gpus: int, last: tuple[tuple[int, int], ...] | None, want: object
) -> None:
    pool = GpuPool(GpuCluster(2, 4))
    pool.allocate(taken)
    assert pool.choose_gpus(gpus, last) == want


def test_other_gpus_of_the_same_nodes_are_not_a_migration() -> None:
    assert not is_migration(((0, 1), (1, 2)), ((0, 2), (1, 1)))
    assert is_migration(((0, 1), (1, 2)), ((0, 1), (2, 2)))


def test_a_policy_can_be_used_again_and_rows_can_be_in_any_order() -> None:
    workload = Workload.of([BatchJob("late", 5, 1), BatchJob("early", 0, 10), BatchJob("tie", 5, 1)])
    policy = SrptPolicy()
    results = [simulate(workload, GpuCluster(1, 1), policy) for _ in range(2)]
    assert results[0].finish.tolist() == results[1].finish.tolist() == [6.0, 12.0, 7.0]
    assert simulate(workload, GpuCluster(1, 1), FifoPolicy()).finish.tolist() == [11.0, 10.0, 12.0]
