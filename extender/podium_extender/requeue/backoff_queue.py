"""Pods for which `preempt` let nobody go, and when that is worth another try. Pure; `nudges` acts on it.

kube-scheduler sets such a pod aside until a pod of the cluster is deleted or a node grows, up to five minutes: neither
a GPU that recovers, memory that came free nor a new minute of the budget is an event to it, and no annotation is
either (shared extender-proof, d).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from podium_core.placement.victims import Preemptor
from podium_core.placement.views import GpuReading
from podium_extender.requeue.unschedulable_queue import RETRY_PAUSE_SECONDS, SCHEDULER_RETRY_SECONDS, TokenBucket, PodName
from podium_extender.state.views import Views


@dataclass(frozen=True, slots=True)
class ProposedVictims:
    """What the scheduler proposed for one node: uids, and how many PodDisruptionBudgets would be violated."""

    victims: tuple[str, ...]
    violations: int = 0


@dataclass(frozen=True, slots=True)
class BackoffPod:
    """`proposed` by node; none: it waits since before this process. `retry_at`: when the answer may change by time.
    `at`: when it was set aside. `tried`: it was woken with another since.
    """

    pod: PodName
    uid: str
    preemptor: Preemptor
    proposed: Mapping[str, ProposedVictims]
    retry_at: float | None = None
    at: float = 0.0
    tried: bool = False


@dataclass(frozen=True, slots=True)
class RetryOutcome:
    """What another try would bring now: the node where it finds room; None: nothing before `retry_at`, or a change."""

    node: str | None = None
    retry_at: float | None = None


Ask = Callable[[BackoffPod, Collection[str]], RetryOutcome]  # looks at these of the proposed nodes


class BackoffQueue:
    """At most `most` pods are remembered, the most important: each change of a node is weighed for each of them that it
    was proposed for.

    One pod a time is due, the most important: what wakes it wakes all of its priority and below (`nudges`).
    """

    def __init__(self, budget: TokenBucket, most: int = 100) -> None:
        self._budget = budget
        self._most = most
        self._pods: dict[PodName, BackoffPod] = {}  # who waits longest comes first
        self._seen: dict[str, tuple[GpuReading, ...]] = {}
        self._version = 0
        self._changed: dict[PodName, set[str]] = {}  # nodes that are still to be looked at for each
        self._listener: Callable[[], None] = _nobody

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` when a pod comes, with which `retry_at` may be sooner."""
        self._listener = listener

    def __len__(self) -> int:
        return len(self._pods)

    def park(self, one: BackoffPod) -> None:
        if one.pod not in self._pods and len(self._pods) >= self._most:
            # a pod that was deleted while the scheduler was asking for it is told of by nobody
            for other in [other for other in self._pods.values() if one.at - other.at >= SCHEDULER_RETRY_SECONDS]:
                self.leaves(other.pod)
            least = min(self._pods.values(), key=_importance, default=one)
            if len(self._pods) >= self._most and _importance(least) < _importance(one):
                self.leaves(least.pod)
        if one.pod in self._pods or len(self._pods) < self._most:
            self._pods[one.pod] = one
            self._changed.pop(one.pod, None)
            self._listener()

    def leaves(self, pod: PodName) -> None:
        """It was told a node, bound or deleted."""
        self._pods.pop(pod, None)
        self._changed.pop(pod, None)

    def retry_later(self, one: BackoffPod, now: float) -> None:
        """It was due and could not be told."""
        if one.pod not in self._pods:
            self.park(replace(one, retry_at=now + RETRY_PAUSE_SECONDS, at=now))

    def due(self, views: Views, now: float, ask: Ask) -> tuple[BackoffPod, str] | None:
        """Who is to be tried again now, with the node where it finds room; it leaves the lot."""
        self._look(views)
        for one in sorted(self._pods.values(), key=_importance, reverse=True):
            timely = one.retry_at is not None and now >= one.retry_at
            nodes = one.proposed.keys() if timely else self._changed.get(one.pod)
            if not timely and not nodes:
                continue
            chance = ask(one, nodes or ())
            if chance.node is not None and self._budget.take(now):
                self.leaves(one.pod)
                self._changed.clear()  # whoever else is here is tried again with it
                self._tried_with(one, now)
                return one, chance.node
            again = self._budget.next_at(now) if chance.node is not None else chance.retry_at
            self._pods[one.pod] = replace(one, retry_at=again if timely else _earlier(one.retry_at, again))
            self._changed.pop(one.pod, None)
        return None

    def _tried_with(self, one: BackoffPod, now: float) -> None:
        """Those of its priority and below: the scheduler asks for them now, so their own time is not come before it had
        time to. Of those that wait since before this process nothing else is known: whom it does not ask for after two
        such wakes waits for something else. Without this each of them would be woken by itself, in turn, after a
        restart, and all others with each.
        """
        for other in [other for other in self._pods.values() if _importance(other) <= _importance(one)]:
            if other.tried and not other.proposed:
                self.leaves(other.pod)
            elif other.retry_at is not None:
                self._pods[other.pod] = replace(other, retry_at=max(other.retry_at, now + RETRY_PAUSE_SECONDS), tried=True)

    def retry_at(self) -> float | None:
        """When `due` is worth asking although nothing changed; None: not before a change."""
        return min((one.retry_at for one in self._pods.values() if one.retry_at is not None), default=None)

    def _look(self, views: Views) -> None:
        changed = views.changed_since(self._version)
        self._version = views.version
        for name in views.names() if changed is None else changed:
            gpus = views.get(name).gpus
            if self._seen.get(name) is gpus:
                continue  # a heartbeat
            self._seen[name] = gpus
            if not views.known(name):
                del self._seen[name]
            for one in self._pods.values():
                if name in one.proposed:
                    self._changed.setdefault(one.pod, set()).add(name)


def _nobody() -> None:
    """Nobody listens yet."""


def _importance(one: BackoffPod) -> int:
    return one.preemptor.priority


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((at for at in (one, other) if at is not None), default=None)
