"""Retries after a refused preemption: once victims are available, the highest priority first, at a limited rate."""

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


def waiting(name: str, *nodes: str, priority: int = 1000, retry_at: float | None = None) -> BackoffPod:
    proposed = {node: ProposedVictims((f"victim-{node}",)) for node in nodes}
    return BackoffPod(("default", name), name, Preemptor(PodNeed(1), priority), proposed, retry_at)


class Setup:
    """A queue with two nodes; `useful` are the nodes with victims, and `asked` records the evaluations."""

    def __init__(self, *pods: BackoffPod, burst: int = 10) -> None:
        self.queue = BackoffQueue(TokenBucket(1.0, burst), limit=3)
        self.views, self.useful, self.asked = Views([view("a"), view("b")]), set[str](), list[tuple[str, set[str]]]()
        self.free_at: float | None = None
        for pod in pods:
            self.queue.add(pod)

    def ask(self, one: BackoffPod, nodes: Collection[str]) -> RetryOutcome:
        self.asked.append((one.uid, set(nodes)))
        return RetryOutcome(next((node for node in sorted(nodes) if node in self.useful), None), self.free_at)

    def due(self, now: float = NOW) -> tuple[str, str] | None:
        found = self.queue.pop_due(self.views, now, self.ask)
        return (found[0].uid, found[1]) if found else None


def test_each_change_of_a_proposed_node_is_evaluated_once() -> None:
    setup = Setup(waiting("pod", "a"))
    assert setup.due() is None  # once at first: it may have changed since the answer
    assert setup.due() is None
    setup.views.put(NodeView("a", setup.views.get("a").gpus, NOW + 1))  # a heartbeat
    setup.views.put(view("b", health="Unhealthy"))
    assert setup.due() is None
    assert setup.asked == [("pod", {"a"})]
    setup.views.put(view("a"))
    setup.useful = {"a"}
    assert setup.due() == ("pod", "a")
    assert len(setup.queue) == 0


def test_the_pod_with_the_highest_priority_is_woken_with_the_others() -> None:
    setup = Setup(waiting("low", "a", priority=1), waiting("high", "a", priority=9))
    setup.useful = {"a"}
    assert setup.due() == ("high", "a")
    assert setup.due() is None, "the scheduler retries it with the other"
    setup.views.put(view("a"))
    assert setup.due() == ("low", "a"), "it got no new answer since"


def test_after_a_restart_one_wakeup_counts_for_all_pods_that_it_wakes() -> None:
    """Each pod waited already at the start of this process and may be woken at once."""
    pods = (("a", 5), ("b", 9), ("c", 5))
    setup = Setup(*(waiting(name, retry_at=NOW, priority=priority) for name, priority in pods))
    setup.ask = lambda one, nodes: RetryOutcome("a", NOW + 1.0)  # type: ignore[method-assign]
    assert setup.due() == ("b", "a")
    assert setup.due() is None, "the others are woken with it"
    assert setup.queue.retry_at() == NOW + RETRY_PAUSE_SECONDS
    assert setup.due(NOW + RETRY_PAUSE_SECONDS) == ("a", "a"), (
        "the scheduler did not retry them: b may have been deleted just then"
    )
    assert (setup.queue.retry_at(), len(setup.queue)) == (None, 0), "c waits for something else"
    setup.queue.add(waiting("d", retry_at=NOW, priority=9))
    assert setup.due(NOW + RETRY_PAUSE_SECONDS + 1) == ("d", "a"), "a more important one is woken by no other"


def test_a_refused_pod_is_woken_at_its_own_time_after_others_were() -> None:
    pods = (("a", 5), ("b", 9), ("c", 9))
    setup = Setup(*(waiting(name, "a", retry_at=NOW, priority=priority) for name, priority in pods))
    setup.useful = {"a"}
    for turn, name in enumerate("bca"):
        assert setup.due(NOW + turn * RETRY_PAUSE_SECONDS) == (name, "a")
        assert setup.due(NOW + turn * RETRY_PAUSE_SECONDS) is None


def test_a_pod_is_due_when_its_answer_may_change_by_time() -> None:
    setup = Setup(waiting("pod", "a", retry_at=NOW + 20))
    assert setup.due() is None
    assert setup.queue.retry_at() == NOW + 20
    setup.free_at = NOW + 30
    assert setup.due(NOW + 20) is None
    assert setup.queue.retry_at() == NOW + 30
    setup.useful = {"a"}
    assert setup.due(NOW + 30) == ("pod", "a")
    assert setup.queue.retry_at() is None


@pytest.mark.parametrize("way", ["left", "failed"])
def test_a_removed_pod_is_not_due_and_a_failed_retry_is(way: str) -> None:
    setup = Setup(waiting("pod", "a"))
    setup.useful = {"a"}
    if way == "left":
        setup.queue.remove(("default", "pod"))
        assert setup.due() is None
        return
    found = setup.queue.pop_due(setup.views, NOW, setup.ask)
    assert found is not None
    setup.queue.retry_later(found[0], NOW)
    assert setup.due() is None, "not at once: the server may be down"
    assert setup.queue.retry_at() == NOW + RETRY_PAUSE_SECONDS
    assert setup.due(NOW + RETRY_PAUSE_SECONDS) == ("pod", "a")


def test_the_queue_is_limited_and_reports_new_pods() -> None:
    setup, heard = Setup(), list[int]()
    setup.queue.subscribe(lambda: heard.append(len(setup.queue)))
    for number in range(5):
        setup.queue.add(waiting(str(number), "a"))
    assert heard == [1, 2, 3]


def test_the_pods_with_the_highest_priorities_are_kept() -> None:
    """Waking one of them wakes the pods of its priority and below."""
    setup = Setup(*(waiting(name, "a", priority=priority) for name, priority in (("x", 5), ("y", 1), ("z", 5))))
    setup.queue.add(waiting("low", "a", priority=1))
    setup.queue.add(waiting("high", "a", priority=9))
    setup.useful = {"a"}
    found = []
    while (due := setup.due()) is not None:
        found.append(due[0])
        setup.views.put(view("a"))
    assert found == ["high", "x", "z"]


def test_a_pod_deleted_during_its_request_does_not_stay_in_the_queue() -> None:
    """The scheduler retries each of its pods earlier, so a pod without a request for so long does not exist."""
    setup = Setup(*(waiting(str(number), "a") for number in range(3)))
    for name, at in (("soon", SCHEDULER_RETRY_SECONDS - 1), ("later", SCHEDULER_RETRY_SECONDS)):
        setup.queue.add(replace(waiting(name, "a"), at=at))
    setup.useful = {"a"}
    assert setup.due() == ("later", "a")
    assert setup.due() is None


@settings(deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 3)), max_size=40))
def test_the_token_bucket_limits_retries_and_no_pod_is_forgotten(steps: list[tuple[str, float]]) -> None:
    setup = Setup(waiting("pod", "a", "b"), burst=2)
    setup.useful = {"a", "b"}
    now, woken = NOW, 0
    for name, passed in steps:
        now += passed
        setup.views.put(view(name))
        if setup.due(now) is not None:
            woken += 1
            setup.queue.add(waiting("pod", "a", "b"))  # refused again
    assert woken <= 2 + (now - NOW) + 1e-4
    setup.views.put(view("a"))
    at = now if setup.due(now) is not None else setup.queue.retry_at()
    assert at == now or (at is not None and setup.due(at) is not None)
