"""The processes of a trial that hold CUDA, and one call of the driver on all of them together.

Used by the method `cuda-checkpoint`. Ranks of one job are joined by NCCL: so a step is made by all before any makes
the next one. A process that ends meanwhile is no failure of a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from podium_agent.observe.cgroups import Freezer
from podium_agent.suspension.cuda import NOT_READY, OUT_OF_MEMORY, CudaDriver, CudaError, ProcessState
from podium_agent.suspension.driver_calls import GivenUpError, give_up_after

LOOK_SECONDS = 5.0  # for questions that move nothing
LOST = "CUDAFailed"  # code: nothing that it computed since its last save can be had any more
NO_MAPS: Mapping[int, Mapping[str, str]] = {}  # each back to where it was
GRACE_SECONDS = 1.0  # beside the time that the driver itself was given for a lock


class Step(StrEnum):
    LOCK = "Lock"
    CHECKPOINT = "Checkpoint"
    RESTORE = "Restore"
    UNLOCK = "Unlock"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a step was not made by all: a code, a sentence, and whether a call is still under way."""

    code: str
    message: str
    pending: bool = False


class CudaProcesses:
    """`lock_seconds` for a trial's submitted work to end, `copy_seconds` for its memory to be moved, either way."""

    def __init__(self, driver: CudaDriver, lock_seconds: float, copy_seconds: float) -> None:
        self._driver = driver
        self._lock_seconds = lock_seconds
        self._copy_seconds = copy_seconds
        self._under_way: set[int] = set()

    async def of(self, targets: Iterable[Freezer]) -> Mapping[int, ProcessState]:
        """By pid. Raises OSError (the kernel does not say who is there) or GivenUpError (the driver does not)."""
        pids = sorted(pid for target in targets for pid in target.processes())
        return await give_up_after(LOOK_SECONDS, lambda: self.states(pids))

    def states(self, pids: Iterable[int]) -> Mapping[int, ProcessState]:
        """Of those that hold CUDA; blocking."""
        found = {}
        for pid in pids:
            if self._driver.holds_cuda(pid) and (state := self._driver.state(pid)) is not None:
                found[pid] = state
        return found

    def waiting_for(self, pids: Iterable[int]) -> Trouble | None:
        """A call that was given up and has not returned: nothing else is asked of that process meanwhile."""
        stuck = self._under_way.intersection(pids)
        if not stuck:
            return None
        return Trouble("DriverUnresponsive", f"an earlier call on process {min(stuck)} has not returned", pending=True)

    async def make(
        self, step: Step, pids: Iterable[int], onto: Mapping[int, Mapping[str, str]] = NO_MAPS
    ) -> Trouble | None:
        """The step by all at once; None: all that still live have made it. `onto`: of a restore, by pid, GPU to GPU.
        Of several troubles a process that is lost comes first: no later answer may tell of it.
        """
        wanted, troubles = sorted(pids), list[Trouble]()
        answers = await asyncio.gather(*(self._one(step, pid, onto.get(pid)) for pid in wanted), return_exceptions=True)
        for pid, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, GivenUpError):
                text = f"the driver's {step.lower()} of process {pid}: {answer}"
                troubles.append(Trouble(f"{step}Timeout", text, True))
            elif isinstance(answer, CudaError):
                if await self._lives(pid):
                    troubles.append(_refused(step, answer))
            elif isinstance(answer, BaseException):
                raise answer
        return next((one for one in troubles if one.code == LOST), troubles[0] if troubles else None)

    async def _one(self, step: Step, pid: int, onto: Mapping[str, str] | None) -> None:
        act, amends, seconds = self._calls(step, pid, onto)

        def tracked() -> None:
            try:
                act()
            finally:
                self._under_way.discard(pid)

        self._under_way.add(pid)
        await give_up_after(seconds, tracked, amends)

    def _calls(
        self, step: Step, pid: int, onto: Mapping[str, str] | None
    ) -> tuple[Callable[[], None], Callable[[], None] | None, float]:
        """The call, what undoes it if it succeeds after it was given up, and how long it may take.

        A restore and an unlock have no amends: they lead to where the trial is wanted.
        """
        driver = self._driver

        def go_back() -> None:
            driver.restore(pid)
            driver.unlock(pid)

        copy = self._copy_seconds
        if step is Step.LOCK:
            seconds = self._lock_seconds
            return lambda: driver.lock(pid, seconds), lambda: driver.unlock(pid), seconds + GRACE_SECONDS
        if step is Step.CHECKPOINT:
            return lambda: driver.checkpoint(pid), go_back, copy
        if step is Step.RESTORE:
            return lambda: driver.restore(pid, onto), None, copy
        return lambda: driver.unlock(pid), None, copy

    async def _lives(self, pid: int) -> bool:
        try:
            return bool(await give_up_after(LOOK_SECONDS, lambda: self.states([pid])))
        except GivenUpError:
            return True


def _refused(step: Step, error: CudaError) -> Trouble:
    if step is Step.RESTORE and error.code == OUT_OF_MEMORY:  # a driver may still call it CHECKPOINTED (580.159 does)
        return Trouble(LOST, f"{error}: the process is lost for good; its last save is left")
    return Trouble(f"{step}Timeout" if error.code == NOT_READY else f"{step}Refused", str(error))
