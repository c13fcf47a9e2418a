"""Who is woken for room: nobody without it, one a free share, the longest waiting first, and never a storm."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_core.placement.fit import refuse_with_freshness
from podium_core.placement.views import GpuReading, NodeRefusal, NodeView, PodNeed
from podium_extender.requeue.unschedulable_queue import (
    RETRY_PAUSE_SECONDS,
    SCHEDULER_RETRY_SECONDS,
    TokenBucket,
    UnschedulablePod,
    UnschedulableQueue,
)
from podium_extender.state.views import Views

NOW = 1000.0
ONE = PodNeed(1)
NODES = ["a", "b"]


def view(name: str, trials: int = 0, health: str = "Healthy", at: float = NOW) -> NodeView:
    return NodeView(name, (GpuReading(f"GPU-{name}", health=health, slots=4, trials=trials),), at)  # type: ignore[arg-type]


def room(*pods: str, rate: float = 1.0, burst: int = 100) -> UnschedulableQueue:
    waiting = UnschedulableQueue(60.0, TokenBucket(rate, burst))
    for pod in pods:
        waiting.add(("default", pod), ONE, NODES, NOW)
    return waiting


def names(woken: tuple[UnschedulablePod, ...]) -> list[str]:
    return [waiting.pod[1] for waiting in woken]


def test_only_room_wakes_and_each_share_one_pod() -> None:
    waiting = room("first", "second", "third")
    views = Views([view("a", health="Unhealthy"), view("b", trials=4)])
    assert waiting.pop_due(views, NOW) == ()
    views.put(view("a", trials=2))
    assert names(waiting.pop_due(views, NOW)) == ["first", "second"]
    assert waiting.pop_due(views, NOW) == ()
    views.put(replace(views.get("a"), reported_at=NOW + 1))  # a heartbeat is no room
    assert waiting.pop_due(views, NOW + 1) == ()
    views.put(view("a", trials=3))
    assert names(waiting.pop_due(views, NOW + 1)) == ["third"]
    assert len(waiting) == 0


@pytest.mark.parametrize("way", ["let through", "another node"])
def test_who_is_not_concerned_sleeps_on(way: str) -> None:
    waiting = room("pod")
    if way == "let through":
        waiting.remove(("default", "pod"))
    views = Views([view("elsewhere" if way == "another node" else "a")])
    assert waiting.pop_due(views, NOW) == ()


def test_among_many_nodes_any_may_be_the_one() -> None:
    waiting = UnschedulableQueue(60.0, TokenBucket(1.0, 1))
    waiting.add(("default", "pod"), ONE, [str(i) for i in range(1000)], NOW)
    assert names(waiting.pop_due(Views([view("new")]), NOW)) == ["pod"]


def test_a_spent_budget_delays_and_loses_nobody() -> None:
    waiting = room("first", "second", "third", rate=2.0, burst=1)
    views = Views([view("a")])
    assert names(waiting.pop_due(views, NOW)) == ["first"]
    assert waiting.retry_at(NOW) == NOW + 0.5
    assert waiting.pop_due(views, NOW + 0.4) == ()
    assert names(waiting.pop_due(views, NOW + 0.5)) == ["second"]
    assert names(waiting.pop_due(views, NOW + 1.0)) == ["third"]
    assert waiting.retry_at(NOW + 1.0) is None


def test_with_a_spent_budget_no_further_node_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand nodes with room and a thousand pods: each look goes through all pods, in the middle of answers."""
    waiting = UnschedulableQueue(60.0, TokenBucket(1.0, 1))
    for number in range(20):
        waiting.add(("default", str(number)), ONE, None, NOW)
    looked: list[str] = []

    def look(need: PodNeed, node: NodeView, fresh: bool) -> NodeRefusal | None:
        looked.append(node.name)
        return refuse_with_freshness(need, node, fresh)

    monkeypatch.setattr("podium_extender.requeue.unschedulable_queue.refuse_with_freshness", look)
    views = Views(view(f"node-{number:02d}") for number in range(10))
    assert names(waiting.pop_due(views, NOW)) == ["0"]
    assert looked == ["node-00"]
    assert names(waiting.pop_due(views, NOW + 0.5)) == []
    assert looked == ["node-00"] * 2
    assert [names(waiting.pop_due(views, NOW + second)) for second in (1.0, 2.0, 3.0)] == [["1"], ["2"], ["3"]]


