"""Local scheduler: which trial runs on each GPU of this node, decided from the run queues and the trials present. Pure.

The node reconciler calls it after every change. It answers with actions, and is called again once they took effect. It
depends only on the present state, never on its earlier answers. The rules:

- A trial holds all of its GPUs or none. GPUs are claimed in one global order (position in the run queue, then name),
  so two trials can never each hold what the other waits for.
- A trial starts or resumes only when every other trial on those GPUs is verified to be frozen, gated or gone.
- Only a trial that could run now claims its GPUs (at its gate, running or suspended): a GPU does not wait for an image
  pull.
- A trial that its GPU's run queue does not name may not run. On a GPU without a run queue gates stay closed, and
  running trials continue.
- A suspended trial whose pod is deleted comes first if it handles SIGTERM: it holds the GPU until it has ended. The
  holder is suspended for it at once. The GPU may still not be free when the grace period is nearly over: the holder is
  starting, or cannot or may not be suspended. The trial is then thawed beside the holder for the rest of the period.
- A trial whose entry is on hold may not run, even if the GPU is free: it has workers on other nodes, and not all of
  their GPUs are its own. If it runs, it is suspended.
- A trial that a dying agent left half stopped is repaired: suspended if another trial is to run, else resumed. It
  occupies its GPUs already, so the repair blocks no other trial.
- A trial whose job allows no method of this node is never suspended: it runs until it ends, and the others wait.
- No trial runs on a GPU of an exclusive pod (`exclusive_pods`) or without a GPU reservation (`reserved`): a running
  trial is suspended, or runs until it ends. The one exception is the final checkpoint of a deleted trial whose memory
  is still on the GPU. A trial whose memory was moved off would need memory of another pod: it waits, and is left with
  its last checkpoint.
- A trial claims no GPU, deleted or not, if its GPU memory would be missing whichever trials were suspended: others run
  meanwhile.
- Of two pods of one trial only the newer may run. A pod that has ended, as the API reports, is left to the kubelet; its
  GPU stays occupied until the kernel sees none of its processes. If the kubelet does not act, the pod is frozen. It is
  never thawed, because another pod may already continue from its checkpoints.
- The exception is a pod that a restarted kubelet denied while its processes run. Its next attempt waits for the agent's
  final report, so a suspended trial is thawed as if its pod were deleted, to write its last checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from podium_core.attempts.local_trial import Gate, LocalTrial
from podium_core.domain.keys import TrialKey
from podium_core.schema.gpunode import INSUFFICIENT_GPU_MEMORY, SlotState

FINAL_CHECKPOINT_SECONDS = 10.0
# Part of a short grace period. Before it, other ending trials have the GPU, or the holder is preempted.
FINAL_CHECKPOINT_PART = 1 / 3
NOT_FREEZABLE = "its job's suspension.methods name no method of this node"
ORPHAN_SECONDS = 15.0  # after its grace period; by then a working kubelet has ended the pod


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One entry of a GPU's run queue.

    `on_hold`: the trial must not run now, since GPUs of its other workers are not its own.
    """

    key: TrialKey
    reason: str = ""
    message: str = ""
    on_hold: bool = False


@dataclass(frozen=True, slots=True)
class RunQueues:
    """The run queues in force on this node; a GPU without an entry has no run queue from the operator yet.

    `exclusive_pods`: the exclusive pod of each GPU that has one (empty: not known yet). `reserved`: the GPUs that
    reservation pods hold for Podium; None: all GPUs of the node are Podium's.
    """

    epoch: int = 0
    gpus: Mapping[str, tuple[QueueEntry, ...]] | None = None
    released: bool = False
    exclusive_pods: Mapping[str, str] = field(default_factory=dict)
    reserved: Collection[str] | None = None

    def closed(self, uuid: str) -> bool:
        """Return whether this GPU is closed to trials: an exclusive pod has it, or its reservation has ended."""
        return uuid in self.exclusive_pods or (self.reserved is not None and uuid not in self.reserved)

    def of(self, uuid: str) -> tuple[QueueEntry, ...] | None:
        """Return the run queue of a GPU; None if the operator has not written one."""
        return None if self.gpus is None else self.gpus.get(uuid)


