"""A node that has no free thread or file descriptor for a moment: nothing is broken once it has some again."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_builders import pod
from cuda_node import until
from cuda_trial import Trial, trial
from descriptors import no_threads

import podium_agent.driver.method_detection
from podium_agent.driver.method_detection import Detection, MethodDetection
from podium_agent.metrics import Metrics
from podium_agent.observe.nvml import DriverTroubleError
from podium_agent.observe.pod_records import PodRecord
from podium_agent.observe.telemetry import Telemetry
from podium_agent.schedule.executor import Executor, ExecutorHooks
from podium_agent.schedule.memory_admission import MemoryAdmission
from podium_agent.settings import AgentSettings
from podium_core.attempts.local_scheduler import Suspend
from podium_core.attempts.local_trial import LocalPod, LocalTrial, TrialSuspension
from podium_core.schema.gpunode import SlotState
from podium_suspension.base import SuspensionOutcome, SuspensionState, outcome_of
from podium_suspension.driver_calls import NoThreadError, call_with_timeout
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_memory import GpuMemory
from podium_suspension.methods import SuspensionMethods
from podium_suspension.processes import CudaProcesses, Step, StepError

__all__ = ["trial"]
SHORTAGE = "InsufficientNodeResources"


def test_a_call_that_could_not_start_is_not_pending() -> None:
    driver: Any = SimpleNamespace(unlock=lambda _: None)
    processes = CudaProcesses(driver, 60.0, 60.0)

    async def scene() -> None:
        with no_threads():
            error = await processes.run_step(Step.UNLOCK, [7])
        assert error is not None
        assert (error.code, error.pending) == (SHORTAGE, False)
        assert "Resource temporarily unavailable" in error.message
        assert processes.pending_call([7]) is None
        assert await processes.run_step(Step.UNLOCK, [7]) is None

    asyncio.run(scene())


@pytest.mark.skipif(os.geteuid() != 0, reason="cgroups are root's")
@pytest.mark.parametrize("step", [Step.LOCK, Step.CHECKPOINT])
def test_a_suspension_without_threads_is_undone_and_made_later(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    """The node lacks threads at one step; the next calls, which undo the suspension, have them again."""
    run_step = CudaProcesses.run_step

    async def short(self: CudaProcesses, wanted: Step, pids: Any, *rest: Any) -> StepError | None:
        if wanted is step:
            with no_threads():
                return await run_step(self, wanted, pids, *rest)
        return await run_step(self, wanted, pids, *rest)

    monkeypatch.setattr(CudaProcesses, "run_step", short)
    outcome = trial.suspend()
    assert (outcome.ok, outcome.code, outcome.is_shortage) == (False, SHORTAGE, True), outcome
    assert trial.suspension_state is SuspensionState.RUNNING
    assert trial.all_work()
    monkeypatch.setattr(CudaProcesses, "run_step", run_step)
    until(lambda: trial.suspend().ok, "suspended")
    assert trial.held() == 0


@pytest.mark.parametrize(("code", "tries_again"), [(SHORTAGE, True), ("FreezeTimeout", False)])
def test_a_method_that_was_not_tried_has_not_failed(code: str, tries_again: bool) -> None:
    record = PodRecord(pod())

    async def suspend(*_: object) -> SuspensionOutcome:
        return SuspensionOutcome(False, 0.1, code)

    parts: Any = SimpleNamespace(suspend=suspend, gates=None, admissions=None, memory=None)
    executor = Executor(parts, parts, parts, Metrics(), 1.0, ExecutorHooks(lambda _: None, lambda: None))
    local = LocalTrial(
        record.pod.key,
        LocalPod("a-0", record.pod.uid),
        ("G",),
        SlotState.RUNNING,
        0.0,
        suspension=TrialSuspension("cuda-checkpoint"),
    )
    asyncio.run(executor._suspend(record, Suspend(local, "Preempted")))
    assert (not record.suspension.failed) is tries_again


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EMFILE, SHORTAGE), (errno.ENOMEM, SHORTAGE), (errno.EIO, "FreezerRefused")]
)
def test_a_file_that_cannot_be_opened_for_want_of_descriptors_is_a_shortage(number: int, code: str) -> None:
    outcome = outcome_of(OSError(number, os.strerror(number), "/sys/fs/cgroup/x/cgroup.freeze"))
    assert (outcome.code, outcome.message) == (code, f"/sys/fs/cgroup/x/cgroup.freeze: {os.strerror(number)}")


def test_the_memory_of_the_gpus_is_read_once_there_are_threads() -> None:
    record = PodRecord(pod(), gpus=("G",))
    admission = MemoryAdmission(
        lambda: [record], SuspensionMethods(Freeze(1.0)), lambda: GpuMemory({}, {"G": 5}, {"G": 5})
    )

    async def scene() -> None:
        with no_threads():
            assert "Resource temporarily unavailable" in await admission.admit(record)
        assert await admission.admit(record) == ""

    asyncio.run(scene())


@pytest.mark.parametrize("short_of", ["threads", "descriptors"])
def test_the_driver_is_queried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_of: str) -> None:
    asked = []

    def probe(*_: object) -> Detection:
        asked.append(1)
        if short_of == "descriptors" and len(asked) == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/proc")
        return Detection(reason="DriverTooOld: it is")

    monkeypatch.setattr(podium_agent.driver.method_detection, "probe", probe)
    detection = MethodDetection(
        AgentSettings(node_name="n", trial_dir=tmp_path / "trial", proc=tmp_path, driver_seconds=0.01)
    )

    async def scene() -> None:
        if short_of == "threads":
            with no_threads():
                await detection.detect()
        else:
            await detection.detect()
        assert detection.reason.startswith(f"{SHORTAGE}: ")
        await asyncio.wait_for(detection.run(), 300)

    asyncio.run(scene())
    assert detection.reason == "DriverTooOld: it is"


def test_a_driver_that_answers_too_late_is_queried_again_by_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that starts can need longer than the limit for its first `cuInit`."""
    answer, asked = threading.Event(), []

    def probe(*_: object) -> Detection:
        asked.append(1)
        assert answer.wait(300)
        return Detection(reason="DriverTooOld: it is")

    monkeypatch.setattr(podium_agent.driver.method_detection, "probe", probe)
    monkeypatch.setattr(podium_agent.driver.method_detection, "OPEN_SECONDS", 0.01)
    detection = MethodDetection(
        AgentSettings(node_name="n", trial_dir=tmp_path / "trial", proc=tmp_path, driver_seconds=0.01)
    )

    async def scene() -> None:
        for _ in range(3):
            await detection.detect()
            assert detection.reason.startswith("DriverUnresponsive: ")
        assert asked == [1]
        monkeypatch.setattr(podium_agent.driver.method_detection, "OPEN_SECONDS", 300.0)
        answer.set()
        await asyncio.wait_for(detection.run(), 300)

    asyncio.run(scene())
    assert detection.reason == "DriverTooOld: it is"
    assert asked == [1, 1]


