"""Who is tried again after a refused preemption: once another try finds room, the most important first, and seldom."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_core.placement.victims import Preemptor
from podium_core.placement.views import GpuReading, NodeView, PodNeed
from podium_extender.requeue.backoff_queue import BackoffPod, BackoffQueue, ProposedVictims, RetryOutcome
from podium_extender.requeue.unschedulable_queue import RETRY_PAUSE_SECONDS, SCHEDULER_RETRY_SECONDS, TokenBucket
from podium_extender.state.views import Views

NOW = 1000.0


def view(name: str, health: str = "Healthy", at: float = NOW) -> NodeView:
    return NodeView(name, (GpuReading(f"GPU-{name}", health=health, slots=1, trials=1),), at)  # type: ignore[arg-type]


def parked(name: str, *nodes: str, priority: int = 1000, retry_at: float | None = None) -> BackoffPod:
    proposed = {node: ProposedVictims((f"victim-{node}",)) for node in nodes}
    return BackoffPod(("default", name), name, Preemptor(PodNeed(1), priority), proposed, retry_at)


class World:
    """`useful`: nodes where another try finds room now; notes what was asked."""

    def __init__(self, *pods: BackoffPod, burst: int = 10) -> None:
        self.lot = BackoffQueue(TokenBucket(1.0, burst), limit=3)
        self.views, self.useful, self.asked = Views([view("a"), view("b")]), set[str](), list[tuple[str, set[str]]]()
        self.free_at: float | None = None
        for pod in pods:
            self.lot.add(pod)

    def ask(self, one: BackoffPod, nodes: Collection[str]) -> RetryOutcome:
        self.asked.append((one.uid, set(nodes)))
        return RetryOutcome(next((node for node in sorted(nodes) if node in self.useful), None), self.free_at)

    def due(self, now: float = NOW) -> tuple[str, str] | None:
        found = self.lot.pop_due(self.views, now, self.ask)
        return (found[0].uid, found[1]) if found else None


def test_only_a_change_of_a_proposed_node_is_weighed_and_each_once() -> None:
    world = World(parked("pod", "a"))
    assert world.due() is None  # once at first: it may have changed since the answer
    assert world.due() is None
    world.views.put(NodeView("a", world.views.get("a").gpus, NOW + 1))  # a heartbeat
    world.views.put(view("b", health="Unhealthy"))
    assert world.due() is None
    assert world.asked == [("pod", {"a"})]
    world.views.put(view("a"))
    world.useful = {"a"}
    assert world.due() == ("pod", "a")
    assert len(world.lot) == 0


def test_the_most_important_goes_and_takes_the_others_along() -> None:
    world = World(parked("low", "a", priority=1), parked("high", "a", priority=9))
    world.useful = {"a"}
    assert world.due() == ("high", "a")
    assert world.due() is None, "the scheduler tries it with the other"
    world.views.put(view("a"))
    assert world.due() == ("low", "a"), "it was told nothing new since"


def test_after_a_restart_one_wake_is_for_all_that_it_wakes() -> None:
    """Each waits since before this process, and may be woken at once."""
    pods = (("a", 5), ("b", 9), ("c", 5))
    world = World(*(parked(name, retry_at=NOW, priority=priority) for name, priority in pods))
    world.ask = lambda one, nodes: RetryOutcome("a", NOW + 1.0)  # type: ignore[method-assign]
    assert world.due() == ("b", "a")
    assert world.due() is None, "the others are woken with it"
    assert world.lot.retry_at() == NOW + RETRY_PAUSE_SECONDS
    assert world.due(NOW + RETRY_PAUSE_SECONDS) == ("a", "a"), (
        "the scheduler did not ask for them: b may have gone just then"
    )
    assert (world.lot.retry_at(), len(world.lot)) == (None, 0), "nor will it: c waits for something else"
    world.lot.add(parked("d", retry_at=NOW, priority=9))
    assert world.due(NOW + RETRY_PAUSE_SECONDS + 1) == ("d", "a"), "a more important one is woken by no other"


def test_who_was_told_no_is_woken_in_its_own_time_however_often_others_were() -> None:
    pods = (("a", 5), ("b", 9), ("c", 9))
    world = World(*(parked(name, "a", retry_at=NOW, priority=priority) for name, priority in pods))
    world.useful = {"a"}
    for turn, name in enumerate("bca"):
        assert world.due(NOW + turn * RETRY_PAUSE_SECONDS) == (name, "a")
        assert world.due(NOW + turn * RETRY_PAUSE_SECONDS) is None


def test_an_answer_that_changes_by_itself_is_asked_for_in_time() -> None:
    world = World(parked("pod", "a", retry_at=NOW + 20))
    assert world.due() is None
    assert world.lot.retry_at() == NOW + 20
    world.free_at = NOW + 30
    assert world.due(NOW + 20) is None
    assert world.lot.retry_at() == NOW + 30
    world.useful = {"a"}
    assert world.due(NOW + 30) == ("pod", "a")
    assert world.lot.retry_at() is None


@pytest.mark.parametrize("way", ["left", "failed"])
def test_who_left_is_not_due_and_who_could_not_be_told_is(way: str) -> None:
    world = World(parked("pod", "a"))
    world.useful = {"a"}
    if way == "left":
        world.lot.remove(("default", "pod"))
        assert world.due() is None
        return
    found = world.lot.pop_due(world.views, NOW, world.ask)
    assert found is not None
    world.lot.retry_later(found[0], NOW)
    assert world.due() is None, "not at once: the server may be down"
    assert world.lot.retry_at() == NOW + RETRY_PAUSE_SECONDS
    assert world.due(NOW + RETRY_PAUSE_SECONDS) == ("pod", "a")


def test_no_crowd_fills_the_memory_and_who_comes_is_heard_of() -> None:
    world, heard = World(), list[int]()
    world.lot.subscribe(lambda: heard.append(len(world.lot)))
    for number in range(5):
        world.lot.add(parked(str(number), "a"))
    assert heard == [1, 2, 3]


def test_of_a_crowd_the_most_important_are_remembered() -> None:
    """Who wakes one of them wakes those of its priority and below."""
    world = World(*(parked(name, "a", priority=priority) for name, priority in (("x", 5), ("y", 1), ("z", 5))))
    world.lot.add(parked("low", "a", priority=1))
    world.lot.add(parked("high", "a", priority=9))
    world.useful = {"a"}
    found = []
    while (due := world.due()) is not None:
        found.append(due[0])
        world.views.put(view("a"))
    assert found == ["high", "x", "z"]


def test_who_was_deleted_while_the_scheduler_asked_takes_no_place_for_ever() -> None:
    """The scheduler asks for every pod that it still has: nobody who is there is silent for so long."""
    world = World(*(parked(str(number), "a") for number in range(3)))
    for name, at in (("soon", SCHEDULER_RETRY_SECONDS - 1), ("later", SCHEDULER_RETRY_SECONDS)):
        world.lot.add(replace(parked(name, "a"), at=at))
    world.useful = {"a"}
    assert world.due() == ("later", "a")
    assert world.due() is None


@settings(deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 3)), max_size=40))
def test_however_much_changes_the_budget_holds_and_nobody_is_forgotten(steps: list[tuple[str, float]]) -> None:
    world = World(parked("pod", "a", "b"), burst=2)
    world.useful = {"a", "b"}
    now, woken = NOW, 0
    for name, passed in steps:
        now += passed
        world.views.put(view(name))
        if world.due(now) is not None:
            woken += 1
            world.lot.add(parked("pod", "a", "b"))  # refused again
    assert woken <= 2 + (now - NOW) + 1e-4
    world.views.put(view("a"))
    at = now if world.due(now) is not None else world.lot.retry_at()
    assert at == now or (at is not None and world.due(at) is not None)