@pytest.mark.parametrize("rate", [0.3, 7.0, 20.0])
def test_at_the_time_that_was_given_there_is_a_wake_and_no_sooner(rate: float) -> None:
    """Whatever of seconds since 1970 was rounded."""
    budget, now = TokenBucket(rate, 1), 1.8e9
    for _ in range(1000):
        assert budget.take(now)
        assert not budget.take(now)
        now = budget.next_at(now)
    assert now == pytest.approx(1.8e9 + 1000 / rate, abs=0.01)


def test_no_crowd_fills_the_memory() -> None:
    waiting = UnschedulableQueue(60.0, TokenBucket(1.0, 1), limit=2)
    for number in range(5):
        waiting.add(("default", str(number)), ONE, NODES, NOW)
    assert len(waiting) == 2


def test_who_was_not_asked_for_again_makes_room_for_others() -> None:
    """A pod that is deleted while the scheduler asks for it is refused after its end, and nobody tells."""
    waiting = UnschedulableQueue(60.0, TokenBucket(1.0, 1), limit=2)
    waiting.add(("default", "gone"), ONE, NODES, NOW)
    waiting.add(("default", "there"), ONE, NODES, NOW + SCHEDULER_RETRY_SECONDS / 2)
    later = NOW + SCHEDULER_RETRY_SECONDS
    waiting.add(("default", "new"), ONE, NODES, later)
    waiting.add(("default", "too many"), ONE, NODES, later)
    assert names(waiting.pop_due(Views([view("a", at=later)]), later)) == ["there"]
    assert len(waiting) == 1


def test_an_urgent_pod_needs_no_free_share() -> None:
    waiting = UnschedulableQueue(60.0, TokenBucket(1.0, 10))
    urgent = PodNeed(1, exclusive=True)
    for number in range(2):
        waiting.add(("default", f"urgent-{number}"), urgent, NODES, NOW)
    views = Views([view("a", trials=4, health="Unhealthy")])
    assert waiting.pop_due(views, NOW) == ()
    views.put(view("a", trials=4))
    assert names(waiting.pop_due(views, NOW)) == ["urgent-0"]


def test_who_could_not_be_told_is_due_again() -> None:
    waiting = room("pod")
    views = Views([view("a")])
    (due,) = waiting.pop_due(views, NOW)
    waiting.retry_later(due, NOW)
    assert waiting.pop_due(views, NOW) == (), "not at once: the server may be down"
    assert waiting.retry_at(NOW) == NOW + RETRY_PAUSE_SECONDS
    assert names(waiting.pop_due(views, NOW + RETRY_PAUSE_SECONDS)) == ["pod"], "although no node changed"
    assert waiting.retry_at(NOW + RETRY_PAUSE_SECONDS) is None


def test_a_crowd_that_a_node_cannot_take_is_looked_at_once_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = UnschedulableQueue(60.0, TokenBucket(1.0, 10))
    for number in range(300):
        kind = PodNeed(1, products=("A100", "H100")[: 1 + number % 2])
        waiting.add(("default", str(number)), kind, NODES, NOW)
    looks: list[PodNeed] = []

    def look(need: PodNeed, node: NodeView, fresh: bool) -> NodeRefusal | None:
        looks.append(need)
        return refuse_with_freshness(need, node, fresh)

    monkeypatch.setattr("podium_extender.requeue.unschedulable_queue.refuse_with_freshness", look)
    views = Views([view("a")])
    assert waiting.pop_due(views, NOW) == ()
    assert len(looks) == 2
    for number in range(300):
        if number % 2 == 0:
            waiting.remove(("default", str(number)))
    views.put(view("a", trials=1))
    assert waiting.pop_due(views, NOW) == ()
    assert len(looks) == 3, "a kind of which nobody is left"


@settings(deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(NODES), st.integers(0, 4), st.floats(0, 3)), max_size=60))
def test_however_much_changes_the_budget_holds(steps: list[tuple[str, int, float]]) -> None:
    rate, burst = 2.0, 3
    waiting = room(*map(str, range(200)), rate=rate, burst=burst)
    views = Views()
    now, woken = NOW, 0
    for name, trials, passed in steps:
        now += passed
        views.put(view(name, trials=trials, at=now))
        due = waiting.pop_due(views, now)
        woken += len(due)
        for one in due:  # refused again
            waiting.add(one.pod, ONE, NODES, now)
    assert woken <= burst + rate * (now - NOW) + 1e-6