@dataclass(frozen=True, slots=True)
class Admit:
    """Open the trial's gate."""

    trial: LocalTrial
    reason: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """Suspend the trial."""

    trial: LocalTrial
    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume the trial."""

    trial: LocalTrial
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for this trial now; its gate is sent the reason."""

    trial: LocalTrial
    reason: str
    message: str


Action = Admit | Suspend | Resume | Wait


def newer(current: RunQueues, seen: RunQueues) -> RunQueues:
    """Return the run queues to follow.

    Run queues of an older epoch than the current one are ignored, but a release always counts.
    """
    if seen.epoch >= current.epoch:
        return seen
    return RunQueues(current.epoch, current.gpus, seen.released)


def decide(run_queues: RunQueues, trials: Sequence[LocalTrial], now: float) -> tuple[Action, ...]:
    """Return the actions to take now, one for every trial that does not simply continue."""
    ordered = sorted(trials, key=lambda trial: (trial.key, trial.pod.attempt, trial.pod.uid))
    if run_queues.released:
        return tuple(action for trial in ordered if (action := _released(trial, now)) is not None)
    holders = _holders(run_queues, ordered, now)
    return tuple(
        action for trial in ordered if (action := _action(run_queues, trial, holders, ordered, now)) is not None
    )


def _released(trial: LocalTrial, now: float) -> Action | None:
    if (trial.state is SlotState.SUSPENDED or trial.suspension.partial) and now >= trial.suspension.retry_at:
        return Resume(trial, "Released")
    if trial.state is SlotState.GATED:
        return Wait(trial, "Released", "this node was released (podium thaw): no trial starts here")
    return None


def _holders(run_queues: RunQueues, trials: Sequence[LocalTrial], now: float) -> Mapping[str, LocalTrial]:
    """Claim GPUs greedily in the global order; return the holder of each claimed GPU."""
    candidates = []
    for trial in trials:
        position = _queue_position(run_queues, trial, trials, now)
        if position is not None:
            # of two deleted pods the one with less time comes first
            deadline = math.inf if trial.termination.deadline is None else trial.termination.deadline
            candidates.append((position, deadline, trial.key, trial))
    claimed: dict[str, LocalTrial] = {}
    for *_, trial in sorted(candidates, key=lambda candidate: candidate[:3]):
        if not any(uuid in claimed or run_queues.closed(uuid) for uuid in trial.gpus):
            claimed.update(dict.fromkeys(trial.gpus, trial))
    return claimed


def _queue_position(run_queues: RunQueues, trial: LocalTrial, trials: Sequence[LocalTrial], now: float) -> int | None:
    """Return the worst position of the trial over its GPUs, -1 for a deleted pod, or None if it may not run."""
    if not trial.gpus:
        return None
    if trial.termination.deleting:
        return -1 if _ending(trial, trials, now) and not _lacks_memory(trial) else None
    if _newer_pod(trial, trials) is not None:
        return None
    if trial.state is SlotState.GATED and trial.gate is not Gate.WAITING:
        return None
    if _lacks_memory(trial):
        return None
    positions = []
    for uuid in trial.gpus:
        entries = run_queues.of(uuid)
        if entries is None:
            # on a GPU without a run queue, running trials continue and waiting ones wait
            if not trial.occupies:
                return None
            positions.append(0)
            continue
        position = next((number for number, entry in enumerate(entries) if entry.key == trial.key), None)
        if position is None or entries[position].on_hold:
            return None
        positions.append(position)
    return max(positions)


def _ending(trial: LocalTrial, trials: Sequence[LocalTrial], now: float) -> bool:
    """Return whether a deleted trial runs, or would handle its SIGTERM once it is thawed."""
    if trial.occupies:
        return True
    may_run = trial.termination.over_since is None or _may_checkpoint(trial, trials, now)
    return trial.state is SlotState.SUSPENDED and trial.termination.handles_sigterm and may_run


def _may_checkpoint(trial: LocalTrial, trials: Sequence[LocalTrial], now: float) -> bool:
    """Return whether a trial whose pod was denied may still write a checkpoint: no later pod reads it already."""
    return trial.termination.denied and not _overdue(trial, now) and _newer_pod(trial, trials) is None


