"""Method `cuda-checkpoint`: the driver moves a trial's GPU memory to host memory, then the trial is frozen.

Suspend: lock all processes, checkpoint all, freeze, then verify that NVML lists no memory of the trial.
Resume: verify that enough GPU memory is free, thaw, restore all processes, unlock all.
The driver must never be called on a frozen process, because the call would block. A step that fails is undone before
the outcome is reported. If that is impossible, the state is PartlySuspended, and a later `resume` completes the work.
A process is lost if the driver reports it as FAILED, or refuses to restore it for a minute although the memory is
free. Podium then kills it, and the trial continues from its last checkpoint.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from podium_core.schema.checkpointing import CUDA_CHECKPOINT
from podium_suspension import gpu_memory
from podium_suspension.base import RESTORE_SCRATCH, SuspensionOutcome, SuspensionState, outcome_of
from podium_suspension.cuda import ProcessState
from podium_suspension.driver_calls import DriverTimeoutError, call_with_timeout
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_memory import GpuMemory, GPUMemoryUnknownError, read_memory, restore_impossible
from podium_suspension.gpu_state_notes import GpuStateNotes, gpu_pairs, note_after_restore
from podium_suspension.processes import (
    LOST,
    QUERY_SECONDS,
    CudaProcesses,
    Step,
    StepError,
    all_pids,
    failed_process,
    in_state,
    known_pids,
)
from podium_suspension.restores import MigratedProcesses, RestoreRefusals, Targets

log = logging.getLogger(__name__)

NO_GPU_MAP: Mapping[str, str] = {}  # restore every process on its own GPUs
REGISTRATION_SECONDS = 2.0  # time for a migrated process to register with the driver
# Code: some processes that shall be restored on other GPUs still run. It does not come from the driver.
PROCESSES_NOT_SUSPENDED = "ProcessesNotSuspended"
_DRIVER_ERRORS = (OSError, DriverTimeoutError, GPUMemoryUnknownError)


class CudaCheckpoint:
    """Method that checkpoints the CUDA processes of a trial before it freezes them.

    A trial without notes is resumed by `freeze`. `memory` is called in a thread.
    """

    name = CUDA_CHECKPOINT

    def __init__(
        self,
        processes: CudaProcesses,
        freeze: Freeze,
        notes: GpuStateNotes,
        memory: Callable[[], GpuMemory] = read_memory,
    ) -> None:
        self._processes = processes
        self._freeze = freeze
        self._notes = notes
        self._memory = memory
        self._migrated = MigratedProcesses(processes, notes)
        self._refusals = RestoreRefusals()

    async def suspend(self, targets: Targets) -> SuspensionOutcome:
        """Checkpoint and freeze all processes of the trial, or let all of them run again."""
        begin, pids = time.monotonic(), known_pids(targets)
        try:
            outcome = await self._suspend(targets)
        except _DRIVER_ERRORS as error:
            outcome = _outcome_of(error)
        except BaseException:  # cancelled, or an unexpected error
            await self._undo_suspension(targets)
            raise
        if not outcome.ok:
            left = await self._undo_suspension(targets)
            outcome = replace(outcome, message=f"{outcome.message}; {left or 'the trial runs again'}")
        self._migrated.pause(targets)
        return replace(outcome, seconds=time.monotonic() - begin, ended=self._processes.take_ended(pids))

    async def _suspend(self, targets: Targets) -> SuspensionOutcome:
        if await self._is_already_suspended(targets):
            return SuspensionOutcome(True, 0.0, "Frozen")
        states = await self._processes.states_of(targets)
        error = self._processes.pending_call(states) or failed_process(states)
        if error is not None:
            return SuspensionOutcome(False, 0.0, error.code, error.message)
        if not states:  # the trial does not use its GPU now: no memory to move
            return await self._freeze.suspend(targets)
        before = await self._read_memory()
        before.check_processes(in_state(states, ProcessState.RUNNING, ProcessState.LOCKED))
        full = restore_impossible(before, all_pids(targets))
        if full is not None:
            return SuspensionOutcome(False, 0.0, "InsufficientRestoreMemory", full)
        self._record_current_gpus(targets, states)
        self._note(targets, states, before)
        error = await self._lock_and_checkpoint(states)
        if error is not None:
            return SuspensionOutcome(False, 0.0, error.code, error.message)
        await self._processes.wait_for_exits(targets)
        if not (frozen := await self._freeze.suspend(targets)).ok:
            return frozen
        after = await self._read_memory()
        after.check_gpus(before.held_by(all_pids(targets)))
        left = after.held_by(all_pids(targets))
        if left:
            uuid, count = max(left.items(), key=lambda item: item[1])
            return SuspensionOutcome(
                False, 0.0, "GPUMemoryNotReleased", f"{count} bytes of GPU {uuid} are still held after a checkpoint"
            )
        self._set_target_gpus(targets, NO_GPU_MAP)
        return SuspensionOutcome(True, 0.0, "Checkpointed", freed=sum(self._held(targets).values()))

    async def _lock_and_checkpoint(self, states: Mapping[int, ProcessState]) -> StepError | None:
        """Lock all processes, then checkpoint all; return the first error, or None."""
        for step, begun in (
            (Step.LOCK, (ProcessState.RUNNING,)),
            (Step.CHECKPOINT, (ProcessState.RUNNING, ProcessState.LOCKED)),
        ):
            error = await self._processes.run_step(step, in_state(states, *begun))
            if error is not None:
                return error
        return None

    async def resume(self, targets: Targets, gpu_map: Mapping[str, str] = NO_GPU_MAP) -> SuspensionOutcome:
        """Restore and thaw the trial.

        `gpu_map` maps each of its GPUs (UUID) to the GPU of the same product that replaces it (driver 580 and newer).
        If the driver moves some processes and refuses others, all are checkpointed again and the notes record the
        GPUs of each. The next resume, with or without a map, brings them together. A resume that was started and could
        not be undone is completed on its original target GPUs, whatever `gpu_map` contains.
        """
        begin, pids = time.monotonic(), known_pids(targets)
        try:
            outcome = await self._resume(targets, gpu_map)
        except _DRIVER_ERRORS as error:
            outcome = _outcome_of(error)
        return replace(outcome, seconds=time.monotonic() - begin, ended=self._processes.take_ended(pids))

    async def _resume(self, targets: Targets, gpu_map: Mapping[str, str]) -> SuspensionOutcome:
        if all(home == to for home, to in gpu_map.items()):
            gpu_map = NO_GPU_MAP
        gpu_map = self._target_gpus(targets) or gpu_map
        refused = self._check_gpu_map(targets, gpu_map) if gpu_map else None
        if refused is not None:
            return refused
        if not self._has_note(targets):
            return await self._freeze.resume(targets)
        if self._is_migrating(targets):
            return SuspensionOutcome(
                False, 0.0, "MigrationInProgress", "a live migration of the trial is in progress; it remains suspended"
            )
        if await self._is_already_restored(targets):
            self._remove_notes(targets)
            return SuspensionOutcome(True, 0.0, "Thawed")
        shortage = await self._memory_shortage(targets, gpu_map)
        if shortage is not None:
            return SuspensionOutcome(False, 0.0, "InsufficientGPUMemory", f"{shortage}; the trial remains suspended")
        thawed = await self._freeze.resume(targets)
        if not thawed.ok:
            return thawed
        error = await self._restore(targets, gpu_map)
        if error is None:
            return SuspensionOutcome(True, 0.0, "Moved" if gpu_map else "Thawed")
        is_refused = not error.pending and error.code == f"{Step.RESTORE}Refused"
        lost = self._refusals.lost(target.name for target in targets) if is_refused else ""
        if lost:
            error = StepError(LOST, f"{error.message}; {lost}")
        elif is_refused or error.code == PROCESSES_NOT_SUSPENDED:
            await self._suspend_again(targets)
        if error.code == LOST:
            await self._kill(targets)
        return SuspensionOutcome(False, 0.0, error.code, error.message)

    def suspension_state(self, targets: Targets) -> SuspensionState:
        """Return the state of the trial's processes.

        A running trial with a note is partly suspended: between the first and the last step of a suspension.
        """
        state = self._freeze.suspension_state(targets)
        if state is SuspensionState.GONE:
            self._remove_notes(targets)
        elif self._is_migrating(targets):
            return SuspensionState.SUSPENDED  # even if thawed, it blocks at its next CUDA call
        unfinished = state is SuspensionState.RUNNING and self._has_note(targets)
        return SuspensionState.PARTLY_SUSPENDED if unfinished else state

    async def _is_already_suspended(self, targets: Targets) -> bool:
        """Return whether all is frozen; thaw a partly frozen trial, which the driver cannot move."""
        state = self._freeze.suspension_state(targets)
        if state is SuspensionState.PARTLY_SUSPENDED:
            await self._freeze.resume(targets)
        return state is SuspensionState.SUSPENDED

    async def _is_already_restored(self, targets: Targets) -> bool:
        """Return whether an earlier agent already restored this migrated trial.

        Every agent notes the migration again when it starts. The trial may have less memory and fewer processes by now.
        """
        is_migrated = any(self._notes.read(target.name).gpu_map for target in targets)
        if not is_migrated or self._freeze.suspension_state(targets) is not SuspensionState.RUNNING:
            return False
        return set((await self._processes.states_of(targets)).values()) == {ProcessState.RUNNING}

    def _note(self, targets: Targets, states: Mapping[int, ProcessState], memory: GpuMemory) -> None:
        """Note the memory that each container is about to release.

        If some of its processes are checkpointed already, the note exists; processes that allocated more since then are
        noted again. The exception is a trial split across GPUs, whose processes must agree on their home GPUs.
        """
        off = in_state(states, ProcessState.CHECKPOINTED)
        for target in targets:
            name = target.name
            here, note = target.processes() & states.keys(), self._notes.read(name)
            checkpointed = here.intersection(off)
            if here and not ((checkpointed or (off and note.is_split)) and self._notes.has(name)):
                self._notes.write_held(
                    name, memory.held_by(here), {pid: memory.held[pid] for pid in here & memory.held.keys()}
                )
            elif checkpointed and not note.is_split and checkpointed <= note.held_by_process.keys():
                held_by_process = {
                    pid: gpu_memory.larger_counts(note.held_by_process.get(pid, {}), memory.held.get(pid, {}))
                    for pid in here
                }
                held = GpuMemory(held_by_process, {}).held_by(here)
                update = {"held": held, "held_by_process": held_by_process}
                self._notes.write(name, note.model_copy(update=update))

    def _check_gpu_map(self, targets: Targets, gpu_map: Mapping[str, str]) -> SuspensionOutcome | None:
        noted = self._held(targets)
        unnamed = sorted(noted.keys() - gpu_map.keys())
        if unnamed or not noted:
            message = f"the map names no GPU for {unnamed[0]}" if unnamed else "the trial's memory is on its GPUs"
            return SuspensionOutcome(False, 0.0, "GPUMapIncomplete", f"{message}; the trial remains suspended")
        if len({gpu_map[home] for home in noted}) < len(noted):
            message = "the map names one GPU for two of the trial's GPUs"
            return SuspensionOutcome(False, 0.0, "GPUMapIncomplete", f"{message}; the trial remains suspended")
        return None

    async def _memory_shortage(self, targets: Targets, gpu_map: Mapping[str, str] = NO_GPU_MAP) -> str | None:
        """Return a message that names a GPU without enough free memory for the restore; None if there is none."""
        needed = self._held(targets)
        if not needed:
            return None
        memory = await self._read_memory()
        held = memory.held_by(all_pids(targets))
        if sum(held.values()) >= sum(needed.values()):
            return None  # everything is restored, on whichever GPUs
        memory.check_gpus(gpu_map.get(uuid, uuid) for uuid in needed)
        for uuid, count in sorted((gpu_map.get(uuid, uuid), count) for uuid, count in needed.items()):
            missing, free = count - held.get(uuid, 0), memory.free.get(uuid, 0)
            if missing > 0 and missing + RESTORE_SCRATCH > free:
                return f"GPU {uuid} has {free} bytes free, and the restore needs {missing + RESTORE_SCRATCH}"
        return None

    async def _restore(self, targets: Targets, gpu_map: Mapping[str, str]) -> StepError | None:
        """Restore all processes, then unlock all, from whichever state each of them is in."""
        states = await self._migrated.wait(targets, REGISTRATION_SECONDS)
        if isinstance(states, StepError):
            return states
        error = self._processes.pending_call(states)
        back = in_state(states, ProcessState.RUNNING, ProcessState.LOCKED)
        if error is None and gpu_map and back and not self._target_gpus(targets):
            error = StepError(
                PROCESSES_NOT_SUSPENDED, f"process {min(back)} is on its own GPUs; it must be suspended again first"
            )
        if error is None:
            self._set_target_gpus(targets, gpu_map)  # the next agent must know where the processes are
            error = await self._restore_and_unlock(targets, states, gpu_map)
        if error is None:
            self._remove_notes(targets)
        return error

    async def _restore_and_unlock(
        self, targets: Targets, states: Mapping[int, ProcessState], gpu_map: Mapping[str, str] = NO_GPU_MAP
    ) -> StepError | None:
        error = failed_process(states)
        for step, begun in (
            (Step.RESTORE, (ProcessState.CHECKPOINTED,)),
            (Step.UNLOCK, (ProcessState.CHECKPOINTED, ProcessState.LOCKED)),
        ):
            if error is None:
                asked = [pid for pid in in_state(states, *begun) if self._processes.pending_call([pid]) is None]
                error = await self._processes.run_step(step, asked, self._gpu_maps(targets, asked, gpu_map))
                if error is not None:
                    error = failed_process(await self._processes.states_of(targets)) or error
        return error

    def _gpu_maps(
        self, targets: Targets, pids: Iterable[int], gpu_map: Mapping[str, str]
    ) -> Mapping[int, Mapping[str, str]]:
        """Return the driver's map of each process, from its old GPUs, which may be another node's."""
        notes = [(target.processes(), self._notes.read(target.name)) for target in targets]
        return {pid: gpu_pairs(note, pid, gpu_map) for here, note in notes for pid in here.intersection(pids)}

    def _target_gpus(self, targets: Targets) -> Mapping[str, str]:
        """Return the GPU map of an unfinished resume."""
        return {home: to for target in targets for home, to in self._notes.read(target.name).target_gpus.items()}

    def _set_target_gpus(self, targets: Targets, gpu_map: Mapping[str, str]) -> None:
        """Note the GPU map before the first restore; an empty map means that all processes are off their GPUs."""
        for target in targets:
            note = self._notes.read(target.name)
            if self._notes.has(target.name) and note.target_gpus != gpu_map:
                self._notes.write(target.name, note.model_copy(update={"target_gpus": dict(gpu_map)}))

    def _record_current_gpus(self, targets: Targets, states: Mapping[int, ProcessState]) -> None:
        """Note that the restored processes are on the target GPUs, before they are checkpointed again."""
        for target in targets:
            note = self._notes.read(target.name)
            back = target.processes().intersection(in_state(states, ProcessState.RUNNING, ProcessState.LOCKED))
            if back and note.held:
                self._notes.write(target.name, note_after_restore(note, back, note.target_gpus))

    async def _undo_suspension(self, targets: Targets) -> str:
        """Let all processes run again after a failed suspension, as far as the driver allows.

        Returns a message about what could not be undone; empty if everything was.
        """
        self._freeze.request_thaw(targets)
        if not self._has_note(targets):
            return ""
        try:
            await self._freeze.resume(targets)
            gpu_map = self._target_gpus(targets)
            states = await self._processes.states_of(targets)
            # a process that was only locked still has its memory, perhaps less than noted, and needs none
            off = in_state(states, ProcessState.CHECKPOINTED)
            shortage = await self._memory_shortage(targets, gpu_map) if off else None
            if shortage is not None:
                return f"not undone yet: {shortage}"
            failed = await self._restore_and_unlock(targets, states, gpu_map) or self._processes.pending_call(states)
            if failed is None:
                self._remove_notes(targets)
                return ""
            if failed.code == LOST:
                await self._kill(targets)
            return f"not undone yet: {failed.message}"
        except _DRIVER_ERRORS as error:
            return f"not undone yet: {error}"

    async def _suspend_again(self, targets: Targets) -> None:
        """Suspend all processes again after the driver refused to restore one, which keeps its state.

        The others may be restored or even running since an earlier attempt, and may hold more memory by now.
        """
        states, memory = await self._processes.states_of(targets), await self._read_memory()
        self._record_current_gpus(targets, states)
        self._note(targets, states, memory)
        if await self._lock_and_checkpoint(states) is None:
            frozen = await self._freeze.suspend(targets)
            if frozen.ok:
                self._set_target_gpus(targets, NO_GPU_MAP)

    async def _kill(self, targets: Targets) -> None:
        """Kill all processes after the driver lost one: the work since the last checkpoint cannot be recovered."""
        for pid in await self._processes.states_of(targets):
            log.error("killing process %d: the driver has lost its trial's GPU memory", pid)
            self._processes.note_end(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def _read_memory(self) -> GpuMemory:
        return await call_with_timeout(QUERY_SECONDS, self._memory)

    def _has_note(self, targets: Targets) -> bool:
        return any(self._notes.has(target.name) for target in targets)

    def _is_migrating(self, targets: Targets) -> bool:
        return any(self._notes.read(target.name).is_migrating(time.monotonic()) for target in targets)

    def _held(self, targets: Targets) -> Mapping[str, int]:
        """Return the noted bytes by GPU, summed over all containers."""
        total: dict[str, int] = {}
        for target in targets:
            for uuid, count in self._notes.held_bytes(target.name).items():
                total[uuid] = total.get(uuid, 0) + count
        return total

    def _remove_notes(self, targets: Targets) -> None:
        self._migrated.forget(targets)
        self._refusals.forget(target.name for target in targets)
        for target in targets:
            self._notes.remove(target.name)


def _outcome_of(error: Exception) -> SuspensionOutcome:
    if isinstance(error, OSError):
        return outcome_of(error)
    code = "GPUMemoryUnknown" if isinstance(error, GPUMemoryUnknownError) else "DriverUnresponsive"
    return SuspensionOutcome(False, 0.0, code, str(error))
