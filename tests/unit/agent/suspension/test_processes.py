"""Errors of one step on several processes of a trial: which one is reported."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from podium_agent.suspension.cuda import NOT_READY, OUT_OF_MEMORY, CudaDriver, CudaError, ProcessState
from podium_agent.suspension.driver_calls import DriverTimeoutError
from podium_agent.suspension.processes import CudaProcesses, Step

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
