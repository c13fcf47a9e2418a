"""Errors of one step on several processes of a trial: which one is reported."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from podium_suspension.base import SuspensionOutcome, SuspensionState
from podium_suspension.cuda import NOT_READY, OUT_OF_MEMORY, CudaDriver, CudaError, ProcessState
from podium_suspension.cuda_checkpoint import CudaCheckpoint
from podium_suspension.driver_calls import DriverTimeoutError
from podium_suspension.gpu_memory import GpuMemory
from podium_suspension.gpu_state_notes import GpuStateNotes
from podium_suspension.processes import CudaProcesses, Step

OPERATING_SYSTEM, HANGS, GONE = 304, -1, -2


class Driver:
    """`answers`: by pid, the error of every call on it; 0: none."""

    def __init__(self, answers: dict[int, int]) -> None:
        self.answers = answers

    def holds_cuda(self, pid: int) -> bool:
        return self.answers[pid] != GONE

    def state(self, pid: int) -> ProcessState:
        return ProcessState.CHECKPOINTED

    def restore(self, pid: int, _: object = None) -> None:
        if self.answers[pid] == HANGS:
            raise DriverTimeoutError("no answer")
        if self.answers[pid]:
            raise CudaError("restore", pid, self.answers[pid], "NAME")


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ((0, 0), None),
        ((OUT_OF_MEMORY, OPERATING_SYSTEM), "CUDAFailed"),
        ((OPERATING_SYSTEM, OUT_OF_MEMORY), "CUDAFailed"),
        ((HANGS, OUT_OF_MEMORY), "CUDAFailed"),
        ((OPERATING_SYSTEM, NOT_READY), "RestoreRefused"),
        ((HANGS, OPERATING_SYSTEM), "RestoreTimeout"),
        ((GONE, OPERATING_SYSTEM), "RestoreRefused"),
        ((0, GONE), None),
    ],
)
def test_a_lost_process_is_reported_before_any_other_error(answers: tuple[int, int], code: str | None) -> None:
    driver = Driver({1: answers[0], 2: answers[1]})

    async def restore() -> str | None:
        trouble = await CudaProcesses(cast(CudaDriver, driver), 60.0, 60.0).run_step(Step.RESTORE, [2, 1])
        return trouble and trouble.code

    assert asyncio.run(restore()) == code


class DyingTrial(Driver):
    """Two processes in a container. The second is killed by a lock, and its last thread exits some questions later."""

    path = Path("container")
    name = "container"

    def __init__(self, exits_after: int) -> None:
        super().__init__({1: 0, 2: GONE})
        self.questions = exits_after
        self.frozen: frozenset[int] = frozenset()
        self.killed = False

    def holds_cuda(self, pid: int) -> bool:
        return pid == 1 or not self.killed

    def state(self, pid: int) -> ProcessState:
        return ProcessState.RUNNING

    def lock(self, pid: int, _: float) -> None:
        if pid == 2:
            self.killed = True
            raise CudaError("lock", pid, OPERATING_SYSTEM, "NAME")

    def checkpoint(self, pid: int) -> None:
        assert pid == 1 or self.killed
        if pid == 2:
            raise CudaError("checkpoint", pid, OPERATING_SYSTEM, "NAME")

    def processes(self) -> frozenset[int]:
        """As the kernel lists the container: a frozen process cannot exit."""
        if self.killed and not self.frozen:
            self.questions -= 1
        return frozenset({1, 2}) if self.questions > 0 or 2 in self.frozen else frozenset({1})

    def memory(self) -> GpuMemory:
        held = {1: {"G": 4}, 2: {"G": 4}} if not self.killed else {2: {"G": 4}}
        return GpuMemory(held, {"G": 1 << 30}, {"G": 1 << 40})

    async def suspend(self, _: object) -> SuspensionOutcome:
        self.frozen = self.processes()
        return SuspensionOutcome(True, 0.0, "Frozen")

    async def resume(self, _: object) -> SuspensionOutcome:
        self.request_thaw(())
        return SuspensionOutcome(True, 0.0, "Thawed")

    def request_thaw(self, _: object) -> None:
        self.frozen = frozenset()

    def suspension_state(self, _: object) -> SuspensionState:
        return SuspensionState.SUSPENDED if self.frozen else SuspensionState.RUNNING


def test_a_process_that_is_being_killed_is_not_frozen_with_its_memory(tmp_path: Path) -> None:
    trial: Any = DyingTrial(exits_after=4)
    method = CudaCheckpoint(CudaProcesses(trial, 60.0, 60.0), trial, GpuStateNotes(tmp_path), trial.memory)
    outcome = asyncio.run(method.suspend((trial,)))
    assert (outcome.ok, outcome.ended) == (True, (2,)), outcome
