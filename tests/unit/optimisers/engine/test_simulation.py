"""The event loop on cases that can be counted by hand, and its guards."""

from __future__ import annotations

import pytest
from engine_checks import feasible

from podium_optimisers.engine.cluster import Cluster, Costs, Pool, moved
from podium_optimisers.engine.simulation import Decider, JobState, Simulation, simulate
from podium_optimisers.engine.workload import Job, Workload
from podium_optimisers.preemptive.policies import Fifo, Srpt


class Hands:
    """A policy that does nothing by itself: the test moves the simulation."""

    name = "hands"

    def __init__(self) -> None:
        self.waiting: list[JobState] = []
        self.told: list[tuple[str, int, float]] = []

    def begin(self, workload: Workload, cluster: Cluster, costs: Costs) -> Decider:
        return self

    def arrived(self, simulation: Simulation, job: JobState) -> None:
        self.waiting.append(job)
        self.told.append(("arrived", job.index, simulation.now))

    def finished(self, simulation: Simulation, job: JobState) -> None:
        self.told.append(("finished", job.index, simulation.now))

    def alarmed(self, simulation: Simulation, job: JobState) -> None:
        self.told.append(("alarmed", job.index, simulation.now))

    def decide(self, simulation: Simulation) -> None: ...


def by_hand(*jobs: Job, cluster: Cluster, costs: Costs | None = None) -> tuple[Simulation, Hands]:
    hands = Hands()
    simulation = Simulation(Workload.of(jobs), cluster, hands, costs, record=True)
    assert simulation.advance()
    return simulation, hands


def test_restart_and_migration_are_charged_to_the_job() -> None:
    """a runs 0-4 on node 0, pauses, restarts there at 5 (2 s), is pushed off at 9, moves to node 1 (6 s)."""
    simulation, hands = by_hand(
        Job("a", 0, 10), Job("b", 4, 1), Job("c", 9, 50), cluster=Cluster(2, 1), costs=Costs(2, 6)
    )
    (a,) = hands.waiting
    simulation.start(a)
    assert simulation.advance()
    simulation.preempt(a)
    simulation.start(hands.waiting[1])
    assert simulation.advance()  # b ends at 5
    simulation.start(a)
    assert (a.ready, a.finish) == (7.0, 13.0)
    assert simulation.advance()  # c at 9
    assert a.attained(simulation.now) == 6.0
    simulation.preempt(a)
    simulation.start(hands.waiting[2])
    simulation.start(a)
    assert (a.place, a.ready, a.finish) == (((1, 1),), 15.0, 19.0)
    while simulation.advance():
        pass
    outcome = simulation.outcome()
    assert outcome.finish.tolist() == [19.0, 5.0, 59.0]
    assert outcome.preemptions.tolist() == [2, 0, 0]
    assert outcome.migrations.tolist() == [1, 0, 0]
    assert outcome.overhead == 8.0
    feasible(outcome, Cluster(2, 1), Costs(2, 6))


def test_a_preemption_during_the_restart_loses_no_work_and_gains_none() -> None:
    simulation, hands = by_hand(Job("a", 0, 10), Job("b", 3, 1), Job("c", 5, 1), cluster=Cluster(1, 1), costs=Costs(4))
    a = hands.waiting[0]
    simulation.start(a)
    simulation.advance()
    simulation.preempt(a)
    simulation.start(a)  # ready at 7
    simulation.advance()
    simulation.preempt(a)
    assert a.done == 3.0
    assert simulation.overhead == 2.0


def test_events_of_one_instant_come_as_ends_alarms_arrivals() -> None:
    simulation, hands = by_hand(Job("a", 0, 5), Job("b", 0, 9), Job("c", 5, 1), cluster=Cluster(1, 2))
    a, b = hands.waiting
    simulation.start(a)
    simulation.start(b)
    simulation.alarm(b, 5.0)
    simulation.advance()
    assert hands.told[2:] == [("finished", 0, 5.0), ("alarmed", 1, 5.0), ("arrived", 2, 5.0)]


def test_an_alarm_dies_with_the_stretch_it_was_set_in() -> None:
    simulation, hands = by_hand(Job("a", 0, 5), Job("b", 1, 1), cluster=Cluster(1, 1))
    a = hands.waiting[0]
    simulation.start(a)
    simulation.alarm(a, 2.0)
    simulation.advance()
    simulation.preempt(a)
    assert not simulation.advance(), "nothing is left to happen: the alarm must not ring"


def test_what_cannot_be_is_refused() -> None:
    simulation, hands = by_hand(Job("a", 0, 5), Job("b", 0, 5), cluster=Cluster(1, 1))
    a, b = hands.waiting
    with pytest.raises(RuntimeError, match="job a cannot be preempted"):
        simulation.preempt(a)
    simulation.start(a)
    for job, name in ((a, "a"), (b, "b")):
        with pytest.raises(RuntimeError, match=f"job {name} cannot start"):
            simulation.start(job)
    while simulation.advance():
        pass
    with pytest.raises(RuntimeError, match="policy hands left job b waiting for ever"):
        simulation.outcome()


def test_no_gpu_is_taken_or_given_back_twice() -> None:
    pool = Pool(Cluster(2, 4))
    pool.take(((0, 0b0011),))
    with pytest.raises(RuntimeError, match="node 0"):
        pool.take(((0, 0b0110),))
    pool.release(((0, 0b0011),))
    with pytest.raises(RuntimeError, match="free already"):
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
def test_where_a_gang_goes(
    taken: tuple[tuple[int, int], ...], gpus: int, last: tuple[tuple[int, int], ...] | None, want: object
) -> None:
    pool = Pool(Cluster(2, 4))
    pool.take(taken)
    assert pool.place(gpus, last) == want


def test_other_gpus_of_the_same_nodes_are_no_migration() -> None:
    assert not moved(((0, 1), (1, 2)), ((0, 2), (1, 1)))
    assert moved(((0, 1), (1, 2)), ((0, 1), (2, 2)))


def test_a_policy_can_be_run_again_and_rows_need_no_order() -> None:
    workload = Workload.of([Job("late", 5, 1), Job("early", 0, 10), Job("tie", 5, 1)])
    policy = Srpt()
    outcomes = [simulate(workload, Cluster(1, 1), policy) for _ in range(2)]
    assert outcomes[0].finish.tolist() == outcomes[1].finish.tolist() == [6.0, 12.0, 7.0]
    assert simulate(workload, Cluster(1, 1), Fifo()).finish.tolist() == [11.0, 10.0, 12.0]
