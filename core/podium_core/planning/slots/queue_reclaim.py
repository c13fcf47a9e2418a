"""Slot reclaim between queues: which pods release their slots to a queue that has fewer by weight.

A queue may come when others have filled all slots. It then gets slots of the queues with the most slots by weight, as
long as each of those still has more afterwards. So a queue keeps its last slot, and no slot goes back and forth: each
move brings the queues closer to each other. Trials that can get no GPU now, because their user has suspended them or
their queue has no GPU for them, release theirs first and in any case.

Only trials that wait release a slot, and only if they lose no work (`slot_reclaim`). A trial of several GPUs needs
slots on one node at a time: no slot is reclaimed for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from podium_core.domain.actions import Requeue
from podium_core.domain.fitting import fits
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import FINAL
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.planning.completion import Closing
from podium_core.planning.queues.queue_rules import QueueRules
from podium_core.planning.queues.slot_limits import QueueSlots
from podium_core.planning.ranking import Standing
from podium_core.planning.slots.pod_quota import PodQuota
from podium_core.planning.slots.reclaimable_slots import Reclaimable, missing_pods, reclaimable_slots
from podium_core.planning.slots.slot_reclaim import SlotReclaims


def reclaim_between_queues(
    snapshot: Snapshot,
    standings: Mapping[TrialKey, Standing],
    claims: Collection[TrialKey],
    quotas: Mapping[JobKey, PodQuota],
    closing: Closing,
    rules: QueueRules,
) -> SlotReclaims:
    """Return the requeues that free slots for queues with fewer by weight.

    `claims`: trials that are to hold their GPUs now. While a job finds no slot: O(n log n), and for each such queue
    O(n + GPUs * jobs + slots * queues).
    """
    takers: dict[str, list[JobView]] = {}
    for job in snapshot.jobs:
        quota = quotas.get(job.key)
        if quota is not None and quota.reason == "NoFreeSlot" and job.gpus.per_trial == 1:
            takers.setdefault(rules.queue_of[job.key], []).append(job)
    if not takers or len(rules.queues) == 1:
        return SlotReclaims({})
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    slots = _slots(snapshot, quotas, closing, rules)
    found = reclaimable_slots(snapshot, standings, claims, rules.queue_of, gpus)
    ending = [uuid for trial in snapshot.trials if _frees_slots(trial, closing) for uuid in trial.gpus if uuid in gpus]
    requeues: dict[TrialKey, Requeue] = {}
    wakes: list[float] = []
    for name in sorted(takers, key=lambda n: (slots.order_of(n, slots.used[n]), n)):
        wanted = sum(missing_pods(job, quotas[job.key], closing, snapshot.now) for job in takers[name])
        wanted = min(wanted, slots.room(name))
        taking = _Taking(name, slots, rules, _suits(takers[name], gpus), ending, requeues)
        taking.offer(found)
        for _ in range(wanted):
            if not taking.take_ending() and not taking.take_from_trial():
                wakes += [at for giver in taking.givers() if giver in found for at, _ in found[giver].kept]
                break
    return SlotReclaims(requeues, min(wakes, default=None))


@dataclass(slots=True)
class _Taking:
    """Slots that the queue `name` takes.

    - `ending`: GPUs of pods that end anyway, one entry for each slot
    - `requeues`: of all queues that take slots
    - `waiting`: by queue, trials that could release their slots, the first one last
    - `without_gpu`: trials of all other queues that can get no GPU now
    """

    name: str
    slots: QueueSlots
    rules: QueueRules
    suits: Callable[[str], bool]
    ending: list[str]
    requeues: dict[TrialKey, Requeue]
    waiting: dict[str, list[Standing]] = field(default_factory=dict)
    without_gpu: list[Standing] = field(default_factory=list)

    def offer(self, found: Mapping[str, Reclaimable]) -> None:
        """Note the trials of other queues whose slots suit."""
        for giver, theirs in found.items():
            if giver == self.name:
                continue
            mine = self.waiting[giver] = []
            for standing in theirs.free:
                trial = standing.trial
                if trial.key not in self.requeues and any(map(self.suits, trial.gpus)):
                    (self.without_gpu if self._gets_no_gpu(standing) else mine).append(standing)
            mine.reverse()

    def take_ending(self) -> bool:
        """Take the slot of a pod that ends anyway, and return whether there was one."""
        position = next((at for at, uuid in enumerate(self.ending) if self.suits(uuid)), None)
        if position is None:
            return False
        del self.ending[position]
        self.slots.used[self.name] += 1
        return True

    def take_from_trial(self) -> bool:
        """Let a trial release its slots, take one of them, and return whether there was one."""
        victim = self.without_gpu.pop(0) if self.without_gpu else self._victim()
        if victim is None:
            return False
        giver = self.rules.queue_of[victim.job.key]
        text = f"Queue {self.name} has fewer slots by weight than queue {giver}: this trial continues later."
        if self._gets_no_gpu(victim):
            text = f"Queue {self.name} has too few slots, and this trial can get no GPU now: it continues later."
        self.requeues[victim.trial.key] = Requeue(victim.trial.key, "SlotReclaimed", text)
        self.slots.used[giver] -= len(victim.trial.gpus)
        self.ending += victim.trial.gpus
        return self.take_ending()

    def _victim(self) -> Standing | None:
        """Return the next trial whose queue still has more slots by weight afterwards."""
        for giver in self.givers():
            mine = self.waiting.get(giver, [])
            while mine:
                victim = mine.pop()
                if self._left(giver, len(victim.trial.gpus)) > self._mine:
                    return victim
        return None

    def givers(self) -> list[str]:
        """Return the queues that have more slots by weight, also with one less; the one with the most first."""
        orders = {queue: self._left(queue, 1) for queue in self.rules.queues if queue != self.name}
        return sorted((q for q, order in orders.items() if order > self._mine), key=lambda q: (-orders[q], q))

    @property
    def _mine(self) -> float:
        return self.slots.order_of(self.name, self.slots.used[self.name])

    def _left(self, queue: str, less: int) -> float:
        """Return the slots by weight of a queue that has some less."""
        return self.slots.order_of(queue, self.slots.used[queue] - less)

    def _gets_no_gpu(self, standing: Standing) -> bool:
        return standing.suspended_by_user or standing.job.key in self.rules.obstacles


def _slots(snapshot: Snapshot, quotas: Mapping[JobKey, PodQuota], closing: Closing, rules: QueueRules) -> QueueSlots:
    """Return the slots of each queue: those of its pods that stay, and of those that are created now."""
    with_pod = {key: [trial for trial in live if trial.pod is not None] for key, live in closing.live.items()}
    staying = [trial for mine in with_pod.values() for trial in mine if not trial.ends_soon]
    slots = QueueSlots(rules, snapshot, staying)
    for job in snapshot.jobs:
        if job.key in quotas:
            slots.take(job, quotas[job.key].pods - len(with_pod.get(job.key, ())))
    return slots


def _frees_slots(trial: TrialView, closing: Closing) -> bool:
    """Return whether its pod ends soon, whatever is decided now."""
    if trial.pod is None or trial.termination_overdue:
        return False
    return trial.ends_soon or trial.key in closing.trials or trial.phase in FINAL


def _suits(jobs: Collection[JobView], gpus: Mapping[str, GpuView]) -> Callable[[str], bool]:
    """Return a function that says whether a trial of one of the jobs fits a GPU."""
    known: dict[str, bool] = {}

    def suits(uuid: str) -> bool:
        if uuid not in known:
            known[uuid] = uuid in gpus and any(fits(job, gpus[uuid]) for job in jobs)
        return known[uuid]

    return suits
