"""Drivers that answer only in part: no call that fails hides what the others know, nor another GPU."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nvml_stub import ERRORS, GIB, PER_GPU, NvmlStub

from podium_agent.deviceplugin.slots import slot_devices
from podium_agent.observe.gpu_health import Gpu, Reading, judge, merge
from podium_agent.observe.gpu_notes import BOOT_ID, GpuNotes
from podium_agent.observe.nvml import Driver
from podium_agent.schedule.exclusive_gpus import whole_gpu_devices

SAFE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
NOT_SAMPLED = {"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceRegisterEvents"}
UNUSABLE = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)


def boot(folder: Path, name: str) -> Path:
    """Return a /proc of a node that was started under this boot ID."""
    (folder / BOOT_ID).parent.mkdir(parents=True, exist_ok=True)
    (folder / BOOT_ID).write_text(f"{name}\n")
    return folder


def reading(driver: Driver) -> dict[str, Gpu]:
    return {gpu.uuid: gpu for gpu in merge(Reading(), driver.sample(), 1.0, driver.version).gpus}


def test_a_gpu_with_unified_memory_is_healthy_and_its_memory_unknown(nvml: NvmlStub) -> None:
    nvml.fail(0, pynvml.NVML_ERROR_NOT_SUPPORTED, "nvmlDeviceGetMemoryInfo")
    gpu = reading(Driver())["GPU-0"]
    assert (gpu.health, gpu.sample.product, gpu.sm_utilization) == ("Healthy", "NVIDIA-H200", 50.0)
    assert (gpu.sample.memory_total, gpu.sample.load.memory_used) == (0, 0)


@SAFE
@given(st.lists(st.tuples(st.sampled_from(PER_GPU), st.sampled_from(ERRORS)), max_size=4), st.booleans())
def test_no_error_hides_another_answer_or_another_gpu(
    nvml: NvmlStub, tmp_path_factory: pytest.TempPathFactory, errors: list[tuple[str, int]], restarts: bool
) -> None:
    nvml.errors.clear()
    folder = tmp_path_factory.mktemp("gpus")
    proc = boot(folder / "proc", "b1")
    driver = Driver(GpuNotes(folder / "notes", proc))
    whole = reading(driver)
    for call, error in errors:
        nvml.fail(0, error, call)
    after = reading(Driver(GpuNotes(folder / "notes", proc)) if restarts else driver)
    assert after["GPU-1"] == whole["GPU-1"]
    first, failed = after["GPU-0"], {call for call, _ in errors}
    assert (first.sample.product, first.sample.memory_total) == ("NVIDIA-H200", 80 * GIB)
    if not failed & {"nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"}:
        assert (first.sample.load.temperature is None) == ("nvmlDeviceGetTemperature" in failed)
        assert (first.sample.load.sm_clock is None) == ("nvmlDeviceGetClockInfo" in failed)
        assert (first.sample.load.memory_used == 0) == ("nvmlDeviceGetMemoryInfo" in failed)
        unusable = any(nvml.errors[0, call] in UNUSABLE for call in failed - NOT_SAMPLED)
        assert (first.health == "Unhealthy") == unusable


@pytest.mark.parametrize(
    ("error", "health", "reason"),
    [
        (pynvml.NVML_ERROR_GPU_IS_LOST, "Unhealthy", "GPULost"),
        (pynvml.NVML_ERROR_RESET_REQUIRED, "Unhealthy", "GPUResetRequired"),
        (pynvml.NVML_ERROR_UNKNOWN, "Unknown", "DriverError"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "Unknown", "DriverError"),
        (pynvml.NVML_ERROR_IRQ_ISSUE, "Unknown", "DriverError"),
    ],
)
def test_a_gpu_that_answers_nothing_is_known_to_the_next_agent_too(
    nvml: NvmlStub, tmp_path: Path, error: int, health: str, reason: str
) -> None:
    proc = boot(tmp_path / "proc", "b1")
    reading(Driver(GpuNotes(tmp_path / "notes", proc)))
    nvml.fail(0, error)
    gpus = reading(Driver(GpuNotes(tmp_path / "notes", proc)))
    assert (gpus["GPU-0"].health, gpus["GPU-1"].health) == (health, "Healthy")
    assert gpus["GPU-0"].health_reason.startswith(reason)
    after_reboot = reading(Driver(GpuNotes(tmp_path / "notes", boot(proc, "b2"))))
    assert after_reboot.keys() == {"GPU-1"}, "it may have been taken out of the machine"


def test_a_gpu_in_mig_mode_is_not_announced(nvml: NvmlStub) -> None:
    nvml.mig = {0}
    gpus = reading(Driver())
    assert gpus["GPU-0"].health_reason.startswith("MIGEnabled: ")
    assert [device.id for device in slot_devices(gpus.values(), 1)] == ["GPU-1::0"]
    assert [device.id for device in whole_gpu_devices(list(gpus.values()))] == ["GPU-1::exclusive"]


def test_an_xid_is_not_hidden_by_a_later_one_or_by_a_restart(nvml: NvmlStub, tmp_path: Path) -> None:
    proc = boot(tmp_path / "proc", "b1")
    driver = Driver(GpuNotes(tmp_path / "notes", proc))
    driver.sample()
    nvml.xids = [(0, 79), (0, 31)]
    nvml.fail(0, pynvml.NVML_ERROR_GPU_IS_LOST)
    driver.sample()
    nvml.errors.clear()
    for agent in (driver, Driver(GpuNotes(tmp_path / "notes", proc))):
        gpus = reading(agent)
        assert (gpus["GPU-0"].health, gpus["GPU-0"].sample.faults.xid, gpus["GPU-1"].health) == (
            "Unhealthy",
            79,
            "Healthy",
        )


def test_a_gpu_comes_back_after_an_xid_when_the_driver_asks_for_nothing_any_more(
    nvml: NvmlStub, tmp_path: Path
) -> None:
    proc = boot(tmp_path / "proc", "b1")
    driver = Driver(GpuNotes(tmp_path / "notes", proc))
    driver.sample()
    nvml.xids, nvml.recovery = [(0, 48)], {0: pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET}
    assert reading(driver)["GPU-0"].health_reason.startswith("Xid48: ")
    driver = Driver(GpuNotes(tmp_path / "notes", proc))
    assert reading(driver)["GPU-0"].health_reason.startswith("Xid48: ")
    nvml.recovery = {}
    back = reading(driver)["GPU-0"]
    assert (back.health, back.sample.faults.xid) == ("Healthy", 48), "the Xid stays visible"
    nvml.xids = [(0, 48)]
    assert reading(driver)["GPU-0"].health == "Unhealthy", "a new one counts again"


def test_an_xid_without_a_recovery_action_ends_with_its_note_or_with_a_reboot(nvml: NvmlStub, tmp_path: Path) -> None:
    proc = boot(tmp_path / "proc", "b1")
    driver = Driver(GpuNotes(tmp_path / "notes", proc))
    driver.sample()
    nvml.xids = [(0, 95), (1, 95)]
    assert {gpu.health for gpu in reading(driver).values()} == {"Unhealthy"}
    (tmp_path / "notes" / "GPU-0").unlink()
    gpus = reading(driver)
    assert (gpus["GPU-0"].health, gpus["GPU-0"].sample.faults.xid, gpus["GPU-1"].health) == ("Healthy", 95, "Unhealthy")
    gpus = reading(Driver(GpuNotes(tmp_path / "notes", proc)))
    assert (gpus["GPU-0"].health, gpus["GPU-0"].sample.faults.xid, gpus["GPU-1"].health) == ("Healthy", 95, "Unhealthy")
    gpus = reading(Driver(GpuNotes(tmp_path / "notes", boot(proc, "b2"))))
    assert {gpu.health for gpu in gpus.values()} == {"Healthy"}


def test_a_note_that_could_not_be_written_does_not_seem_deleted(nvml: NvmlStub, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("a file stands where the folder should be")
    driver = Driver(GpuNotes(tmp_path / "notes", boot(tmp_path / "proc", "b1")))
    driver.sample()
    nvml.xids = [(0, 79)]
    assert [judge(driver.sample()[0])[0] for _ in range(3)] == ["Unhealthy"] * 3


def test_a_lost_gpu_does_not_hide_the_xids_of_the_others(nvml: NvmlStub, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    driver.sample()
    nvml.fail(0, pynvml.NVML_ERROR_GPU_IS_LOST)
    nvml.xids = [(1, 79)]
    assert reading(driver)["GPU-1"].health_reason.startswith("Xid79: ")