def test_a_late_success_is_undone_without_another_thread() -> None:
    """The caller gives up just after the call has succeeded, and no thread can start."""
    undone = threading.Event()

    async def scene() -> None:
        begun = threading.Event()
        task = asyncio.ensure_future(call_with_timeout(300, begun.set, undone.set))
        await asyncio.sleep(0)
        assert begun.wait(300)
        for thread in threading.enumerate():
            if thread.name == "driver call":
                thread.join(1)  # it has delivered its answer, which the loop has not taken
        task.cancel()
        with no_threads():
            await asyncio.gather(task, return_exceptions=True)
            assert await wait_for(undone.is_set)

    asyncio.run(scene())


async def wait_for(true: Callable[[], bool]) -> bool:
    for _ in range(6_000):
        if true():
            return True
        await asyncio.sleep(0.01)
    return False


def test_without_a_thread_nothing_is_called() -> None:
    called: list[int] = []

    async def scene() -> None:
        with no_threads(), pytest.raises(NoThreadError):
            await call_with_timeout(1.0, lambda: called.append(1))

    asyncio.run(scene())
    assert not called
    assert "driver call" not in {thread.name for thread in threading.enumerate()}


def test_telemetry_continues_when_there_are_threads_again() -> None:
    def open_driver() -> Any:
        raise DriverTroubleError("no library")

    async def scene() -> list[str]:
        telemetry = Telemetry(0.01, 60.0, open_driver)
        seen: list[str] = []
        telemetry.subscribe(lambda: seen.append(telemetry.reading.trouble.split(":")[0]))
        with no_threads():
            task = asyncio.ensure_future(telemetry.run())
            assert await wait_for(lambda: bool(seen) or task.done())
        assert await wait_for(lambda: "DriverMissing" in seen or task.done())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return seen

    seen = asyncio.run(scene())
    assert (seen[0], seen[-1]) == (SHORTAGE, "DriverMissing")
