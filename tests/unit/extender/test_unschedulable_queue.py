"""Which pods are woken: one for each free slot, the longest waiting first, at a limited rate."""

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
    return NodeView(name, (GpuReading(f"GPU-{name}", "V100", health=health, slots=4, trials=trials),), at)  # type: ignore[arg-type]


def queue_of(*pods: str, rate: float = 1.0, burst: int = 100) -> UnschedulableQueue:
    queue = UnschedulableQueue(60.0, TokenBucket(rate, burst))
    for pod in pods:
        queue.add(("default", pod), ONE, NODES, NOW)
    return queue


def names(woken: tuple[UnschedulablePod, ...]) -> list[str]:
    return [waiting.pod[1] for waiting in woken]


def test_each_free_slot_wakes_one_pod() -> None:
    queue = queue_of("first", "second", "third")
    views = Views([view("a", health="Unhealthy"), view("b", trials=4)])
    assert queue.pop_due(views, NOW) == ()
    views.put(view("a", trials=2))
    assert names(queue.pop_due(views, NOW)) == ["first", "second"]
    assert queue.pop_due(views, NOW) == ()
    views.put(replace(views.get("a"), reported_at=NOW + 1))  # a heartbeat frees no slot
    assert queue.pop_due(views, NOW + 1) == ()
    views.put(view("a", trials=3))
    assert names(queue.pop_due(views, NOW + 1)) == ["third"]
    assert len(queue) == 0


@pytest.mark.parametrize("way", ["let through", "another node"])
def test_an_unaffected_pod_is_not_woken(way: str) -> None:
    queue = queue_of("pod")
    if way == "let through":
        queue.remove(("default", "pod"))
    views = Views([view("elsewhere" if way == "another node" else "a")])
    assert queue.pop_due(views, NOW) == ()


def test_a_pod_refused_by_many_nodes_may_fit_on_any_node() -> None:
    queue = UnschedulableQueue(60.0, TokenBucket(1.0, 1))
    queue.add(("default", "pod"), ONE, [str(i) for i in range(1000)], NOW)
    assert names(queue.pop_due(Views([view("new")]), NOW)) == ["pod"]


def test_an_empty_token_bucket_delays_pods_and_loses_none() -> None:
    queue = queue_of("first", "second", "third", rate=2.0, burst=1)
    views = Views([view("a")])
    assert names(queue.pop_due(views, NOW)) == ["first"]
    assert queue.retry_at(NOW) == NOW + 0.5
    assert queue.pop_due(views, NOW + 0.4) == ()
    assert names(queue.pop_due(views, NOW + 0.5)) == ["second"]
    assert names(queue.pop_due(views, NOW + 1.0)) == ["third"]
    assert queue.retry_at(NOW + 1.0) is None