def _overdue(trial: LocalTrial, now: float) -> bool:
    """Return whether a working kubelet would have ended the trial's pod by now."""
    end = trial.termination
    return end.over_since is not None and now - end.over_since >= end.grace + ORPHAN_SECONDS


def _lacks_memory(trial: LocalTrial) -> bool:
    return bool(trial.memory.shortage) and trial.state in (SlotState.GATED, SlotState.SUSPENDED)


def _newer_pod(trial: LocalTrial, trials: Sequence[LocalTrial]) -> LocalTrial | None:
    """Return a pod of a later attempt at the same trial.

    The operator makes one only after it gave up on this pod.
    """
    return next((other for other in trials if other.key == trial.key and other.pod.attempt > trial.pod.attempt), None)


def _action(
    run_queues: RunQueues,
    trial: LocalTrial,
    holders: Mapping[str, LocalTrial],
    trials: Sequence[LocalTrial],
    now: float,
) -> Action | None:
    if trial.termination.deleting:
        return _end(run_queues, trial, holders, trials, now)
    if not trial.gpus:
        return Wait(trial, "DevicesUnknown", "the kubelet has not reported yet on which GPU this pod has a slot")
    if _lacks_memory(trial):
        return Wait(trial, INSUFFICIENT_GPU_MEMORY, trial.memory.shortage)
    chosen = all(holders.get(uuid) is trial for uuid in trial.gpus)
    if trial.state is SlotState.RUNNING:
        return _while_running(trial, chosen, _suspend_reason(run_queues, trial, holders, trials), now)
    if trial.state not in (SlotState.GATED, SlotState.SUSPENDED):
        return None
    if not chosen:
        return _wait(run_queues, trial, holders, trials)
    in_the_way = _in_the_way(trial, trials)
    if in_the_way is not None:
        return _wait_for(trial, in_the_way)
    if now < trial.suspension.retry_at:
        return Wait(trial, "ResumeFailed", trial.suspension.trouble)
    why = _entry_reason(run_queues, trial)
    return Admit(trial, why) if trial.state is SlotState.GATED else Resume(trial, why)


def _while_running(trial: LocalTrial, chosen: bool, suspend_reason: str, now: float) -> Action | None:
    suspension = trial.suspension
    if not chosen and trial.freezable:
        if now < suspension.retry_at:
            return Wait(trial, "SuspendFailed", suspension.trouble)
        return Suspend(trial, suspend_reason)
    if suspension.partial and now >= suspension.retry_at:
        return Resume(trial, "PartlySuspended")
    if not chosen:
        return Wait(trial, "FreezeNotAllowed", f"{NOT_FREEZABLE}; it runs until it ends or is requeued")
    return None


def _end(
    run_queues: RunQueues,
    trial: LocalTrial,
    holders: Mapping[str, LocalTrial],
    trials: Sequence[LocalTrial],
    now: float,
) -> Action | None:
    """Decide for a deleted pod: a frozen trial is thawed to receive its SIGTERM, alone on the GPU if possible."""
    end, suspension = trial.termination, trial.suspension
    if end.over_since is not None and not _may_checkpoint(trial, trials, now):
        late = trial.state is SlotState.RUNNING and _overdue(trial, now)
        stop = late and trial.freezable and now >= suspension.retry_at
        return Suspend(trial, "Orphan") if stop else None
    if now < suspension.retry_at or not end.handles_sigterm:
        return None
    if suspension.partial:
        return Resume(trial, "PartlySuspended")
    if trial.state is not SlotState.SUSPENDED:
        return None
    if trial.memory.is_checkpointed and any(run_queues.closed(uuid) for uuid in trial.gpus):
        return _wait(run_queues, trial, holders, trials)
    final_checkpoint = min(FINAL_CHECKPOINT_SECONDS, end.grace * FINAL_CHECKPOINT_PART)
    if end.deadline is not None and now >= end.deadline - final_checkpoint:
        return Resume(trial, "FinalCheckpoint")
    if _lacks_memory(trial):
        return Wait(trial, INSUFFICIENT_GPU_MEMORY, trial.memory.shortage)
    chosen = all(holders.get(uuid) is trial for uuid in trial.gpus)
    if not trial.gpus or not chosen or _in_the_way(trial, trials) is not None:
        return None
    return Resume(trial, "Deleted" if end.over_since is None else "Denied")


