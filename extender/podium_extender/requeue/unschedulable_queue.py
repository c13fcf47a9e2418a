"""Pods that every node refused, and when one of them is worth another try. Pure; `wakeups` acts on it.

kube-scheduler does not know GPUNodes: a pod that the filter refused everywhere would wait up to five minutes after a
GPU recovered or memory came free. So it is woken when a node that changed has room for it. Without storms: one wake a
free share, the longest waiting first, and a budget of wakes in the manner of a token bucket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from podium_core.placement.fit import refuse_with_freshness
from podium_core.placement.views import GpuReading, NodeView, PodNeed
from podium_extender.state.views import Views

PodName = tuple[str, str]  # namespace and name
FEW = 256
ONE = 1 - 1e-5  # a token: at the very time that `next_at` gave, what was rounded is not to be short of it
PAUSE = 5.0  # seconds, after a pod that could not be told
TRIED_AGAIN = 600.0  # seconds; kube-scheduler asks for every pod that it still has after five minutes and a half


@dataclass(frozen=True, slots=True)
class Waiting:
    """`asked`: the nodes that it was refused by; None: so many that any may be one of them. `at`: the last time."""

    pod: PodName
    need: PodNeed
    asked: frozenset[str] | None
    at: float


class Budget:
    """A token bucket: `burst` at once, and `rate` a second. Times are the caller's."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._at: float | None = None

    def take(self, now: float) -> bool:
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now
        if self._tokens < ONE:
            return False
        self._tokens -= 1.0
        return True

    def next_at(self, now: float) -> float:
        """When a wake may be tried again."""
        return now if self._tokens >= ONE else now + (1.0 - self._tokens) / self._rate


class WaitingRoom:
    """Told of every answer of the filter; asked after changes. At most `most` pods are remembered: the others wait for
    the scheduler's own turn.
    """

    def __init__(self, stale_after: float, budget: Budget, most: int = 1000) -> None:
        self._stale_after = stale_after
        self._budget = budget
        self._most = most
        self._pods: dict[PodName, Waiting] = {}  # who waits longest comes first
        self._seen: dict[str, tuple[GpuReading, ...]] = {}  # nodes as they were gone through
        self._version = 0
        self._left: dict[str, None] = {}  # nodes that changed and were not gone through: the budget was spent
        self._kinds: Counter[PodNeed] = Counter()  # of `_pods`
        self._all_again_at: float | None = None  # when every node is to be looked at, changed or not

    def __len__(self) -> int:
        return len(self._pods)

    def refused(self, pod: PodName, need: PodNeed, asked: Sequence[str] | None, now: float) -> None:
        """By each of these nodes; None: it is not known by which."""
        few = asked is not None and len(asked) <= FEW
        self._enter(Waiting(pod, need, frozenset(asked or ()) if few else None, now), now)

    def not_woken(self, waiting: Waiting, now: float) -> None:
        """It was due and could not be told: it is due again with the next change, or after a pause."""
        self._all_again_at = now + PAUSE
        if waiting.pod not in self._pods:
            self._enter(waiting, now)

    def leaves(self, pod: PodName) -> None:
        """It was let through, bound or deleted."""
        waiting = self._pods.pop(pod, None)
        if waiting is not None:
            self._kinds[waiting.need] -= 1
            self._kinds += Counter()  # without those of which there is none

    def _enter(self, waiting: Waiting, now: float) -> None:
        before = self._pods.get(waiting.pod)
        if before is None and len(self._pods) >= self._most:
            # a pod that was deleted while the scheduler was asking for it is told of by nobody
            for one in [one for one in self._pods.values() if now - one.at >= TRIED_AGAIN]:
                self.leaves(one.pod)
            if len(self._pods) >= self._most:
                return
        self._pods[waiting.pod] = waiting
        self._kinds.update((waiting.need,))
        if before is not None:
            self._kinds.subtract((before.need,))

    def due(self, views: Views, now: float) -> tuple[Waiting, ...]:
        """Pods to be tried again now; each leaves the room, and comes back if it is refused again.

        O(changed nodes x kinds of waiting pods), and for a node that has room, all waiting pods. With the budget spent,
        the nodes that are left are not looked at.
        """
        changed = views.changed_since(self._version)
        if self._all_again_at is not None and now >= self._all_again_at:
            changed, self._all_again_at = None, None
            self._seen.clear()
        self._version = views.version
        nodes = self._left | dict.fromkeys(views.names() if changed is None else changed)
        before, self._left = self._left, {}
        woken: list[Waiting] = []
        spent = False
        for name in nodes:
            if not views.known(name):
                self._seen.pop(name, None)
                continue
            node = views.get(name)
            if name not in before and self._seen.get(name) is node.gpus:
                continue  # a heartbeat: most changes are
            self._seen[name] = node.gpus
            for waiting in () if spent else self._fitting(node, now):
                if not self._budget.take(now):
                    spent = True
                    break
                self.leaves(waiting.pod)
                woken.append(waiting)
            if spent:
                self._left[name] = None
        return tuple(woken)

    def again_at(self, now: float) -> float | None:
        """When `due` is worth asking although nothing changed; None: not before a change."""
        if not self._pods:
            return None
        return self._budget.next_at(now) if self._left else self._all_again_at

    def _fitting(self, node: NodeView, now: float) -> list[Waiting]:
        """The longest waiting pods that this node has room for: as many trials as it has free shares, and as many
        urgent pods, which take no share, as it has GPUs.
        """
        fresh = not node.stale(now, self._stale_after)
        working = [gpu for gpu in node.gpus if gpu.health != "Unhealthy"]
        free = {False: sum(max(0, gpu.slots - gpu.trials) for gpu in working), True: len(working)}
        # most often nobody: a thousand pods that want a GPU of another kind are not gone through for each change
        fit = {
            need
            for need in self._kinds
            if need.gpus <= free[need.exclusive] and refuse_with_freshness(need, node, fresh) is None
        }
        chosen: list[Waiting] = []
        for waiting in self._pods.values() if fit else ():
            need = waiting.need
            known = waiting.asked is None or node.name in waiting.asked
            if known and need.gpus <= free[need.exclusive] and need in fit:
                free[need.exclusive] -= need.gpus
                chosen.append(waiting)
        return chosen