def test_without_tokens_no_further_node_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thousand nodes and a thousand pods, each check iterates over all pods, in the middle of responses."""
    queue = UnschedulableQueue(60.0, TokenBucket(1.0, 1))
    for number in range(20):
        queue.add(("default", str(number)), ONE, None, NOW)
    checked: list[str] = []

    def check(need: PodNeed, node: NodeView, fresh: bool) -> NodeRefusal | None:
        checked.append(node.name)
        return refuse_with_freshness(need, node, fresh)

    monkeypatch.setattr("podium_extender.requeue.unschedulable_queue.refuse_with_freshness", check)
    views = Views(view(f"node-{number:02d}") for number in range(10))
    assert names(queue.pop_due(views, NOW)) == ["0"]
    assert checked == ["node-00"]
    assert names(queue.pop_due(views, NOW + 0.5)) == []
    assert checked == ["node-00"] * 2
    assert [names(queue.pop_due(views, NOW + second)) for second in (1.0, 2.0, 3.0)] == [["1"], ["2"], ["3"]]


@pytest.mark.parametrize("rate", [0.3, 7.0, 20.0])
def test_a_token_is_available_exactly_at_the_given_time(rate: float) -> None:
    """Times are seconds since 1970, so they are rounded."""
    budget, now = TokenBucket(rate, 1), 1.8e9
    for _ in range(1000):
        assert budget.take(now)
        assert not budget.take(now)
        now = budget.next_at(now)
    assert now == pytest.approx(1.8e9 + 1000 / rate, abs=0.01)


def test_the_number_of_waiting_pods_is_limited() -> None:
    queue = UnschedulableQueue(60.0, TokenBucket(1.0, 1), limit=2)
    for number in range(5):
        queue.add(("default", str(number)), ONE, NODES, NOW)
    assert len(queue) == 2


def test_a_pod_that_is_not_retried_is_dropped_for_others() -> None:
    """A pod deleted during its request is refused after its end, and no event reports that."""
    queue = UnschedulableQueue(60.0, TokenBucket(1.0, 1), limit=2)
    queue.add(("default", "gone"), ONE, NODES, NOW)
    queue.add(("default", "there"), ONE, NODES, NOW + SCHEDULER_RETRY_SECONDS / 2)
    later = NOW + SCHEDULER_RETRY_SECONDS
    queue.add(("default", "new"), ONE, NODES, later)
    queue.add(("default", "too many"), ONE, NODES, later)
    assert names(queue.pop_due(Views([view("a", at=later)]), later)) == ["there"]
    assert len(queue) == 1


def test_an_exclusive_pod_needs_no_free_slot() -> None:
    queue = UnschedulableQueue(60.0, TokenBucket(1.0, 10))
    exclusive = PodNeed(1, exclusive=True)
    for number in range(2):
        queue.add(("default", f"exclusive-{number}"), exclusive, NODES, NOW)
    views = Views([view("a", trials=4, health="Unhealthy")])
    assert queue.pop_due(views, NOW) == ()
    views.put(view("a", trials=4))
    assert names(queue.pop_due(views, NOW)) == ["exclusive-0"]


def test_a_pod_whose_retry_failed_is_due_again() -> None:
    queue = queue_of("pod")
    views = Views([view("a")])
    (due,) = queue.pop_due(views, NOW)
    queue.retry_later(due, NOW)
    assert queue.pop_due(views, NOW) == (), "not at once: the server may be down"
    assert queue.retry_at(NOW) == NOW + RETRY_PAUSE_SECONDS
    assert names(queue.pop_due(views, NOW + RETRY_PAUSE_SECONDS)) == ["pod"], "although no node changed"
    assert queue.retry_at(NOW + RETRY_PAUSE_SECONDS) is None


def test_a_node_is_checked_once_for_each_kind_of_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = UnschedulableQueue(60.0, TokenBucket(1.0, 10))
    for number in range(300):
        kind = PodNeed(1, products=("A100", "H100")[: 1 + number % 2])
        queue.add(("default", str(number)), kind, NODES, NOW)
    looks: list[PodNeed] = []

    def check(need: PodNeed, node: NodeView, fresh: bool) -> NodeRefusal | None:
        looks.append(need)
        return refuse_with_freshness(need, node, fresh)

    monkeypatch.setattr("podium_extender.requeue.unschedulable_queue.refuse_with_freshness", check)
    views = Views([view("a")])
    assert queue.pop_due(views, NOW) == ()
    assert len(looks) == 2
    for number in range(300):
        if number % 2 == 0:
            queue.remove(("default", str(number)))
    views.put(view("a", trials=1))
    assert queue.pop_due(views, NOW) == ()
    assert len(looks) == 3, "only the remaining kind"


@settings(deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(NODES), st.integers(0, 4), st.floats(0, 3)), max_size=60))
def test_the_token_bucket_limits_wakeups(steps: list[tuple[str, int, float]]) -> None:
    rate, burst = 2.0, 3
    queue = queue_of(*map(str, range(200)), rate=rate, burst=burst)
    views = Views()
    now, woken = NOW, 0
    for name, trials, passed in steps:
        now += passed
        views.put(view(name, trials=trials, at=now))
        due = queue.pop_due(views, now)
        woken += len(due)
        for one in due:  # refused again
            queue.add(one.pod, ONE, NODES, now)
    assert woken <= burst + rate * (now - NOW) + 1e-6
