"""Devices of this machine: GPUs of the driver, or groups of CPU cores."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from podium_core.schema.job import JobSpec
from podium_local import devices
from podium_local.devices import DeviceRequest, find_devices
from podium_local.errors import LocalError

GIB = 2**30


def spec(cpu: str = "1", **gpus: Any) -> JobSpec:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return JobSpec.model_validate(
        {
            "objective": {"metric": "loss", "direction": "minimize"},
            "parameters": [{"name": "lr", "min": 0.0, "max": 1.0}],
            "trials": {"max": 1, "maxSteps": 10},
            "template": {"spec": {"containers": [container]}},
            "gpus": gpus,
        }
    )


class Driver(SimpleNamespace):
    """A driver with two GPUs of 80 GiB; the second one is in MIG mode if `mig` is set."""

    NVMLError = RuntimeError
    mig = False

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, _handle: int) -> str:
        return "NVIDIA H100 80GB"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, _handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=80 * GIB)

    def nvmlDeviceGetMigMode(self, handle: int) -> tuple[int, int]:
        return (int(self.mig and handle == 1), 0)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    stub = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", stub)
    return stub


@pytest.mark.parametrize(
    ("cpu", "cpus", "expected"), [("1", 4, 4), ("200m", 4, 4), ("2", 4, 2), ("3", 4, 1), ("8", 4, 1)]
)
def test_cores_become_devices_for_one_trial_each(cpu: str, cpus: int, expected: int) -> None:
    found = find_devices(spec(cpu), DeviceRequest("none", cpus=cpus), {})
    assert len(found) == expected
    assert sum(device.cpus for device in found) <= cpus
    assert {device.slots for device in found} == {4}


@pytest.mark.parametrize(
    ("gpus", "request_", "slots"),
    [
        ({}, DeviceRequest(), 1),
        ({"memory": "30Gi"}, DeviceRequest(), 2),
        ({"memory": "1Gi"}, DeviceRequest(), 4),
        ({}, DeviceRequest(slots=3), 3),
    ],
)
@pytest.mark.usefixtures("driver")
def test_the_memory_of_suspended_trials_limits_the_slots_of_a_gpu(
    gpus: dict[str, Any], request_: DeviceRequest, slots: int
) -> None:
    found = find_devices(spec(**gpus), request_, {})
    assert [(device.uuid, device.slots, device.product) for device in found] == [
        ("GPU-0", slots, "NVIDIA-H100-80GB"),
        ("GPU-1", slots, "NVIDIA-H100-80GB"),
    ]


@pytest.mark.usefixtures("driver")
def test_gpus_are_chosen_by_option_and_by_variable() -> None:
    assert [one.uuid for one in find_devices(spec(), DeviceRequest("1"), {})] == ["GPU-1"]
    assert [one.uuid for one in find_devices(spec(), DeviceRequest(), {"CUDA_VISIBLE_DEVICES": "0"})] == ["GPU-0"]
    assert [one.uuid for one in find_devices(spec(), DeviceRequest(), {"CUDA_VISIBLE_DEVICES": "GPU-1"})] == ["GPU-1"]
    assert not any(one.is_gpu for one in find_devices(spec(), DeviceRequest(), {"CUDA_VISIBLE_DEVICES": ""}))
    assert not any(one.is_gpu for one in find_devices(spec(), DeviceRequest("none"), {}))


def test_a_gpu_in_mig_mode_runs_no_trial(driver: Driver) -> None:
    driver.mig = True
    assert [one.uuid for one in find_devices(spec(), DeviceRequest("all"), {})] == ["GPU-0"]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (DeviceRequest("7"), "GPUNotFound"),
        (DeviceRequest("first"), "InvalidOption"),
        (DeviceRequest(slots=0), "InvalidOption"),
        (DeviceRequest(cpus=0), "InvalidOption"),
    ],
)
@pytest.mark.usefixtures("driver")
def test_what_this_machine_has_not_is_refused(request_: DeviceRequest, reason: str) -> None:
    with pytest.raises(LocalError) as refused:
        find_devices(spec(), request_, {})
    assert refused.value.reason == reason


@pytest.mark.usefixtures("driver")
def test_a_trial_that_needs_more_devices_than_there_are_is_refused() -> None:
    with pytest.raises(LocalError, match="perTrial"):
        find_devices(spec(perTrial=3), DeviceRequest(), {})


def test_the_quota_of_the_cgroup_limits_the_cores(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text("100000 100000\n")
    monkeypatch.setattr(devices, "CPU_QUOTA", quota)
    assert devices.usable_cpus() == 1
