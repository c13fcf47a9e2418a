"""Who works on each GPU of this node, decided from the operator's order and the trials that are here. Pure.

Called by the conductor after every change; it answers with steps, and is called again once they took effect. So it only
ever looks at what is, never at what it has said before. The rules:

- A trial holds all of its GPUs or none. GPUs are claimed in one global order (place, then name): no two trials can each
  hold what the other waits for.
- The next one is let in only when every other trial on those GPUs is verified frozen, gated or gone.
- Only a trial that could work now claims (at its gate, running or suspended): a GPU does not wait for an image pull.
- A trial that its GPU's order does not name may not work; on a GPU that the operator has not spoken of, gates stay shut
  and what runs goes on.
- A suspended trial whose pod is deleted goes first if its SIGTERM would be heard: it gets the GPU until it has ended.
  The holder is suspended for it at once. Only when its grace period is all but over and the GPU is still not free (the
  holder is just starting, could not be suspended, or may not be) is it thawed beside the holder, for what is left.
- A trial that an agent left half-stopped when it died is made whole: suspended if another is to work, else resumed. It
  is in the way already, so that puts nobody else on its GPUs.
- A trial whose job allows no method that this node has is never suspended: it works until it ends, the others wait.
- On a GPU that an urgent pod has for itself (`exclusive`), or that no lease holds (`leased`), no trial works: whoever
  does is suspended, or works until it ends. Only a last call lets a deleted one in beside it, and only one whose memory
  is still there: what was moved off would take a stranger's. That one waits, and is left with its last save.
- A trial whose GPU memory could not be free whoever were suspended for it claims no GPU, deleted or not: others work
  meanwhile.
- Of two pods of one trial only the newer may work. A pod that is over, as the API says, is left to the kubelet, and
  its GPU to it until the kernel sees no process of it; where the kubelet does not come, it is frozen. It is never
  thawed: another pod may go on with its saves by now.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from podium_agent.observe.trials import Gate, LocalTrial
from podium_core.domain.snapshot import TrialKey
from podium_core.schema.gpunode import INSUFFICIENT_GPU_MEMORY, TrialState

FINAL_CHECKPOINT_SECONDS = 10.0
# Part of a short grace period. Before it, other ending trials have the GPU, or the holder is preempted.
FINAL_CHECKPOINT_PART = 1 / 3
NOT_FREEZABLE = "its job's suspension.methods name none that this node carries out"
ORPHAN_SECONDS = 15.0  # after its grace period, in which a kubelet that works has ended what is over


@dataclass(frozen=True, slots=True)
class Entry:
    """One place in the order of a GPU."""

    key: TrialKey
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Orders:
    """The order in force on this node. A GPU without an entry is one that the operator has not spoken of. `taken`: GPUs
    that an urgent pod has for itself, with its name (empty: not known yet). `leased`: those that placeholder pods hold
    for Podium; None: all are Podium's own.
    """

    epoch: int = 0
    gpus: Mapping[str, tuple[Entry, ...]] | None = None
    released: bool = False
    taken: Mapping[str, str] = field(default_factory=dict)
    leased: Collection[str] | None = None

    def closed(self, uuid: str) -> bool:
        """No trial may work on it."""
        return uuid in self.taken or (self.leased is not None and uuid not in self.leased)

    def of(self, uuid: str) -> tuple[Entry, ...] | None:
        return None if self.gpus is None else self.gpus.get(uuid)


@dataclass(frozen=True, slots=True)
class Grant:
    """Open the gate."""

    trial: LocalTrial
    reason: str


@dataclass(frozen=True, slots=True)
class Suspend:
    trial: LocalTrial
    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    trial: LocalTrial
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done for this trial now, and why: a gate is told so."""

    trial: LocalTrial
    reason: str
    message: str


Step = Grant | Suspend | Resume | Wait


def newer(current: Orders, seen: Orders) -> Orders:
    """The order to follow: an older epoch than the one in force is ignored, but a release always counts."""
    if seen.epoch >= current.epoch:
        return seen
    return Orders(current.epoch, current.gpus, seen.released)


def decide(orders: Orders, trials: Sequence[LocalTrial], now: float) -> tuple[Step, ...]:
    """The steps to take at once, one for every trial that is not simply to go on as it is."""
    ordered = sorted(trials, key=lambda trial: (trial.key, trial.attempt, trial.pod_uid))
    if orders.released:
        return tuple(step for trial in ordered if (step := _released(trial, now)) is not None)
    holders = _holders(orders, ordered)
    return tuple(step for trial in ordered if (step := _step(orders, trial, holders, ordered, now)) is not None)


