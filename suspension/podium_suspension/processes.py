"""The CUDA processes of a trial, and one driver call on all of them together.

The method `cuda-checkpoint` uses it. NCCL connects the ranks of a trial, so all processes make a step before any makes
the next one. A process that ends in the meantime does not make the step fail.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from podium_core.schema.gpunode import INSUFFICIENT_NODE_RESOURCES
from podium_suspension.cuda import NOT_READY, OUT_OF_MEMORY, CudaDriver, CudaError, ProcessState
from podium_suspension.driver_calls import DriverTimeoutError, NoThreadError, call_with_timeout
from podium_suspension.target import Target

QUERY_SECONDS = 5.0  # for queries, which move no memory
LOST = "CUDAFailed"  # code: the work since the last checkpoint cannot be recovered
NO_MAPS: Mapping[int, Mapping[str, str]] = {}  # each process on its own GPUs
EXIT_SECONDS, EXIT_POLL = 5.0, 0.01
GRACE_SECONDS = 1.0  # in addition to the driver's own time limit for a lock


class Step(StrEnum):
    """Driver call of one step of a suspension or resume."""

    LOCK = "Lock"
    CHECKPOINT = "Checkpoint"
    RESTORE = "Restore"
    UNLOCK = "Unlock"


@dataclass(frozen=True, slots=True)
class StepError:
    """Reason why a step did not succeed for all processes.

    `pending`: a driver call has not returned yet.
    """

    code: str
    message: str
    pending: bool = False


class CudaProcesses:
    """Driver calls on the CUDA processes of trials.

    `lock_seconds` limits the wait for submitted work, `copy_seconds` each move of memory.
    """

    def __init__(self, driver: CudaDriver, lock_seconds: float, copy_seconds: float) -> None:
        self._driver = driver
        self._lock_seconds = lock_seconds
        self._copy_seconds = copy_seconds
        self._pending: set[int] = set()
        self._ended: set[int] = set()

    def note_end(self, pid: int) -> None:
        """Note that a process ended because of the driver."""
        self._ended.add(pid)

    def take_ended(self, pids: Collection[int]) -> tuple[int, ...]:
        """Return which of these processes ended during a driver call since the last question."""
        ended = self._ended.intersection(pids)
        self._ended -= ended
        return tuple(sorted(ended))

    async def wait_for_exits(self, targets: Sequence[Target]) -> None:
        """Wait until processes that ended during a driver call have left their containers.

        It takes EXIT_SECONDS at most. The driver does not know such a process any more while its threads still exit.
        If it is frozen then, it keeps its memory until it is thawed.

        Raises OSError if the kernel does not list the processes.
        """
        end = time.monotonic() + EXIT_SECONDS
        while time.monotonic() < end:
            if not any(self._ended.intersection(target.processes()) for target in targets):
                return
            await asyncio.sleep(EXIT_POLL)

    async def states_of(self, targets: Iterable[Target]) -> Mapping[int, ProcessState]:
        """Return the states of the containers' CUDA processes by pid.

        Raises OSError if the kernel does not list the processes or no thread can start, and DriverTimeoutError if the
        driver does not answer.
        """
        pids = sorted(pid for target in targets for pid in target.processes())
        return await call_with_timeout(QUERY_SECONDS, lambda: self.states(pids))

    def states(self, pids: Iterable[int]) -> Mapping[int, ProcessState]:
        """Return the states of those processes that have a CUDA context; blocking."""
        states = {}
        for pid in pids:
            if self._driver.holds_cuda(pid) and (state := self._driver.state(pid)) is not None:
                states[pid] = state
        return states

    def pending_call(self, pids: Iterable[int]) -> StepError | None:
        """Return an error if an earlier call on one of the processes timed out and has not returned."""
        stuck = self._pending.intersection(pids)
        if not stuck:
            return None
        return StepError(
            "DriverUnresponsive", f"an earlier call on process {min(stuck)} has not returned", pending=True
        )

    async def run_step(
        self, step: Step, pids: Iterable[int], gpu_map: Mapping[int, Mapping[str, str]] = NO_MAPS
    ) -> StepError | None:
        """Make the step on all processes at once; None if it succeeded for all that are still alive.

        `gpu_map` is for a restore: by pid, old GPU to new GPU. Of several errors, that of a lost process is returned,
        because no later answer may report it.
        """
        wanted, errors = sorted(pids), list[StepError]()
        answers = await asyncio.gather(
            *(self._run_on_one(step, pid, gpu_map.get(pid)) for pid in wanted), return_exceptions=True
        )
        for pid, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, DriverTimeoutError):
                text = f"the driver's {step.lower()} of process {pid}: {answer}"
                errors.append(StepError(f"{step}Timeout", text, True))
            elif isinstance(answer, NoThreadError):
                errors.append(StepError(INSUFFICIENT_NODE_RESOURCES, f"{answer.strerror}"))
            elif isinstance(answer, CudaError):
                if await self._is_alive(pid):
                    errors.append(_step_error(step, answer))
                else:
                    self.note_end(pid)
            elif isinstance(answer, BaseException):
                raise answer
        return next((one for one in errors if one.code == LOST), errors[0] if errors else None)

    async def _run_on_one(self, step: Step, pid: int, gpu_map: Mapping[str, str] | None) -> None:
        act, undo, seconds = self._calls(step, pid, gpu_map)

        def tracked() -> None:
            try:
                act()
            finally:
                self._pending.discard(pid)

        self._pending.add(pid)
        try:
            await call_with_timeout(seconds, tracked, undo)
        except NoThreadError:
            self._pending.discard(pid)
            raise

    def _calls(
        self, step: Step, pid: int, gpu_map: Mapping[str, str] | None
    ) -> tuple[Callable[[], None], Callable[[], None] | None, float]:
        """Return the driver call, the function that undoes a late success, and the timeout.

        A restore and an unlock are not undone, because they lead to the wanted state.
        """
        driver = self._driver

        def restore_and_unlock() -> None:
            driver.restore(pid)
            driver.unlock(pid)

        copy = self._copy_seconds
        if step is Step.LOCK:
            seconds = self._lock_seconds
            return lambda: driver.lock(pid, seconds), lambda: driver.unlock(pid), seconds + GRACE_SECONDS
        if step is Step.CHECKPOINT:
            return lambda: driver.checkpoint(pid), restore_and_unlock, copy
        if step is Step.RESTORE:
            return lambda: driver.restore(pid, gpu_map), None, copy
        return lambda: driver.unlock(pid), None, copy

    async def _is_alive(self, pid: int) -> bool:
        try:
            return bool(await call_with_timeout(QUERY_SECONDS, lambda: self.states([pid])))
        except (DriverTimeoutError, NoThreadError):
            return True


def _step_error(step: Step, error: CudaError) -> StepError:
    if step is Step.RESTORE and error.code == OUT_OF_MEMORY:  # driver 580.159 still reports CHECKPOINTED
        return StepError(LOST, f"{error}: the process is lost; the trial continues from its last checkpoint")
    return StepError(f"{step}Timeout" if error.code == NOT_READY else f"{step}Refused", str(error))


def in_state(states: Mapping[int, ProcessState], *wanted: ProcessState) -> list[int]:
    """Return the processes that are in one of the wanted states."""
    return [pid for pid, state in states.items() if state in wanted]


def failed_process(states: Mapping[int, ProcessState]) -> StepError | None:
    """Return an error that names a process that the driver has lost, or None."""
    lost = in_state(states, ProcessState.FAILED)
    if not lost:
        return None
    return StepError(LOST, f"the driver has lost process {min(lost)}; the trial continues from its last checkpoint")


def all_pids(targets: Iterable[Target]) -> frozenset[int]:
    """Return the processes in all containers. Raises OSError if the kernel does not list them."""
    return frozenset(pid for target in targets for pid in target.processes())


def known_pids(targets: Iterable[Target]) -> frozenset[int]:
    """Return the processes; none if the kernel does not list them."""
    try:
        return all_pids(targets)
    except OSError:
        return frozenset()
