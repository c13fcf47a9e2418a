"""Which suspension methods a node has, which of them a trial gets, and calls that may never return."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import podium_agent.driver.method_detection
from podium_agent.driver.method_detection import MethodDetection
from podium_agent.observe.cgroups import Freezer
from podium_agent.settings import AgentSettings
from podium_suspension.base import SuspensionState
from podium_suspension.capability import (
    DriverFacts,
    cuda_checkpoint_unsupported,
    gpu_map_unsupported,
    multi_gpu_unsupported,
    read_facts,
)
from podium_suspension.cuda import CudaDriver, CudaMissingError
from podium_suspension.cuda_checkpoint import CudaCheckpoint
from podium_suspension.driver_calls import DriverTimeoutError, call_with_timeout
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_memory import GpuMemory, read_memory
from podium_suspension.gpu_state_notes import GpuState, GpuStateNote, GpuStateNotes
from podium_suspension.methods import SuspensionMethods
from podium_suspension.processes import CudaProcesses

SIZE = 4 << 20


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (DriverFacts("610.43.02"), None),
        (DriverFacts("570.86.10"), None),
        (DriverFacts("565.57.01"), "DriverTooOld"),
        (DriverFacts(""), "DriverTooOld"),
        (DriverFacts("580.95", machine="aarch64"), "DriverTooOld"),
        (DriverFacts("595.10", machine="aarch64"), None),
        (DriverFacts("610.43.02", mig=("GPU-1",)), "MIGEnabled"),
        (DriverFacts("610.43.02", mps=True), "MPSEnabled"),
        (DriverFacts(error="NVML: Driver Not Loaded"), "DriverMissing"),
    ],
)
def test_reasons_why_a_node_cannot_use_cuda_checkpoint(facts: DriverFacts, code: str | None) -> None:
    why = cuda_checkpoint_unsupported(facts)
    assert (why is None) if code is None else (why or "").startswith(f"{code}: ")


def test_several_gpus_need_a_newer_driver() -> None:
    assert multi_gpu_unsupported("610.43.02") is None
    assert (multi_gpu_unsupported("595.71.05") or "").startswith("DriverTooOldForMultiGPU: ")


def test_an_mps_daemon_is_detected(tmp_path: Path) -> None:
    for pid, name in (("1", "init"), ("22", "nvidia-cuda-mps"), ("self", "x")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "comm").write_text(f"{name}\n")
    assert read_facts(tmp_path).mps
    (tmp_path / "22" / "comm").write_text("python\n")
    assert not read_facts(tmp_path).mps


@pytest.mark.parametrize(
    ("wanted", "gpus", "here", "best"),
    [
        (("freeze",), 1, True, "freeze"),
        (("cuda-checkpoint", "freeze"), 1, True, "cuda-checkpoint"),
        (("freeze", "cuda-checkpoint"), 1, True, "freeze"),
        (("cuda-checkpoint", "freeze"), 1, False, "freeze"),
        (("cuda-checkpoint",), 1, False, ""),
        (("app-checkpoint", "cuda-checkpoint"), 1, True, "cuda-checkpoint"),
        (("app-checkpoint",), 1, True, ""),
        (("cuda-checkpoint", "freeze"), 2, True, "freeze"),
    ],
)
def test_the_first_method_of_the_job_that_the_node_supports_is_chosen(
    cuda_node: Any, tmp_path: Path, wanted: tuple[str, ...], gpus: int, here: bool, best: str
) -> None:
    freeze = Freeze(1.0)
    cuda = CudaCheckpoint(CudaProcesses(CudaDriver(cuda_node.library), 1.0, 1.0), freeze, GpuStateNotes(tmp_path))
    methods = SuspensionMethods(freeze, cuda if here else None, multi_gpu_refusal="an old driver")
    assert methods.choose(wanted, gpus) == best
    assert methods.choose(wanted, gpus, {"freeze", "cuda-checkpoint"}) == best, "all have failed: from the first again"
    if here and gpus == 1 and {"freeze", "cuda-checkpoint"} <= set(wanted):
        assert methods.choose(wanted, gpus, {best}) != best
    assert set(methods.names) == ({"freeze", "cuda-checkpoint"} if here else {"freeze"})


def test_without_the_library_the_method_is_off_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(CudaMissingError, match="cannot be loaded"):
        CudaDriver(str(tmp_path / "libcuda.so.1"))


OLD = """
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long flags, int *status) {
    *function = strcmp(name, "cuInit") == 0 ? (void *)cuInit : 0;
    return *function ? 0 : 500;
}
"""


def test_a_driver_without_checkpoints_is_too_old(tmp_path: Path) -> None:
    """In a process of its own: the bindings stay with the first library that a process loads."""
    library = tmp_path / "libcuda.so.1"
    (tmp_path / "old.c").write_text(OLD)
    command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(tmp_path / "old.c")]
    subprocess.run(command, check=True, timeout=300)
    script = f"from podium_suspension.cuda import CudaDriver; CudaDriver({str(library)!r})"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert "CudaMissingError" in ran.stderr
    assert "older than driver 570" in ran.stderr


def test_custom_storage_is_detected(cuda_node: Any) -> None:
    """The fake driver is 13.3, which has none."""
    if cuda_node.folder is None:
        pytest.skip("a real driver may have it")
    assert not CudaDriver(cuda_node.library).has_custom_storage


def test_an_agent_without_a_driver_has_freeze(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ.get("PODIUM_TEST_DRIVER") == "real":
        pytest.skip("a real driver does not go away on command")
    monkeypatch.setenv("PODIUM_FAKE_DRIVER_STATE", str(tmp_path / "none"))
    detection = MethodDetection(AgentSettings(node_name="n", trial_dir=tmp_path / "trial"))
    asyncio.run(detection.detect())
    assert detection.methods.names == ("freeze",)
    assert detection.reason.startswith("DriverMissing: ")


def test_a_driver_that_appears_later_is_detected_and_nothing_is_thawed_before(
    cuda_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cuda_node.folder is None:
        pytest.skip("a real driver does not go away on command")
    (tmp_path / "pod").mkdir()
    (tmp_path / "pod" / "freezer.state").write_text("FROZEN")
    (tmp_path / "pod" / "cgroup.procs").write_text(f"{os.getpid()}\n")
    target = Freezer(tmp_path / "pod", unified=False)
    (tmp_path / "proc" / "1").mkdir(parents=True)
    (tmp_path / "proc" / "1" / "cgroup").write_text("6:freezer:/kubepods/pod\n")
    GpuStateNotes(tmp_path / "gpu-state").write_held("pod", {"GPU-x": 1})
    GpuStateNotes(tmp_path / "gpu-state").write_held("ended", {"GPU-x": 1})
    monkeypatch.setenv("PODIUM_FAKE_DRIVER_STATE", str(tmp_path / "none"))
    settings = AgentSettings(node_name="n", trial_dir=tmp_path / "trial", proc=tmp_path / "proc", driver_seconds=0.01)
    detection = MethodDetection(settings)
    kept = [place.name for place in (tmp_path / "gpu-state").iterdir()]
    assert kept == ["pod"], "of a container that ended while no agent ran nothing is kept"

    async def scene() -> None:
        await detection.detect()
        assert (await detection.methods.resume((target,))).code == "DriverMissing"
        assert detection.methods.suspension_state((target,)) is SuspensionState.SUSPENDED
        monkeypatch.setattr(podium_agent.driver.method_detection, "CudaDriver", lambda: CudaDriver(cuda_node.library))
        monkeypatch.setenv("PODIUM_FAKE_DRIVER_STATE", str(cuda_node.folder / "state"))
        await asyncio.wait_for(detection.run(), 300)
        assert detection.methods.names == ("freeze", "cuda-checkpoint")
        assert (await detection.methods.resume((target,))).code == "InsufficientGPUMemory", (
            "no GPU of that name has room"
        )

    asyncio.run(scene())


def test_held_memory_is_summed_by_gpu() -> None:
    memory = GpuMemory({1: {"A": 3, "B": 1}, 2: {"A": 4}, 3: {"A": 100}}, {"A": 0, "B": 0})
    assert memory.held_by(frozenset({1, 2, 99})) == {"A": 7, "B": 1}


def test_a_lost_gpu_does_not_hide_the_others(cuda_node: Any) -> None:
    program = cuda_node.start(SIZE, gpu=0)
    cuda_node.lose_gpu(1)
    memory = read_memory()
    assert len(memory.free) == 1
    assert sum(memory.held_by(frozenset({program.pid})).values()) == SIZE


def test_the_next_agent_reads_the_notes(tmp_path: Path) -> None:
    folder = tmp_path / "gpu-state"
    GpuStateNotes(folder).write_held("c1", {"A": 5})
    after = GpuStateNotes(folder)
    assert (after.has("c1"), after.has("c2"), after.held_bytes("c1"), after.held_bytes("c2")) == (
        True,
        False,
        {"A": 5},
        {},
    )
    after.remove("c1")
    assert not GpuStateNotes(folder).has("c1")
    (folder / "c3").write_text('{"GPU-a": 7}')
    assert GpuStateNotes(folder).held_bytes("c3") == {"GPU-a": 7}, "as agents before this version wrote them"


def test_a_migrated_container_gets_one_note(tmp_path: Path) -> None:
    notes = GpuStateNotes(tmp_path / "gpu-state")
    gpu_state = GpuState(gpus={"GPU-b": 2, "GPU-a": 1}, processes=2)
    notes.add_migrated("c1", gpu_state, ("GPU-x", "GPU-y"))
    whole = {
        "held": {"GPU-x": 1, "GPU-y": 2},
        "gpu_map": {"GPU-a": "GPU-x", "GPU-b": "GPU-y"},
        "processes": 2,
        "migrating_until": 0.0,
        "current_gpus": {},
        "held_by_process": {},
        "target_gpus": {},
    }
    assert GpuStateNotes(tmp_path / "gpu-state").read("c1").model_dump() == whole
    notes.add_migrated("c1", gpu_state, ("GPU-y", "GPU-x"))
    assert notes.read("c1").model_dump() == whole, "half-done, or suspended here since: that note is right"


def test_a_container_migrated_again_before_its_restore_keeps_the_gpus_of_the_driver(tmp_path: Path) -> None:
    notes = GpuStateNotes(tmp_path / "gpu-state")
    notes.write_held("c0", {"GPU-a": 3})
    assert notes.read("c0").bytes_by_driver_gpu == {"GPU-a": 3}
    notes.add_migrated("c1", GpuState(gpus={"GPU-b": 2, "GPU-a": 1}, processes=2), ("GPU-x", "GPU-y"))
    assert notes.read("c1").bytes_by_driver_gpu == {"GPU-a": 1, "GPU-b": 2}


@pytest.mark.parametrize(
    ("until", "migrating"), [(0.0, False), (999.0, False), (1001.0, True), (1000.0 + 7260, True), (1.8e9, False)]
)
def test_a_migration_counts_for_as_long_as_it_may_take(until: float, migrating: bool) -> None:
    """A time of another clock, such as the wall clock, would otherwise never pass."""
    assert GpuStateNote(held={}, migrating_until=until).is_migrating(1000.0) is migrating


def test_a_migration_does_not_recreate_a_removed_note(tmp_path: Path) -> None:
    agent = GpuStateNotes(tmp_path / "gpu-state")
    agent.write_held("c1", {"GPU-a": 1})
    mover = GpuStateNotes(tmp_path / "gpu-state")
    mover.set_migrating_until("c1", 2e9)
    assert agent.read("c1").migrating_until == 2e9
    agent.remove("c1")
    mover.set_migrating_until("c1", 0.0)
    assert not GpuStateNotes(tmp_path / "gpu-state").has("c1")


def test_a_migration_and_the_agent_can_write_notes_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, mover = GpuStateNotes(tmp_path / "gpu-state"), GpuStateNotes(tmp_path / "gpu-state")
    replace = os.replace

    def interrupted(fresh: Path, note: Path) -> None:
        monkeypatch.setattr(os, "replace", replace)
        mover.write_held("c2", {"GPU-b": 2})
        replace(fresh, note)

    monkeypatch.setattr(os, "replace", interrupted)
    agent.write_held("c1", {"GPU-a": 1})
    after = GpuStateNotes(tmp_path / "gpu-state")
    assert (after.held_bytes("c1"), after.held_bytes("c2")) == ({"GPU-a": 1}, {"GPU-b": 2})


@pytest.mark.parametrize(("driver", "can"), [("575.51.03", False), ("580.95.05", True), ("610.43.02", True)])
def test_which_drivers_support_a_gpu_map(driver: str, can: bool) -> None:
    assert (gpu_map_unsupported(driver) is None) is can


def test_a_call_that_succeeds_after_its_timeout_is_undone() -> None:
    request_thaw, amended = threading.Event(), threading.Event()

    async def scene() -> None:
        with pytest.raises(DriverTimeoutError):
            await call_with_timeout(0.01, request_thaw.wait, amended.set)
        assert not amended.is_set()
        request_thaw.set()
        await asyncio.to_thread(amended.wait, 10)

    asyncio.run(scene())
    assert amended.is_set()


def test_the_result_and_the_error_of_a_call_are_passed_on() -> None:
    def fail() -> None:
        raise KeyError("x")

    assert asyncio.run(call_with_timeout(10, lambda: 7)) == 7
    with pytest.raises(KeyError):
        asyncio.run(call_with_timeout(10, fail))