def _released(trial: LocalTrial, now: float) -> Step | None:
    if (trial.state is TrialState.SUSPENDED or trial.torn) and now >= trial.retry_at:
        return Resume(trial, "Released")
    if trial.state is TrialState.GATED:
        return Wait(trial, "Released", "this node was released (podium thaw): nothing is started here")
    return None


def _holders(orders: Orders, trials: Sequence[LocalTrial]) -> Mapping[str, LocalTrial]:
    """Greedy claims in the global order: GPU to the trial that shall work on it."""
    candidates = []
    for trial in trials:
        place = _place(orders, trial, trials)
        if place is not None:
            # of two that must end the one with less time goes first
            deadline = math.inf if trial.deadline is None else trial.deadline
            candidates.append((place, deadline, trial.key, trial))
    claimed: dict[str, LocalTrial] = {}
    for *_, trial in sorted(candidates, key=lambda candidate: candidate[:3]):
        if not any(uuid in claimed or orders.closed(uuid) for uuid in trial.gpus):
            claimed.update(dict.fromkeys(trial.gpus, trial))
    return claimed


def _place(orders: Orders, trial: LocalTrial, trials: Sequence[LocalTrial]) -> int | None:
    """The trial's place in the order (its worst over its GPUs), -1 for one that must end; None: it may not work now."""
    if not trial.gpus:
        return None
    if trial.deleting:
        return -1 if _ending(trial) and not _lacks_memory(trial) else None
    if _newer_pod(trial, trials) is not None:
        return None
    if trial.state is TrialState.GATED and trial.gate is not Gate.WAITING:
        return None
    if _lacks_memory(trial):
        return None
    places = []
    for uuid in trial.gpus:
        entries = orders.of(uuid)
        if entries is None:
            # what works on a GPU without orders goes on, what waits there waits on
            if not trial.occupies:
                return None
            places.append(0)
            continue
        keys = [entry.key for entry in entries]
        if trial.key not in keys:
            return None
        places.append(keys.index(trial.key))
    return max(places)


def _ending(trial: LocalTrial) -> bool:
    """A deleted trial that works, or that would hear its SIGTERM if it were thawed."""
    if trial.occupies:
        return True
    return trial.state is TrialState.SUSPENDED and trial.heeds_term and trial.over_since is None


def _lacks_memory(trial: LocalTrial) -> bool:
    return bool(trial.short) and trial.state in (TrialState.GATED, TrialState.SUSPENDED)


def _newer_pod(trial: LocalTrial, trials: Sequence[LocalTrial]) -> LocalTrial | None:
    """A pod of a later attempt at the same trial; the operator makes one only when this one is given up."""
    return next((other for other in trials if other.key == trial.key and other.attempt > trial.attempt), None)


def _step(
    orders: Orders, trial: LocalTrial, holders: Mapping[str, LocalTrial], trials: Sequence[LocalTrial], now: float
) -> Step | None:
    if trial.deleting:
        return _end(orders, trial, holders, trials, now)
    if not trial.gpus:
        return Wait(trial, "DevicesUnknown", "the kubelet has not said yet which GPU this pod has a share of")
    if _lacks_memory(trial):
        return Wait(trial, INSUFFICIENT_GPU_MEMORY, trial.short)
    chosen = all(holders.get(uuid) is trial for uuid in trial.gpus)
    if trial.state is TrialState.RUNNING:
        return _while_running(trial, chosen, _why_off(orders, trial, holders, trials), now)
    if trial.state not in (TrialState.GATED, TrialState.SUSPENDED):
        return None
    if not chosen:
        return _wait(orders, trial, holders, trials)
    in_the_way = _in_the_way(trial, trials)
    if in_the_way is not None:
        return _wait_for(trial, in_the_way)
    if now < trial.retry_at:
        return Wait(trial, "ResumeFailed", trial.trouble)
    why = _entry_reason(orders, trial)
    return Grant(trial, why) if trial.state is TrialState.GATED else Resume(trial, why)


def _while_running(trial: LocalTrial, chosen: bool, why_off: str, now: float) -> Step | None:
    if not chosen and trial.freezable:
        return Suspend(trial, why_off) if now >= trial.retry_at else Wait(trial, "SuspendFailed", trial.trouble)
    if trial.torn and now >= trial.retry_at:
        return Resume(trial, "PartlySuspended")
    if not chosen:
        return Wait(trial, "FreezeNotAllowed", f"{NOT_FREEZABLE}; it works until it ends or is requeued")
    return None


