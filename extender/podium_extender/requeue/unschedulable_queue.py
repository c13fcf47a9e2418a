"""Pods that every node refused, and when a retry of one of them is worthwhile.

kube-scheduler does not watch GPUNodes. After a GPU recovered or memory was freed, a pod that the filter refused
everywhere would wait for up to five minutes. Therefore the pod is woken when a node that changed can run it. To prevent
a storm of retries, each free slot wakes one pod, in the order of waiting, and a token bucket limits the rate. All code
here is pure; `wakeups` performs the retries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from podium_core.placement.fit import refuse_with_freshness
from podium_core.placement.views import GpuReading, NodeView, PodNeed
from podium_extender.state.views import Views

PodName = tuple[str, str]  # namespace and name
MAX_NAMED_NODES = 256
FULL_TOKEN = 1 - 1e-5  # at the time that `next_at` returned, rounding must not leave less than a token
RETRY_PAUSE_SECONDS = 5.0  # after a failed write to a pod
SCHEDULER_RETRY_SECONDS = 600.0  # kube-scheduler retries each of its pods within five and a half minutes


@dataclass(frozen=True, slots=True)
class UnschedulablePod:
    """A pod that was refused last at the time `at`.

    `nodes` are the nodes that refused it; None if they were more than MAX_NAMED_NODES or are unknown.
    """

    pod: PodName
    need: PodNeed
    nodes: frozenset[str] | None
    at: float


class TokenBucket:
    """A token bucket with at most `burst` tokens and `rate` new ones a second.

    The caller passes the times.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Take a token; return False if there is none."""
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now
        if self._tokens < FULL_TOKEN:
            return False
        self._tokens -= 1.0
        return True

    def next_at(self, now: float) -> float:
        """Return when the next token is available."""
        return now if self._tokens >= FULL_TOKEN else now + (1.0 - self._tokens) / self._rate


class UnschedulableQueue:
    """The refused pods in the order of waiting, updated by every response of filter.

    At most `limit` pods are kept. For others kube-scheduler's own retry remains.
    """

    def __init__(self, stale_after: float, budget: TokenBucket, limit: int = 1000) -> None:
        self._stale_after = stale_after
        self._budget = budget
        self._limit = limit
        self._pods: dict[PodName, UnschedulablePod] = {}  # the longest waiting first
        self._seen: dict[str, tuple[GpuReading, ...]] = {}  # GPUs of the nodes when they were last checked
        self._version = 0
        self._unchecked: dict[str, None] = {}  # changed nodes that were not checked because of the token bucket
        self._kinds: Counter[PodNeed] = Counter()  # of `_pods`
        self._check_all_at: float | None = None  # when to check every node, changed or not

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, pod: PodName, need: PodNeed, nodes: Sequence[str] | None, now: float) -> None:
        """Add a pod that each of `nodes` refused; None: the nodes are unknown."""
        named = nodes is not None and len(nodes) <= MAX_NAMED_NODES
        self._put(UnschedulablePod(pod, need, frozenset(nodes or ()) if named else None, now), now)

    def retry_later(self, pod: UnschedulablePod, now: float) -> None:
        """Add a pod whose retry could not be written: it is due at the next change, or after a pause."""
        self._check_all_at = now + RETRY_PAUSE_SECONDS
        if pod.pod not in self._pods:
            self._put(pod, now)

    def remove(self, pod: PodName) -> None:
        """Remove a pod that the filter accepted, or that was bound or deleted."""
        removed = self._pods.pop(pod, None)
        if removed is not None:
            self._kinds[removed.need] -= 1
            self._kinds += Counter()  # drops kinds without pods

    def _put(self, pod: UnschedulablePod, now: float) -> None:
        before = self._pods.get(pod.pod)
        if before is None and len(self._pods) >= self._limit:
            # no event reports a pod that was deleted while the scheduler asked for it
            for other in [other for other in self._pods.values() if now - other.at >= SCHEDULER_RETRY_SECONDS]:
                self.remove(other.pod)
            if len(self._pods) >= self._limit:
                return
        self._pods[pod.pod] = pod
        self._kinds.update((pod.need,))
        if before is not None:
            self._kinds.subtract((before.need,))

    def pop_due(self, views: Views, now: float) -> tuple[UnschedulablePod, ...]:
        """Remove and return the pods to retry now; a pod that is refused again is added again.

        The time is O(changed nodes x kinds of waiting pods), plus O(waiting pods) for each node with free capacity.
        Without tokens the remaining nodes are not checked.
        """
        changed = views.changed_since(self._version)
        if self._check_all_at is not None and now >= self._check_all_at:
            changed, self._check_all_at = None, None
            self._seen.clear()
        self._version = views.version
        nodes = self._unchecked | dict.fromkeys(views.names() if changed is None else changed)
        before, self._unchecked = self._unchecked, {}
        due: list[UnschedulablePod] = []
        exhausted = False
        for name in nodes:
            if not views.known(name):
                self._seen.pop(name, None)
                continue
            node = views.get(name)
            if name not in before and self._seen.get(name) is node.gpus:
                continue  # only a heartbeat, as most changes are
            self._seen[name] = node.gpus
            for pod in () if exhausted else self._fitting(node, now):
                if not self._budget.take(now):
                    exhausted = True
                    break
                self.remove(pod.pod)
                due.append(pod)
            if exhausted:
                self._unchecked[name] = None
        return tuple(due)

    def retry_at(self, now: float) -> float | None:
        """Return when to call `pop_due` next without a change; None if only a change can cause a retry."""
        if not self._pods:
            return None
        return self._budget.next_at(now) if self._unchecked else self._check_all_at

    def _fitting(self, node: NodeView, now: float) -> list[UnschedulablePod]:
        """Return the longest waiting pods that this node can run.

        They are as many trials as the node has free slots, and as many exclusive pods, which use no slot, as it has
        GPUs.
        """
        fresh = not node.stale(now, self._stale_after)
        usable = [gpu for gpu in node.gpus if gpu.health != "Unhealthy"]
        free = {False: sum(max(0, gpu.slots - gpu.trials) for gpu in usable), True: len(usable)}
        # Most often no kind fits. Then a change does not iterate over a thousand pods that need another GPU model.
        fit = {
            need
            for need in self._kinds
            if need.gpus <= free[need.exclusive] and refuse_with_freshness(need, node, fresh) is None
        }
        chosen: list[UnschedulablePod] = []
        for pod in self._pods.values() if fit else ():
            need = pod.need
            refused_here = pod.nodes is None or node.name in pod.nodes
            if refused_here and need.gpus <= free[need.exclusive] and need in fit:
                free[need.exclusive] -= need.gpus
                chosen.append(pod)
        return chosen
