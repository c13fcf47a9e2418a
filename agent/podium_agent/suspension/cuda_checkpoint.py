"""Method `cuda-checkpoint`: the driver moves what a trial holds on its GPUs to host memory, then the trial is frozen.

Out: lock all > checkpoint all > freeze, then the proof: NVML lists no byte of any process of the trial. In: the memory
is free, thaw > restore all > unlock all. Never a driver call on a frozen process: it would wait for ever. A step that
fails is undone before the outcome is told; what was not undone is PartlySuspended, and `resume` makes it whole.
A process that the driver calls FAILED, or refuses to restore for a minute with the memory free, is lost for good: it is
killed, and the trial goes on from its last save.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from podium_agent.observe.cgroups import Freezer
from podium_agent.suspension.base import RESTORE_SCRATCH, Outcome, Standing
from podium_agent.suspension.cuda import ProcessState
from podium_agent.suspension.driver_calls import GivenUpError, give_up_after
from podium_agent.suspension.freeze import Freeze
from podium_agent.suspension.gpu_maps import pairs, restored
from podium_agent.suspension.memory import GpuMemory, GPUMemoryUnknownError, read_memory
from podium_agent.suspension.parked_memory import Parked
from podium_agent.suspension.processes import LOOK_SECONDS, LOST, CudaProcesses, Step, Trouble
from podium_agent.suspension.refusals import Refusals
from podium_agent.suspension.restores import Arrivals

log = logging.getLogger(__name__)

Targets = tuple[Freezer, ...]
NOWHERE: Mapping[str, str] = {}  # no other GPU: back to where it was
ARRIVE_SECONDS = 2.0  # until the driver knows a process that was just brought here: it learns of it from itself
# Code: some processes that are to be resumed on other GPUs still run. Not a refusal of the driver.
PROCESSES_NOT_SUSPENDED = "ProcessesNotSuspended"
_TROUBLES = (OSError, GivenUpError, GPUMemoryUnknownError)


class CudaCheckpoint:
    """`memory` is read in a thread. A trial that has nothing in `parked` is left to `freeze` in all but `suspend`."""

    name = "cuda-checkpoint"

    def __init__(
        self, processes: CudaProcesses, freeze: Freeze, parked: Parked, memory: Callable[[], GpuMemory] = read_memory
    ) -> None:
        self._processes = processes
        self._freeze = freeze
        self._parked = parked
        self._memory = memory
        self._arrivals = Arrivals(processes, parked)
        self._refusals = Refusals()

    async def suspend(self, targets: Targets) -> Outcome:
        begin = time.monotonic()
        try:
            outcome = await self._suspend(targets)
        except _TROUBLES as error:
            outcome = _refusal(error)
        except BaseException:  # cancelled, or what nobody has thought of
            await self._go_back(targets)
            raise
        if not outcome.ok:
            left = await self._go_back(targets)
            outcome = replace(outcome, message=f"{outcome.message}; {left or 'it works again'}")
        self._arrivals.pause(targets)
        return replace(outcome, seconds=time.monotonic() - begin)

    async def _suspend(self, targets: Targets) -> Outcome:
        if await self._is_parked_already(targets):
            return Outcome(True, 0.0, "Frozen")
        states = await self._processes.of(targets)
        trouble = self._processes.waiting_for(states) or _failed(states)
        if trouble is not None:
            return Outcome(False, 0.0, trouble.code, trouble.message)
        if not states:  # it does not use its GPU now: there is nothing to move
            return await self._freeze.suspend(targets)
        before = await self._read_memory()
        full = _no_way_back(before, _everyone(targets))
        if full is not None:
            return Outcome(False, 0.0, "InsufficientRestoreMemory", full)
        self._settle(targets, states)
        self._note(targets, states, before)
        trouble = await self._take_off(states)
        if trouble is not None:
            return Outcome(False, 0.0, trouble.code, trouble.message)
        frozen = await self._freeze.suspend(targets)
        if not frozen.ok:
            return frozen
        left = (await self._read_memory()).of(_everyone(targets))
        if left:
            uuid, count = max(left.items(), key=lambda item: item[1])
            return Outcome(
                False, 0.0, "GPUMemoryNotReleased", f"{count} bytes of GPU {uuid} are still held after a checkpoint"
            )
        self._aim(targets, NOWHERE)
        return Outcome(True, 0.0, "Checkpointed", freed=sum(self._noted(targets).values()))

    async def _take_off(self, states: Mapping[int, ProcessState]) -> Trouble | None:
        """Lock all, then checkpoint all. Nobody is asked again how he stands after a step: who did not make it has said
        so."""
        for step, begun in (
            (Step.LOCK, (ProcessState.RUNNING,)),
            (Step.CHECKPOINT, (ProcessState.RUNNING, ProcessState.LOCKED)),
        ):
            trouble = await self._processes.make(step, _in_state(states, *begun))
            if trouble is not None:
                return trouble
        return None

    async def resume(self, targets: Targets, onto: Mapping[str, str] = NOWHERE) -> Outcome:
        """`onto`: for each GPU (uuid) that it was on the one, of the same product, that it is to have instead (driver
        580 and newer). Of several processes some may be moved and another refused: then all are taken off again, it is
        noted where each is, and the next resumption, with a map or without, brings them together. One that was begun
        and could not be undone goes on to where it was aimed, whatever `onto` says.
        """
        begin = time.monotonic()
        try:
            outcome = await self._resume(targets, onto)
        except _TROUBLES as error:
            outcome = _refusal(error)
        return replace(outcome, seconds=time.monotonic() - begin)

    async def _resume(self, targets: Targets, onto: Mapping[str, str]) -> Outcome:
        if all(home == to for home, to in onto.items()):
            onto = NOWHERE
        onto = self._aimed(targets) or onto
        refused = self._cannot_move(targets, onto) if onto else None
        if refused is not None:
            return refused
        if not self._has_note(targets):
            return await self._freeze.resume(targets)
        if self._leaves(targets):
            return Outcome(
                False, 0.0, "MigrationInProgress", "it is being carried to another node; it stays suspended meanwhile"
            )
        if await self._is_back(targets):
            self._forget(targets)
            return Outcome(True, 0.0, "Thawed")
        short = await self._lacks_memory(targets, onto)
        if short is not None:
            return Outcome(False, 0.0, "InsufficientGPUMemory", f"{short}; it stays suspended")
        thawed = await self._freeze.resume(targets)
        if not thawed.ok:
            return thawed
        trouble = await self._bring_back(targets, onto)
        if trouble is None:
            return Outcome(True, 0.0, "Moved" if onto else "Thawed")
        no = not trouble.pending and trouble.code == f"{Step.RESTORE}Refused"
        lost = self._refusals.lost(target.path.name for target in targets) if no else ""
        if lost:
            trouble = Trouble(LOST, f"{trouble.message}; {lost}")
        elif no or trouble.code == PROCESSES_NOT_SUSPENDED:
            await self._park_again(targets)
        if trouble.code == LOST:
            await self._kill(targets)
        return Outcome(False, 0.0, trouble.code, trouble.message)

    def standing(self, targets: Targets) -> Standing:
        """A note of a trial whose processes are not stopped: somewhere between its first and its last step."""
        standing = self._freeze.standing(targets)
        if standing is Standing.GONE:
            self._forget(targets)
        elif self._leaves(targets):
            return Standing.PARKED  # thawed or not: it waits at its next CUDA call
        return Standing.PARTLY_SUSPENDED if standing is Standing.WORKING and self._has_note(targets) else standing

    async def _is_parked_already(self, targets: Targets) -> bool:
        """All frozen: done before. Some frozen: thawed first, since the driver cannot move what is frozen."""
        standing = self._freeze.standing(targets)
        if standing is Standing.PARTLY_SUSPENDED:
            await self._freeze.resume(targets)
        return standing is Standing.PARKED

    async def _is_back(self, targets: Targets) -> bool:
        """It came from another node and an agent before this one brought it back: that it came is noted again by each.
        It may hold less than it came with by now, in fewer processes."""
        came = any(self._parked.whole(target.path.name).onto for target in targets)
        if not came or self._freeze.standing(targets) is not Standing.WORKING:
            return False
        return set((await self._processes.of(targets)).values()) == {ProcessState.RUNNING}

    def _note(self, targets: Targets, states: Mapping[int, ProcessState], memory: GpuMemory) -> None:
        """What each container is about to give back. Of one that has begun to, the note is there already: those that
        took more since are noted anew, but none while they are on their way to other GPUs, for they have to agree on
        where home is."""
        off = _in_state(states, ProcessState.CHECKPOINTED)
        for target in targets:
            name = target.path.name
            here, note = target.processes() & states.keys(), self._parked.whole(name)
            gone = here.intersection(off)
            if here and not ((gone or (off and note.apart)) and self._parked.has(name)):
                self._parked.note(name, memory.of(here), {pid: memory.held[pid] for pid in here & memory.held.keys()})
            elif gone and not note.apart and gone <= note.each.keys():
                each = {pid: _larger(note.each.get(pid, {}), memory.held.get(pid, {})) for pid in here}
                held = GpuMemory(each, {}).of(here)
                self._parked.write(name, note.model_copy(update={"held": held, "each": each}))

    def _cannot_move(self, targets: Targets, onto: Mapping[str, str]) -> Outcome | None:
        noted = self._noted(targets)
        unnamed = sorted(noted.keys() - onto.keys())
        if unnamed or not noted:
            message = f"no other GPU is named for {unnamed[0]}" if unnamed else "its memory is on its GPUs"
            return Outcome(False, 0.0, "GPUMapIncomplete", f"{message}; it stays suspended")
        if len({onto[home] for home in noted}) < len(noted):
            return Outcome(False, 0.0, "GPUMapIncomplete", "one GPU is named for two of its own; it stays suspended")
        return None

    async def _lacks_memory(self, targets: Targets, onto: Mapping[str, str] = NOWHERE) -> str | None:
        """A sentence that names a GPU without room for what is to come back to it."""
        needed = self._noted(targets)
        if not needed:
            return None
        memory = await self._read_memory()
        held = memory.of(_everyone(targets))
        if sum(held.values()) >= sum(needed.values()):
            return None  # all is back, wherever
        for uuid, count in sorted((onto.get(uuid, uuid), count) for uuid, count in needed.items()):
            missing, free = count - held.get(uuid, 0), memory.free.get(uuid, 0)
            if missing > 0 and missing + RESTORE_SCRATCH > free:
                return f"GPU {uuid} has {free} bytes free, and {missing + RESTORE_SCRATCH} are needed for a restore"
        return None

    async def _bring_back(self, targets: Targets, onto: Mapping[str, str]) -> Trouble | None:
        """Restore all, then unlock all, from wherever each of them stands."""
        states = await self._arrivals.wait(targets, ARRIVE_SECONDS)
        if isinstance(states, Trouble):
            return states
        trouble = self._processes.waiting_for(states)
        back = _in_state(states, ProcessState.RUNNING, ProcessState.LOCKED)
        if trouble is None and onto and back and not self._aimed(targets):
            trouble = Trouble(
                PROCESSES_NOT_SUSPENDED, f"process {min(back)} is back on its own GPUs: it is taken off again first"
            )
        if trouble is None:
            self._aim(targets, onto)  # so that the next agent, too, knows where those are that are back
            trouble = await self._restore_and_unlock(targets, states, onto)
        if trouble is None:
            self._forget(targets)
        return trouble

    async def _restore_and_unlock(
        self, targets: Targets, states: Mapping[int, ProcessState], onto: Mapping[str, str] = NOWHERE
    ) -> Trouble | None:
        trouble = _failed(states)
        for step, begun in (
            (Step.RESTORE, (ProcessState.CHECKPOINTED,)),
            (Step.UNLOCK, (ProcessState.CHECKPOINTED, ProcessState.LOCKED)),
        ):
            if trouble is None:
                asked = [pid for pid in _in_state(states, *begun) if self._processes.waiting_for([pid]) is None]
                trouble = await self._processes.make(step, asked, self._maps(targets, asked, onto))
                if trouble is not None:
                    trouble = _failed(await self._processes.of(targets)) or trouble
        return trouble

    def _maps(self, targets: Targets, pids: Iterable[int], onto: Mapping[str, str]) -> Mapping[int, Mapping[str, str]]:
        """For the driver: by process, from the GPUs that it left, which may be another node's."""
        notes = [(target.processes(), self._parked.whole(target.path.name)) for target in targets]
        return {pid: pairs(note, pid, onto) for here, note in notes for pid in here.intersection(pids)}

    def _aimed(self, targets: Targets) -> Mapping[str, str]:
        """Of a resumption with a map that was begun: where it leads."""
        return {home: to for target in targets for home, to in self._parked.whole(target.path.name).goal.items()}

    def _aim(self, targets: Targets, onto: Mapping[str, str]) -> None:
        """Before the first step in with that map; with none: all are off their GPUs again."""
        for target in targets:
            note = self._parked.whole(target.path.name)
            if self._parked.has(target.path.name) and note.goal != onto:
                self._parked.write(target.path.name, note.model_copy(update={"goal": dict(onto)}))

    def _settle(self, targets: Targets, states: Mapping[int, ProcessState]) -> None:
        """Before those that are back go out again: they are where the resumption was aimed."""
        for target in targets:
            note = self._parked.whole(target.path.name)
            back = target.processes().intersection(_in_state(states, ProcessState.RUNNING, ProcessState.LOCKED))
            if back and note.held:
                self._parked.write(target.path.name, restored(note, back, note.goal))

    async def _go_back(self, targets: Targets) -> str:
        """After a suspension that failed: all at work again, but for one that the driver does not let go of.

        Gives what is left undone as a sentence, or nothing.
        """
        self._freeze.let_go(targets)
        if not self._has_note(targets):
            return ""
        try:
            await self._freeze.resume(targets)
            onto = self._aimed(targets)
            states = await self._processes.of(targets)
            # who was locked only has its memory still: it may hold less by now than was noted, and needs no room
            off = _in_state(states, ProcessState.CHECKPOINTED)
            short = await self._lacks_memory(targets, onto) if off else None
            if short is not None:
                return f"not undone yet: {short}"
            trouble = await self._restore_and_unlock(targets, states, onto) or self._processes.waiting_for(states)
            if trouble is None:
                self._forget(targets)
                return ""
            if trouble.code == LOST:
                await self._kill(targets)
            return f"not undone yet: {trouble.message}"
        except _TROUBLES as error:
            return f"not undone yet: {error}"

    async def _park_again(self, targets: Targets) -> None:
        """A restore was refused and its process is as before: those that are back, or at work even (an earlier try let
        them go on, and they may hold more by now), go out again, and then all are frozen."""
        states, memory = await self._processes.of(targets), await self._read_memory()
        self._settle(targets, states)
        self._note(targets, states, memory)
        if await self._take_off(states) is None:
            frozen = await self._freeze.suspend(targets)
            if frozen.ok:
                self._aim(targets, NOWHERE)

    async def _kill(self, targets: Targets) -> None:
        """The driver has lost a process: nothing that it computed since its last save can be had any more."""
        for pid in await self._processes.of(targets):
            log.error("process %d is killed: the driver has lost its trial, for good", pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def _read_memory(self) -> GpuMemory:
        return await give_up_after(LOOK_SECONDS, self._memory)

    def _has_note(self, targets: Targets) -> bool:
        return any(self._parked.has(target.path.name) for target in targets)

    def _leaves(self, targets: Targets) -> bool:
        return any(self._parked.whole(target.path.name).leaving > time.time() for target in targets)

    def _noted(self, targets: Targets) -> Mapping[str, int]:
        """Bytes by GPU, of all of them together."""
        total: dict[str, int] = {}
        for target in targets:
            for uuid, count in self._parked.read(target.path.name).items():
                total[uuid] = total.get(uuid, 0) + count
        return total

    def _forget(self, targets: Targets) -> None:
        self._arrivals.forget(targets)
        self._refusals.forget(target.path.name for target in targets)
        for target in targets:
            self._parked.forget(target.path.name)


def _no_way_back(memory: GpuMemory, pids: frozenset[int]) -> str | None:
    """A sentence that names a GPU so full of this trial that a restore would find no room even alone."""
    for uuid, count in sorted(memory.of(pids).items()):
        usable = memory.usable[uuid]
        if count + RESTORE_SCRATCH > usable:
            return f"it holds {count} of the {usable} bytes of GPU {uuid}, and a restore needs {RESTORE_SCRATCH} more"
    return None


def _everyone(targets: Targets) -> frozenset[int]:
    return frozenset(pid for target in targets for pid in target.processes())


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {uuid: max(one.get(uuid, 0), other.get(uuid, 0)) for uuid in sorted(one.keys() | other.keys())}


def _in_state(states: Mapping[int, ProcessState], *wanted: ProcessState) -> list[int]:
    return [pid for pid, state in states.items() if state in wanted]


def _failed(states: Mapping[int, ProcessState]) -> Trouble | None:
    lost = _in_state(states, ProcessState.FAILED)
    if not lost:
        return None
    return Trouble(LOST, f"the driver has lost process {min(lost)} for good; its last save is left")


def _refusal(error: Exception) -> Outcome:
    if isinstance(error, OSError):
        return Outcome(False, 0.0, "FreezerRefused", f"{error.filename}: {error.strerror}")
    code = "GPUMemoryUnknown" if isinstance(error, GPUMemoryUnknownError) else "DriverUnresponsive"
    return Outcome(False, 0.0, code, str(error))
