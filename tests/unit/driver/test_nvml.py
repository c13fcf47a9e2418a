"""libnvidia-ml.so.1 of the fake driver through the real pynvml: readings, faults and error codes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

GI = 1 << 30


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("n.nvmlSystemGetDriverVersion()", "610.43.02"),
        ("n.nvmlSystemGetNVMLVersion()", "13.610.43.02"),
        ("n.nvmlSystemGetCudaDriverVersion()", 13030),
        ("n.nvmlDeviceGetCount()", 2),
        ("[n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(x))) for x in h]", [0, 1]),
        ("n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId(n.nvmlDeviceGetPciInfo(h[1]).busId))", 1),
        ("n.nvmlDeviceGetName(h[0])", "Podium-Fake-GPU"),
        ("[(m := n.nvmlDeviceGetMemoryInfo(h[0])).total, m.free, m.used]", [16 * GI, 16 * GI, 0]),
        ("[(m := n.nvmlDeviceGetMemoryInfo(h[0], n.nvmlMemory_v2)).total, m.free, m.used]", [16 * GI, 16 * GI, 0]),
        ("[(u := n.nvmlDeviceGetUtilizationRates(h[0])).gpu, u.memory]", [0, 0]),
        ("[n.nvmlDeviceGetTemperature(h[0], 0), n.nvmlDeviceGetTemperatureV(h[0], 0)]", [34, 34]),
        ("[n.nvmlDeviceGetClockInfo(h[0], k) for k in range(3)]", [345, 345, 1593]),
        ("[n.nvmlDeviceGetMaxClockInfo(h[0], k) for k in range(3)]", [1980, 1980, 2619]),
        ("n.nvmlDeviceGetCurrentClocksEventReasons(h[0])", 1),
        ("n.nvmlDeviceGetCurrentClocksThrottleReasons(h[0])", 1),
        ("n.nvmlDeviceGetSupportedClocksEventReasons(h[0])", 0x1FF),
        ("n.nvmlDeviceGetEccMode(h[0])", [1, 1]),
        ("n.nvmlDeviceGetTotalEccErrors(h[0], 1, 0)", 0),
        ("list(n.nvmlDeviceGetRetiredPages(h[0], 0))", []),
        ("n.nvmlDeviceGetRemappedRows(h[0])", [0, 0, 0, 0]),
        ("n.nvmlDeviceGetComputeRunningProcesses(h[0])", []),
        ("[n.nvmlDeviceGetPowerUsage(h[0]), n.nvmlDeviceGetEnforcedPowerLimit(h[0])]", [72000, 700000]),
        ("n.nvmlDeviceGetPciInfo(h[1]).busId", "00000000:0B:00.0"),
        ("n.nvmlDeviceGetPersistenceMode(h[0])", 1),
        ("n.nvmlDeviceGetCudaComputeCapability(h[0])", [9, 0]),
        ("[n.nvmlDeviceGetTopologyCommonAncestor(h[0], x) for x in h]", [0, 40]),
        ("[n.nvmlDeviceGetArchitecture(h[0]), n.nvmlDeviceGetBrand(h[0])]", [9, 14]),
        ("n.nvmlDeviceGetMaxMigDeviceCount(h[0])", 0),
        ("n.nvmlDeviceIsMigDeviceHandle(h[0]).value", 0),
        ("[n.nvmlDeviceGetModuleId(x) for x in h]", [1, 2]),
        ("n.nvmlDeviceSetPersistenceMode(h[0], 1)", None),
    ],
)
def test_an_idle_gpu(idle_gpud: Any, body: str, answer: object) -> None:
    assert idle_gpud.nvml(f"answer = {body}") == answer


def failing(call: str) -> str:
    return f"""
    try:
        {call}
        answer = 'no error'
    except n.NVMLError as error:
        answer = type(error).__name__
    """


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("n.nvmlDeviceGetMigMode(h[0])", "NVMLError_NotSupported"),
        ("n.nvmlDeviceGetFanSpeed(h[0])", "NVMLError_NotSupported"),
        ("n.nvmlDeviceGetNvLinkState(h[0], 0)", "NVMLError_NotSupported"),
        ("n.nvmlDeviceSetPersistenceMode(h[0], 0)", "NVMLError_NotSupported"),
        ("n.nvmlDeviceGetHandleByIndex(2)", "NVMLError_InvalidArgument"),
        ("n.nvmlDeviceGetHandleByUUID('GPU-none')", "NVMLError_NotFound"),
        ("n.nvmlDeviceGetTemperature(h[0], 7)", "NVMLError_InvalidArgument"),
        ("n.nvmlShutdown(); n.nvmlDeviceGetCount()", "NVMLError_Uninitialized"),
    ],
)
def test_error_codes(idle_gpud: Any, call: str, error: str) -> None:
    assert idle_gpud.nvml(failing(call)) == error


@pytest.mark.parametrize(
    ("faults", "body", "answer"),
    [
        (["temperature=91"], "n.nvmlDeviceGetTemperature(h[0], 0)", 91),
        (["utilization=55"], "n.nvmlDeviceGetUtilizationRates(h[0]).gpu", 55),
        (["sm_clock=900"], "[n.nvmlDeviceGetClockInfo(h[0], k) for k in range(3)]", [900, 900, 1593]),
        (["throttle=hw_thermal,sw_power_cap"], "n.nvmlDeviceGetCurrentClocksEventReasons(h[0])", 0x44),
        (["throttle=0x8"], "n.nvmlDeviceGetCurrentClocksEventReasons(h[0])", 8),
        (["ecc=3", "ecc_corrected=9"], "[n.nvmlDeviceGetTotalEccErrors(h[0], k, 0) for k in (0, 1)]", [9, 3]),
        (["remap_failed=1", "retired_pending=1"], "n.nvmlDeviceGetRemappedRows(h[0])", [0, 0, 1, 1]),
        (["memory=2Gi"], "n.nvmlDeviceGetMemoryInfo(h[0]).used", 2 * GI),
        (["memory=99Gi"], "n.nvmlDeviceGetMemoryInfo(h[0]).free", 0),
        (
            ["memory=2Gi", "memory_pid=77"],
            "[(p.pid, p.usedGpuMemory) for p in n.nvmlDeviceGetComputeRunningProcesses(h[0])]",
            [[77, 2 * GI]],
        ),
        (["temperature=91", "temperature="], "n.nvmlDeviceGetTemperature(h[0], 0)", 34),
        (["ecc=3", "health=ok"], "n.nvmlDeviceGetTotalEccErrors(h[0], 1, 0)", 0),
    ],
)
def test_faults(idle_gpud: Any, faults: list[str], body: str, answer: object) -> None:
    assert idle_gpud.set(idle_gpud.uuid(0), *faults).returncode == 0
    assert idle_gpud.nvml(f"answer = {body}") == answer
    idle_gpud.set("all", "health=ok")


def test_a_lost_gpu_returns_gpu_is_lost_and_the_other_gpu_still_answers(idle_gpud: Any) -> None:
    idle_gpud.set("1", "health=lost")
    assert idle_gpud.nvml(failing("n.nvmlDeviceGetUtilizationRates(h[1])")) == "NVMLError_GpuIsLost"
    assert idle_gpud.nvml("answer = n.nvmlDeviceGetTemperature(h[0], 0)") == 34
    idle_gpud.set("1", "health=ok")


@pytest.mark.parametrize(
    ("gpu", "assignments", "message"),
    [
        ("0", [], "give a GPU"),
        ("0", ["temperature"], "must have the form field=value"),
        ("0", ["warmth=3"], "unknown field"),
        ("0", ["temperature=hot"], "invalid value for this field"),
        ("0", ["throttle=lazy"], "invalid value for this field"),
        ("0", ["health=so-so"], "health must be lost or ok"),
        ("GPU-none", ["ecc=1"], "no GPU GPU-none on this node"),
    ],
)
def test_invalid_faults_change_nothing(idle_gpud: Any, gpu: str, assignments: list[str], message: str) -> None:
    done = idle_gpud.set(gpu, *assignments)
    assert done.returncode == 2
    assert message in done.stderr


def test_every_function_of_nvml_is_there(driver: Path) -> None:
    """go-nvml ends the process at the call of a missing function. pynvml lists the functions that callers may know."""
    symbols = subprocess.run(
        ["nm", "-D", str(driver / "libnvidia-ml.so.1")], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    exported = set(re.findall(r" T (nvml\w+)$", symbols, re.MULTILINE))
    assert pynvml.__file__ is not None
    known = set(re.findall(r'_nvmlGetFunctionPointer\(\s*"(nvml\w+)"', Path(pynvml.__file__).read_text()))
    assert len(known) > 300
    assert known - exported == set()


def test_each_xid_is_one_event(idle_gpud: Any) -> None:
    answer = idle_gpud.nvml(
        f"""
        import os, subprocess
        events = n.nvmlEventSetCreate()
        n.nvmlDeviceRegisterEvents(h[1], n.nvmlEventTypeXidCriticalError, events)
        def wait(ms):
            try:
                event = n.nvmlEventSetWait_v2(events, ms)
                return [n.nvmlDeviceGetIndex(event.device), event.eventType, event.eventData]
            except n.NVMLError_Timeout:
                return 'timeout'
        answer = [wait(50)]
        for _ in range(2):
            subprocess.run([{idle_gpud.program!r}, 'set', '1', 'xid=79'], env={idle_gpud.environment!r}, check=True)
            answer.append(wait(5000))
        answer.append(wait(50))
        n.nvmlEventSetFree(events)
        """
    )
    assert answer == ["timeout", [1, 8, 79], [1, 8, 79], "timeout"]


def initialise(driver: Path, state: Path) -> str:
    """Return "ok", or the name of the error of nvmlInit."""
    script = "import pynvml as n\ntry:\n n.nvmlInit(); print('ok')\nexcept n.NVMLError as e: print(type(e).__name__)"
    environment = {"LD_LIBRARY_PATH": str(driver), "PODIUM_FAKE_DRIVER_STATE": str(state)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("content", [None, b"", b"x" * 400_000])
def test_a_missing_or_invalid_state_means_that_the_driver_is_not_loaded(
    driver: Path, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "state").write_bytes(content)
    assert initialise(driver, tmp_path / "state") == "NVMLError_DriverNotLoaded"


def test_a_driver_that_is_removed_and_returns(idle_gpud: Any, tmp_path: Path) -> None:
    """An open NVML returns DRIVER_NOT_LOADED without a state, and readings once it is there again."""
    copy = tmp_path / "state"
    shutil.copy(idle_gpud.folder / "state", copy)
    answer = idle_gpud.nvml(
        f"""
        import os
        path = {str(copy)!r}
        n.nvmlShutdown()
        os.environ['PODIUM_FAKE_DRIVER_STATE'] = path
        n.nvmlInit()
        answer = [n.nvmlDeviceGetCount()]
        os.rename(path, path + '.away')
        try:
            n.nvmlDeviceGetCount()
        except n.NVMLError as error:
            answer.append(type(error).__name__)
        os.rename(path + '.away', path)
        answer.append(n.nvmlDeviceGetTemperature(h[0], 0))
        """
    )
    assert answer == [2, "NVMLError_DriverNotLoaded", 34]
