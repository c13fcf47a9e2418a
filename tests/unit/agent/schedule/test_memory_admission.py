"""What admission does when the driver does not say how much memory is free. The rest: test_shared_memory."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from agent_builders import pod

import podium_agent.schedule.memory_admission
from podium_agent.observe.cgroups import Container, Freezer
from podium_agent.observe.pod_records import PodProcesses, PodRecord
from podium_agent.schedule.memory_admission import MemoryAdmission
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_memory import GpuMemory, GPUMemoryUnknownError
from podium_suspension.gpu_state_notes import GpuStateNotes
from podium_suspension.methods import SuspensionMethods


@pytest.mark.parametrize(
    ("error", "has_note", "says"),
    [
        (GPUMemoryUnknownError("NVML does not tell"), False, ""),
        (GPUMemoryUnknownError("NVML does not tell"), True, "is unknown: NVML does not tell"),
        (OSError("no descriptor left"), False, "is unknown: no descriptor left"),
        (KeyError("odd"), False, "could not be determined: KeyError('odd')"),
    ],
)
def test_a_driver_without_an_answer_blocks_only_checkpointed_trials(
    tmp_path: Path, error: Exception, has_note: bool, says: str
) -> None:
    def memory() -> GpuMemory:
        raise error

    notes = GpuStateNotes(tmp_path / "gpu-state")
    containers = {"c": Container("c", 1, Freezer(tmp_path / "c", unified=False))}
    record = PodRecord(pod(), gpus=("G",), processes=PodProcesses(containers=containers))
    if has_note:
        notes.write_held("c", {"G": 5})
    admission = MemoryAdmission(lambda: [record], SuspensionMethods(Freeze(1.0), notes=notes), memory)
    assert admission.concerns(record) is has_note
    memory_shortage = asyncio.run(admission.admit(record))
    assert memory_shortage.endswith(says)
    assert record.memory.admitted is (says == "")
    assert bool(memory_shortage) is bool(says)


def test_a_hung_driver_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call that is given up leaves a thread behind: one, not one a second for each trial that waits."""
    monkeypatch.setattr(podium_agent.schedule.memory_admission, "READ_SECONDS", 0.01)
    answers, asked = threading.Event(), []

    def memory() -> GpuMemory:
        asked.append(1)
        assert answers.wait(60)
        return GpuMemory({}, {"G": 5})

    record = PodRecord(pod(), gpus=("G",))
    admission = MemoryAdmission(lambda: [record], SuspensionMethods(Freeze(1.0)), memory)

    async def scene() -> None:
        says = [await admission.admit(record) for _ in range(3)]
        assert ["no answer within" in says[0], *("has not answered yet" in one for one in says[1:])] == [True] * 3
        assert asked == [1]
        answers.set()
        monkeypatch.setattr(podium_agent.schedule.memory_admission, "READ_SECONDS", 60.0)
        for thread in threading.enumerate():
            if thread.name == "driver call":
                thread.join(60)
        assert (await admission.admit(record), asked) == ("", [1, 1])

    asyncio.run(scene())
