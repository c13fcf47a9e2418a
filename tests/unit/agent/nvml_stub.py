"""Stand-in for NVML whose calls fail one by one, for tests of drivers that answer only in part."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

GIB = 1 << 30
PER_GPU = (
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceRegisterEvents",
)
ERRORS = sorted(value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_"))


class NvmlStub:
    """GPUs by index; `errors`: the NVML error of a call on a GPU."""

    def __init__(self, patch: pytest.MonkeyPatch, count: int = 2) -> None:
        self.count = count
        self.errors: dict[tuple[int, str], int] = {}
        self.mig: set[int] = set()
        self.recovery: dict[int, int] = {}
        self.xids: list[tuple[int, int]] = []
        self.processes: dict[int, dict[int, int]] = {}
        answers: dict[str, Callable[[int], Any]] = {
            "nvmlDeviceGetHandleByIndex": lambda gpu: gpu,
            "nvmlDeviceGetUUID": lambda gpu: f"GPU-{gpu}",
            "nvmlDeviceGetName": lambda gpu: "NVIDIA H200",
            "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(
                total=80 * GIB, used=8 * GIB, free=72 * GIB, reserved=GIB
            ),
            "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=50),
            "nvmlDeviceGetTemperature": lambda gpu: 60,
            "nvmlDeviceGetClockInfo": lambda gpu: 1980,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: 0x8,
            "nvmlDeviceGetTotalEccErrors": lambda gpu: 0,
            "nvmlDeviceGetRemappedRows": lambda gpu: (0, 0, 0, 0),
            "nvmlDeviceGetMinorNumber": lambda gpu: gpu,
            "nvmlDeviceGetMigMode": lambda gpu: (int(gpu in self.mig), 0),
            "nvmlDeviceGetFieldValues": self._field_values,
            "nvmlDeviceGetComputeRunningProcesses": self._processes,
            "nvmlDeviceRegisterEvents": lambda gpu: None,
        }
        for name, answer in answers.items():
            patch.setattr(pynvml, name, self._call(name, answer))
        patch.setattr(pynvml, "nvmlInit", lambda: None)
        patch.setattr(pynvml, "nvmlShutdown", lambda: None)
        patch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "610.43.02")
        patch.setattr(pynvml, "nvmlDeviceGetCount", lambda: self.count)
        patch.setattr(pynvml, "nvmlEventSetCreate", object)
        patch.setattr(pynvml, "nvmlEventSetWait_v2", self._wait)

    def fail(self, gpu: int, error: int, *calls: str) -> None:
        """Let these calls on a GPU fail, or all."""
        for call in calls or PER_GPU:
            self.errors[gpu, call] = error

    def _call(self, name: str, answer: Callable[[int], Any]) -> Callable[..., Any]:
        def call(gpu: int, *_: Any, **__: Any) -> Any:
            if (gpu, name) in self.errors:
                raise pynvml.NVMLError(self.errors[gpu, name])
            return answer(gpu)

        return call

    def _field_values(self, gpu: int) -> list[Any]:
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=self.recovery.get(gpu, 0)))]

    def _processes(self, gpu: int) -> list[Any]:
        held = self.processes.get(gpu, {})
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in held.items()]

    def _wait(self, *_: Any) -> Any:
        if not self.xids:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        gpu, xid = self.xids.pop(0)
        return SimpleNamespace(device=gpu, eventType=pynvml.nvmlEventTypeXidCriticalError, eventData=xid)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    """NVML of a node with two GPUs."""
    return NvmlStub(monkeypatch)