def _end(
    orders: Orders, trial: LocalTrial, holders: Mapping[str, LocalTrial], trials: Sequence[LocalTrial], now: float
) -> Step | None:
    """A deleted pod: what works hears its SIGTERM; what is frozen is thawed for it, alone on the GPU if it can be."""
    if trial.over_since is not None:
        overdue = now - trial.over_since >= trial.grace + ORPHAN_SECONDS
        stop = trial.state is TrialState.RUNNING and trial.freezable and overdue and now >= trial.retry_at
        return Suspend(trial, "Orphan") if stop else None
    if now < trial.retry_at or not trial.heeds_term:
        return None
    if trial.torn:
        return Resume(trial, "PartlySuspended")
    if trial.state is not TrialState.SUSPENDED:
        return None
    if trial.moved_off and any(orders.closed(uuid) for uuid in trial.gpus):
        return _wait(orders, trial, holders, trials)
    final_checkpoint = min(FINAL_CHECKPOINT_SECONDS, trial.grace * FINAL_CHECKPOINT_PART)
    if trial.deadline is not None and now >= trial.deadline - final_checkpoint:
        return Resume(trial, "FinalCheckpoint")
    if _lacks_memory(trial):
        return Wait(trial, INSUFFICIENT_GPU_MEMORY, trial.short)
    chosen = all(holders.get(uuid) is trial for uuid in trial.gpus)
    if not trial.gpus or not chosen or _in_the_way(trial, trials) is not None:
        return None
    return Resume(trial, "Deleted")


def _in_the_way(trial: LocalTrial, trials: Sequence[LocalTrial]) -> LocalTrial | None:
    """Another trial that works on one of these GPUs; one whose GPUs are not known could be on any."""
    mine = set(trial.gpus)
    for other in trials:
        if other.pod_uid != trial.pod_uid and other.occupies and (not other.gpus or mine.intersection(other.gpus)):
            return other
    return None


def _entry_reason(orders: Orders, trial: LocalTrial) -> str:
    for uuid in trial.gpus:
        for entry in orders.of(uuid) or ():
            if entry.key == trial.key:
                return entry.reason or "FirstInRunQueue"
    return "FirstInRunQueue"


def _why_off(orders: Orders, trial: LocalTrial, holders: Mapping[str, LocalTrial], trials: Sequence[LocalTrial]) -> str:
    if _newer_pod(trial, trials) is not None:
        return "Superseded"
    if any(uuid in orders.taken for uuid in trial.gpus):
        return "ExclusivePod"
    if any(orders.closed(uuid) for uuid in trial.gpus):
        return "ReservationEnded"
    for uuid in trial.gpus:
        other = holders.get(uuid)
        if other is not None and other is not trial:
            return "Ending" if other.deleting else _entry_reason(orders, other)
    return "NotInRunQueue"


def _wait_for(trial: LocalTrial, other: LocalTrial) -> Wait:
    """It is this trial's turn, but for another that still works on the GPU."""
    name, state = other.key.name, str(other.state)
    if other.over_since is not None:
        return Wait(
            trial, "SwitchInProgress", f"next on this GPU; the pod {other.pod} of {name} is over, its processes are not"
        )
    if state == TrialState.RUNNING and not other.freezable and not other.deleting:
        return Wait(trial, "HolderNotFreezable", f"{name} is at work on the GPU, and {NOT_FREEZABLE}")
    return Wait(trial, "SwitchInProgress", f"next on this GPU; {name} is still {state}")


def _wait(orders: Orders, trial: LocalTrial, holders: Mapping[str, LocalTrial], trials: Sequence[LocalTrial]) -> Wait:
    newer_pod = _newer_pod(trial, trials)
    if newer_pod is not None:
        return Wait(trial, "Superseded", f"{newer_pod.pod} is the pod of this trial now; this one waits for its end")
    for uuid in trial.gpus:
        if uuid in orders.taken:
            who = orders.taken[uuid] or "that is being admitted"
            return Wait(trial, "ExclusivePod", f"pod {who} has GPU {uuid} for itself")
        if orders.closed(uuid):
            return Wait(trial, "ReservationEnded", f"Podium does not lease GPU {uuid} now")
        entries = orders.of(uuid)
        if entries is None:
            return Wait(trial, "NoRunQueue", f"the operator has not spoken of GPU {uuid} yet")
        entry = next((entry for entry in entries if entry.key == trial.key), None)
        if entry is None:
            return Wait(trial, "NotInRunQueue", f"the order of GPU {uuid} does not name this trial")
        other = holders.get(uuid)
        if other is not None and other is not trial:
            why = entry.message or entry.reason
            return Wait(trial, "GPUInUse", f"{other.key.name} is at work on the GPU" + (f"; {why}" if why else ""))
    return Wait(trial, "GateNotConnected", "its gate has not asked yet")
