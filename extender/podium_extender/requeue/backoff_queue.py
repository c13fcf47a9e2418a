"""Pods for which the verb preempt found no victims, and when a retry is worthwhile.

kube-scheduler retries such a pod after a pod is deleted or a node grows, or after up to five minutes. It does not retry
when a GPU recovers, memory is freed, the minute of the limit is over, or an annotation changes. All code here is pure;
`preemption_retries` performs the retries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from podium_core.placement.victims import Preemptor
from podium_core.placement.views import GpuReading
from podium_extender.requeue.unschedulable_queue import (
    RETRY_PAUSE_SECONDS,
    SCHEDULER_RETRY_SECONDS,
    PodName,
    TokenBucket,
)
from podium_extender.state.views import Views


@dataclass(frozen=True, slots=True)
class ProposedVictims:
    """The victims (uids) proposed on one node, and how many PodDisruptionBudgets they would violate."""

    uids: tuple[str, ...]
    violations: int = 0


@dataclass(frozen=True, slots=True)
class BackoffPod:
    """A pod that waits since `at` for victims.

    `proposed` holds the proposal by node; it is empty for a pod that waited already when this process started. At
    `retry_at` the response may change without an event. `woken_with_other` states that a retry of another pod woke this
    one since.
    """

    pod: PodName
    uid: str
    preemptor: Preemptor
    proposed: Mapping[str, ProposedVictims]
    retry_at: float | None = None
    at: float = 0.0
    woken_with_other: bool = False


@dataclass(frozen=True, slots=True)
class RetryOutcome:
    """The outcome of a retry now: the node with victims, or when a later retry may succeed."""

    node: str | None = None
    retry_at: float | None = None


Retry = Callable[[BackoffPod, Collection[str]], RetryOutcome]  # evaluates these of the proposed nodes


class BackoffQueue:
    """The waiting pods with the highest priorities, at most `limit`.

    The limit exists because each change of a node is evaluated for every pod that it was proposed for. One pod at a
    time is due, the one with the highest priority. Its wake-up also wakes all pods of its priority and below
    (`preemption_retries`).
    """

    def __init__(self, budget: TokenBucket, limit: int = 100) -> None:
        self._budget = budget
        self._limit = limit
        self._pods: dict[PodName, BackoffPod] = {}  # the longest waiting first
        self._seen: dict[str, tuple[GpuReading, ...]] = {}
        self._version = 0
        self._changed: dict[PodName, set[str]] = {}  # nodes to evaluate for each pod
        self._listener: Callable[[], None] = _ignore

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` when a pod is added, because `retry_at` may then be earlier."""
        self._listener = listener

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, pod: BackoffPod) -> None:
        """Add a pod; above the limit the pod with the lowest priority is dropped."""
        if pod.pod not in self._pods and len(self._pods) >= self._limit:
            # no event reports a pod that was deleted while the scheduler asked for it
            for other in [other for other in self._pods.values() if pod.at - other.at >= SCHEDULER_RETRY_SECONDS]:
                self.remove(other.pod)
            lowest = min(self._pods.values(), key=_priority, default=pod)
            if len(self._pods) >= self._limit and _priority(lowest) < _priority(pod):
                self.remove(lowest.pod)
        if pod.pod in self._pods or len(self._pods) < self._limit:
            self._pods[pod.pod] = pod
            self._changed.pop(pod.pod, None)
            self._listener()

    def remove(self, pod: PodName) -> None:
        """Remove a pod that got victims, or that was bound or deleted."""
        self._pods.pop(pod, None)
        self._changed.pop(pod, None)

    def retry_later(self, pod: BackoffPod, now: float) -> None:
        """Add a pod whose retry could not be written, to retry after a pause."""
        if pod.pod not in self._pods:
            self.add(replace(pod, retry_at=now + RETRY_PAUSE_SECONDS, at=now))

    def pop_due(self, views: Views, now: float, retry: Retry) -> tuple[BackoffPod, str] | None:
        """Remove and return the pod to retry now, with the node that has victims for it, if any."""
        self._collect_changes(views)
        for pod in sorted(self._pods.values(), key=_priority, reverse=True):
            timed = pod.retry_at is not None and now >= pod.retry_at
            nodes = pod.proposed.keys() if timed else self._changed.get(pod.pod)
            if not timed and not nodes:
                continue
            outcome = retry(pod, nodes or ())
            if outcome.node is not None and self._budget.take(now):
                self.remove(pod.pod)
                self._changed.clear()  # the wake-up also wakes the other pods
                self._mark_woken_with(pod, now)
                return pod, outcome.node
            retry_at = self._budget.next_at(now) if outcome.node is not None else outcome.retry_at
            self._pods[pod.pod] = replace(pod, retry_at=retry_at if timed else _earlier(pod.retry_at, retry_at))
            self._changed.pop(pod.pod, None)
        return None

    def _mark_woken_with(self, pod: BackoffPod, now: float) -> None:
        """Delay the pods of the same priority and below, because the scheduler now retries them too.

        The scheduler gets a pause to do so. A pod without a known proposal is removed if the scheduler did not retry it
        after two such wake-ups, because it waits for something else. Without this rule, after a restart, each of these
        pods would be woken by itself, and all others with each of them.
        """
        for other in [other for other in self._pods.values() if _priority(other) <= _priority(pod)]:
            if other.woken_with_other and not other.proposed:
                self.remove(other.pod)
            elif other.retry_at is not None:
                later = max(other.retry_at, now + RETRY_PAUSE_SECONDS)
                self._pods[other.pod] = replace(other, retry_at=later, woken_with_other=True)

    def retry_at(self) -> float | None:
        """Return when to call `pop_due` next without a change; None if only a change can cause a retry."""
        return min((pod.retry_at for pod in self._pods.values() if pod.retry_at is not None), default=None)

    def _collect_changes(self, views: Views) -> None:
        changed = views.changed_since(self._version)
        self._version = views.version
        for name in views.names() if changed is None else changed:
            gpus = views.get(name).gpus
            if self._seen.get(name) is gpus:
                continue  # only a heartbeat
            self._seen[name] = gpus
            if not views.known(name):
                del self._seen[name]
            for pod in self._pods.values():
                if name in pod.proposed:
                    self._changed.setdefault(pod.pod, set()).add(name)


def _ignore() -> None:
    """The listener before `subscribe`."""


def _priority(pod: BackoffPod) -> int:
    return pod.preemptor.priority


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((at for at in (one, other) if at is not None), default=None)
