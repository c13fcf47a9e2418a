"""Slots that the pods of each queue may take, so that the others find some when they need their GPUs.

A queue may have its nominal share of all slots. It may have one slot of each GPU in any case, so that it can use all
GPUs while no other queue needs them, but no more than its quota can use.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from podium_core.domain.keys import JobKey
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.planning.queues.fair_shares import nominal_gpus
from podium_core.planning.queues.queue_rules import QueueRules


class QueueSlots:
    """Slots of each queue while pods are handed out: those it has, its share and its limit."""

    def __init__(self, rules: QueueRules, snapshot: Snapshot, with_pod: Iterable[TrialView]) -> None:
        self._rules = rules
        self.share, self.limit = _shares_and_limits(rules, snapshot)
        self.used = dict.fromkeys(rules.queues, 0)
        self._by_namespace: Counter[tuple[str, str]] = Counter()
        widths = {job.key: job.gpus.per_trial for job in snapshot.jobs}
        for trial in with_pod:
            if trial.job in rules.queue_of:
                self._count(trial.job, widths[trial.job])

    def order(self, job: JobView) -> float:
        """Return the sort key of the job's queue: the one with the fewest slots by weight comes first."""
        name = self._rules.queue_of[job.key]
        return self.order_of(name, self.used[name])

    def order_of(self, name: str, used: int) -> float:
        """Return the sort key of a queue with this many slots."""
        queue = self._rules.queues[name]
        return 0.0 if used < queue.minimum else used / queue.weight

    def of_namespace(self, job: JobView) -> int:
        """Return the slots of the job's namespace in its queue: the namespaces of a queue are equals."""
        return self._by_namespace[self._rules.queue_of[job.key], job.key.namespace]

    def take(self, job: JobView, pods: int = 1) -> None:
        """Count more pods of the job."""
        self._count(job.key, pods * job.gpus.per_trial)

    def _count(self, job: JobKey, slots: int) -> None:
        queue = self._rules.queue_of[job]
        self.used[queue] += slots
        self._by_namespace[queue, job.namespace] += slots

    def room(self, name: str) -> int:
        """Return how many slots more the queue may have; one if it has none."""
        used = self.used[name]
        return max(0 if used else 1, self.limit[name] - used)

    def refusal(self, job: JobView) -> tuple[str, str] | None:
        """Return why the job may have no other pod, None if it may."""
        obstacle = self._rules.obstacles.get(job.key)
        if obstacle is not None:
            return obstacle
        name, need = self._rules.queue_of[job.key], job.gpus.per_trial
        used, limit = self.used[name], self.limit[name]
        if need == 0 or used == 0 or used + need <= limit:
            return None
        return "QueueSlotsReached", f"Queue {name} has {used} slots and may have {limit}; the others are kept free."


def _shares_and_limits(rules: QueueRules, snapshot: Snapshot) -> tuple[Mapping[str, int], Mapping[str, int]]:
    gpus, slots = len(snapshot.gpus), sum(gpu.slots for gpu in snapshot.gpus)
    each = slots / gpus if gpus else 0.0
    queues = list(rules.queues.values())
    share, limit = {}, {}
    for queue, nominal in zip(queues, nominal_gpus(queues, gpus), strict=True):
        most = gpus if queue.most is None else min(gpus, queue.most)
        share[queue.name] = math.ceil(each * nominal - 1e-9)
        limit[queue.name] = max(share[queue.name], min(gpus, math.ceil(each * most)))
    return share, limit