def _in_the_way(trial: LocalTrial, trials: Sequence[LocalTrial]) -> LocalTrial | None:
    """Return another trial that occupies one of these GPUs; one whose GPUs are not known could be on any."""
    mine = set(trial.gpus)
    for other in trials:
        if other.pod.uid != trial.pod.uid and other.occupies and (not other.gpus or mine.intersection(other.gpus)):
            return other
    return None


def _entry_reason(run_queues: RunQueues, trial: LocalTrial) -> str:
    for uuid in trial.gpus:
        entry = _entry(run_queues, uuid, trial)
        if entry is not None:
            return entry.reason or "FirstInRunQueue"
    return "FirstInRunQueue"


def _entry(run_queues: RunQueues, uuid: str, trial: LocalTrial) -> QueueEntry | None:
    return next((entry for entry in run_queues.of(uuid) or () if entry.key == trial.key), None)


def _suspend_reason(
    run_queues: RunQueues, trial: LocalTrial, holders: Mapping[str, LocalTrial], trials: Sequence[LocalTrial]
) -> str:
    if _newer_pod(trial, trials) is not None:
        return "Superseded"
    if any(uuid in run_queues.exclusive_pods for uuid in trial.gpus):
        return "ExclusivePod"
    if any(run_queues.closed(uuid) for uuid in trial.gpus):
        return "ReservationEnded"
    for uuid in trial.gpus:
        other = holders.get(uuid)
        if other is not None and other is not trial:
            return "Ending" if other.termination.deleting else _entry_reason(run_queues, other)
    on_hold = any(entry.on_hold for uuid in trial.gpus if (entry := _entry(run_queues, uuid, trial)) is not None)
    return "WaitingForAllGPUs" if on_hold else "NotInRunQueue"


def _wait_for(trial: LocalTrial, other: LocalTrial) -> Wait:
    """Let a trial wait that is next, because another one still occupies the GPU."""
    name, state = other.key.name, str(other.state)
    if other.termination.over_since is not None:
        return Wait(
            trial,
            "SwitchInProgress",
            f"next on this GPU; pod {other.pod.name} of {name} has ended, but its processes still run",
        )
    if state == SlotState.RUNNING and not other.freezable and not other.termination.deleting:
        return Wait(trial, "HolderNotFreezable", f"{name} holds the GPU, and {NOT_FREEZABLE}")
    return Wait(trial, "SwitchInProgress", f"next on this GPU; {name} is still {state}")


def _wait(
    run_queues: RunQueues, trial: LocalTrial, holders: Mapping[str, LocalTrial], trials: Sequence[LocalTrial]
) -> Wait:
    newer_pod = _newer_pod(trial, trials)
    if newer_pod is not None:
        return Wait(trial, "Superseded", f"{newer_pod.pod.name} has replaced this pod; this one waits to be deleted")
    for uuid in trial.gpus:
        if uuid in run_queues.exclusive_pods:
            pod = run_queues.exclusive_pods[uuid] or "that is being admitted"
            return Wait(trial, "ExclusivePod", f"exclusive pod {pod} holds GPU {uuid}")
        if run_queues.closed(uuid):
            return Wait(trial, "ReservationEnded", f"Podium has no reservation of GPU {uuid} now")
        entries = run_queues.of(uuid)
        if entries is None:
            return Wait(trial, "NoRunQueue", f"the operator has not written a run queue for GPU {uuid} yet")
        entry = _entry(run_queues, uuid, trial)
        if entry is None:
            return Wait(trial, "NotInRunQueue", f"the run queue of GPU {uuid} does not name this trial")
        other = holders.get(uuid)
        if other is not None and other is not trial:
            why = entry.message or entry.reason
            return Wait(trial, "GPUInUse", f"{other.key.name} holds the GPU" + (f"; {why}" if why else ""))
        if entry.on_hold:
            message = entry.message or "not all GPUs of its workers are its own yet"
            return Wait(trial, "WaitingForAllGPUs", message)
    return Wait(trial, "GateNotConnected", "its gate has not connected yet")
