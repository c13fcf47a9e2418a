"""Which GPU reservations are given up for a waiting pod, and that nothing flaps: rules and a simulated scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.planning.slots.gpu_yields import (
    FIRST_PAUSE,
    HOLD,
    PATIENCE,
    SETTLE,
    GpuSupply,
    HeldGpu,
    WaitingPod,
    YieldPlan,
    YieldRecord,
    plan_yields,
)

NOW = 1000.0
ANY = frozenset({"a", "b", "c"})


def pod(
    name: str = "p", gpus: int = 1, priority: int = 0, since: float = 0.0, nodes: frozenset[str] = ANY
) -> WaitingPod:
    return WaitingPod(name, f"others/{name}", priority, gpus, since, nodes)


def held(uid: str, node: str = "a", *loss: float, priority: int = -2) -> HeldGpu:
    return HeldGpu(uid, node, priority, loss or (0.0,))


def plan(
    pods: Sequence[WaitingPod],
    *reservations: HeldGpu,
    free: Mapping[str, int] | None = None,
    leaving: Mapping[str, str] | None = None,
    records: Mapping[str, YieldRecord] | None = None,
    now: float = NOW,
) -> YieldPlan:
    supply = GpuSupply(reservations, free or {}, leaving or {})
    return plan_yields(pods, supply, records or {}, {one.uid for one in pods}, now)


CASES = {
    "the only one": (plan([pod()], held("1")), {"1"}),
    "the one that loses least": (plan([pod()], held("1", "a", 3.0), held("2", "b", 1.0), held("3", "c", 2.0)), {"2"}),
    "of equal losses by the next measure": (plan([pod()], held("1", "a", 1.0, 9.0), held("2", "a", 1.0, 5.0)), {"2"}),
    "only where the pod may run": (plan([pod(nodes=frozenset("a"))], held("1", "a", 3.0), held("2", "b", 1.0)), {"1"}),
    "nowhere": (plan([pod(nodes=frozenset())], held("1")), set()),
    "as many as it needs, on one node": (
        plan([pod(gpus=2)], held("1", "a", 1.0), held("2", "b", 5.0), held("3", "b", 6.0), held("4", "b", 7.0)),
        {"2", "3"},
    ),
    "none if no node has enough": (plan([pod(gpus=2)], held("1", "a"), held("2", "b")), set()),
    "a free GPU counts": (plan([pod(gpus=2)], held("1", "a"), held("2", "a"), free={"a": 1}), {"1"}),
    "the node where the fewest end": (
        plan([pod(gpus=2)], held("1", "a", 9.0), held("2", "b"), held("3", "b"), free={"a": 1}),
        {"1"},
    ),
    "one that is terminating counts": (plan([pod()], held("1"), leaving={"0": "a"}), set()),
    "but for one pod only": (plan([pod("p"), pod("q", since=1.0)], held("1"), leaving={"0": "a"}), {"1"}),
    "the more important pod comes first": (plan([pod("p"), pod("q", 2, priority=5)], held("1"), held("2")), {"1", "2"}),
    "of equal priority": (plan([pod(priority=-2)], held("1")), set()),
    "of lower priority": (plan([pod(priority=-3)], held("1")), set()),
    "just arrived": (plan([pod(since=NOW - SETTLE + 0.1)], held("1")), set()),
}  # fmt: skip


@pytest.mark.parametrize(("made", "expected"), CASES.values(), ids=CASES.keys())
def test_what_is_given_up(made: YieldPlan, expected: set[str]) -> None:
    assert set(made.give) == expected


def test_enough_free_gpus_are_left_to_the_scheduler_for_a_while() -> None:
    first = plan([pod()], held("1"), free={"a": 1})
    assert (dict(first.give), first.waits_for, first.wake_at) == ({}, ("others/p",), NOW + PATIENCE)
    later = plan([pod()], held("1"), free={"a": 1}, records=first.records, now=NOW + PATIENCE)
    assert set(later.give) == {"1"}, "the scheduler cannot use the free one for this pod"
    without = plan([pod()], free={"a": 1}, records=first.records, now=NOW + PATIENCE)
    assert without.waits_for == (), "nothing can be done for it, so requests continue"


def test_no_gpu_is_requested_until_the_pod_has_a_node() -> None:
    begun = plan([pod()], held("1"))
    assert begun.waits_for == ("others/p",)
    terminating = plan([pod()], leaving={"1": "a"}, records=begun.records, now=NOW + 40.0)
    assert (terminating.waits_for, terminating.wake_at) == (("others/p",), None), "the grace period is the limit"
    freed = plan([pod()], held("2"), free={"a": 1}, records=terminating.records, now=NOW + 50.0)
    assert (dict(freed.give), freed.waits_for, freed.wake_at) == ({}, ("others/p",), NOW + 50.0 + HOLD)
    placed = plan([], held("2"), records=freed.records, now=NOW + 51.0)
    assert placed == YieldPlan()


def test_a_pod_that_is_not_placed_gets_nothing_more_until_a_growing_pause_is_over() -> None:
    made, now = plan([pod()], held("0")), NOW
    for failures in (1, 2, 3):
        freed = plan([pod()], records=made.records, now=now)
        made = plan([pod()], held(str(failures)), records=freed.records, now=now + HOLD)
        pause = FIRST_PAUSE * 2 ** (failures - 1)
        assert (dict(made.give), made.waits_for, made.wake_at) == ({}, (), now + HOLD + pause)
        now += HOLD + pause
        made = plan([pod()], held(str(failures)), records=made.records, now=now)
        assert set(made.give) == {str(failures)}


def test_a_pod_that_waits_for_something_else_meanwhile_keeps_its_failure() -> None:
    begun = plan([pod()], held("1"))
    other = plan_yields([], GpuSupply((), {}, {"1": "a"}), begun.records, {"p"}, NOW + 5.0)
    assert other.waits_for == ()
    again = plan([pod()], held("2"), records=other.records, now=NOW + 6.0)
    assert (dict(again.give), again.wake_at) == ({}, NOW + 5.0 + FIRST_PAUSE)
    assert plan_yields([], GpuSupply(()), begun.records, set(), NOW).records == {}, "the pod is gone"


@dataclass
class World:
    """One node with GPUs, reservations that Podium renews, and a scheduler that places pods on free GPUs."""

    gpus: int
    reserved: set[str] = field(default_factory=set)
    ending: dict[str, float] = field(default_factory=dict)  # when a terminating reservation has gone
    pods: dict[str, WaitingPod] = field(default_factory=dict)
    placed: dict[str, tuple[int, float]] = field(default_factory=dict)  # GPUs and end of each pod
    stubborn: set[str] = field(default_factory=set)  # pods that the scheduler cannot place for another reason
    records: Mapping[str, YieldRecord] = field(default_factory=dict)
    given: dict[str, list[float]] = field(default_factory=dict)  # times of the reservations given up, by pod
    number: int = 0

    def free(self) -> int:
        return self.gpus - len(self.reserved) - len(self.ending) - sum(gpus for gpus, _ in self.placed.values())

    def second(self, now: float) -> None:
        self.ending = {uid: end for uid, end in self.ending.items() if now < end}
        self.placed = {uid: one for uid, one in self.placed.items() if now < one[1]}
        for uid, one in sorted(self.pods.items(), key=lambda item: (-item[1].priority, item[0])):
            if uid not in self.stubborn and one.gpus <= self.free():
                self.placed[uid] = (one.gpus, now + 20.0)
                del self.pods[uid]
        supply = GpuSupply(
            [HeldGpu(uid, "a", -2, (0.0,)) for uid in sorted(self.reserved)],
            {"a": self.free()},
            dict.fromkeys(self.ending, "a"),
        )
        made = plan_yields(self.pods.values(), supply, self.records, self.pods.keys(), now)
        self.records = made.records
        by_pod: dict[str, int] = {}
        for uid, one in made.give.items():
            assert one.priority > -2
            by_pod[one.uid] = by_pod.get(one.uid, 0) + 1
            self.given.setdefault(one.uid, []).append(now)
            self.reserved.remove(uid)
            self.ending[uid] = now + 3.0
        for uid, count in by_pod.items():
            assert count <= self.pods[uid].gpus
        while not made.waits_for and self.free() > 0:
            self.number += 1
            self.reserved.add(f"r{self.number}")


PODS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 3), st.integers(-4, 3), st.booleans()), min_size=1, max_size=6
)


@given(st.integers(1, 4), PODS)
def test_pods_of_higher_priority_are_placed_and_nothing_flaps(
    gpus: int, arrivals: list[tuple[int, int, int, bool]]
) -> None:
    world = World(gpus)
    for second in range(0, 400, 2):  # the operator decides at least every 2 s
        now = NOW + second
        for number, (at, wants, priority, stubborn) in enumerate(arrivals):
            if at * 2 == second:
                one = WaitingPod(f"p{number}", f"others/p{number}", priority, wants, now, frozenset("a"))
                world.pods[one.uid] = one
                world.stubborn |= {one.uid} if stubborn else set()
        world.second(now)
    for number, (_, wants, priority, stubborn) in enumerate(arrivals):
        uid = f"p{number}"
        times = world.given.get(uid, [])
        if priority <= -2:
            assert not times
        elif stubborn:
            # two attempts fit into the time: a second one only after the pause
            attempts = sorted(set(times))
            assert len(times) <= wants * len(attempts)
            assert all(b - a >= FIRST_PAUSE for a, b in pairwise(attempts))
        else:
            assert len(times) <= wants, "never more than it requests"
            assert uid not in world.pods or wants > gpus
    assert world.reserved or world.pods or gpus == 0


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(-3, 3), st.integers(0, 5)), max_size=8),
    st.lists(st.tuples(st.integers(1, 3), st.integers(-4, 4)), max_size=4),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 3)),
    st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from("ab")),
)
def test_no_pod_gets_more_than_it_lacks_or_one_that_it_may_not_preempt(
    reservations: list[tuple[str, int, int]],
    wants: list[tuple[int, int]],
    free: dict[str, int],
    leaving: dict[str, str],
) -> None:
    there = [held(str(i), node, float(loss), priority=prio) for i, (node, prio, loss) in enumerate(reservations)]
    pods = [pod(f"p{i}", gpus, priority) for i, (gpus, priority) in enumerate(wants)]
    made = plan(pods, *there, free=free, leaving=leaving)
    by_uid = {one.uid: one for one in there}
    for one in pods:
        mine = [by_uid[uid] for uid, other in made.give.items() if other.uid == one.uid]
        assert all(reservation.priority < one.priority for reservation in mine)
        assert len({reservation.node for reservation in mine}) <= 1
        assert len(mine) <= one.gpus
        if mine and len(pods) == 1:
            node = mine[0].node
            soon = free.get(node, 0) + sum(where == node for where in leaving.values())
            assert len(mine) == one.gpus - soon, "exactly what is missing there"
            cheapest = sorted(r.loss for r in there if r.node == node and r.priority < one.priority)
            assert sorted(r.loss for r in mine) == cheapest[: len(mine)]
    assert plan(pods, *there, free=free, leaving=leaving) == made
    again = plan(pods, *there, free=free, leaving=leaving, records=made.records, now=NOW + 1.0)
    repeated = {uid for uid, one in again.give.items() if uid in made.give}
    assert not repeated, "a reservation is given up once"


def test_the_oldest_of_many_pods_come_first() -> None:
    many = [pod(f"p{i:03}", since=float(i)) for i in range(150)]
    made = plan(many, *(held(f"r{i:03}") for i in range(150)))
    assert len(made.give) == 100
    assert {one.uid for one in made.give.values()} == {f"p{i:03}" for i in range(100)}


def test_a_record_that_was_followed_is_a_new_value() -> None:
    record = replace(YieldRecord("others/p"), given=frozenset({"1"}))
    made = plan([pod()], held("1"), records={"p": record})
    assert made.records == {"p": record}
