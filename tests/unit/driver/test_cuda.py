"""libcuda.so.1 of the fake driver: the checkpoint state machine of each process, as cuda-bindings reach it."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

RUNNING, LOCKED, CHECKPOINTED = 0, 1, 2
OK, INVALID_VALUE, NOT_INITIALIZED, NO_DEVICE, ILLEGAL_STATE, NOT_FOUND = 0, 1, 3, 100, 401, 500
GI = 1 << 30


class Cuda:
    """The library, its functions looked up as cuda-bindings do: through cuGetProcAddress_v2 only."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def function(self, name: str) -> tuple[int, Callable[..., int]]:
        pointer = ctypes.c_void_p()
        code = self._library.cuGetProcAddress_v2(name.encode(), ctypes.byref(pointer), 13000, ctypes.c_uint64(0), None)
        return code, ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(pointer.value or 0)

    def move(self, name: str, pid: int) -> int:
        code, function = self.function(f"cuCheckpointProcess{name}")
        assert code == OK
        return function(pid, None)

    def state(self, pid: int) -> int:
        out = ctypes.c_int(-1)
        assert self.function("cuCheckpointProcessGetState")[1](pid, ctypes.addressof(out)) == OK
        return out.value

    def init(self) -> int:
        return int(self._library.cuInit(0))


@pytest.fixture
def cuda(driver: Path, gpud: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cuda:
    monkeypatch.setenv("PODIUM_FAKE_DRIVER_STATE", str(gpud.folder / "state"))
    copy = tmp_path / "libcuda.so.1"  # a copy each: a library loaded twice would be one, initialised already
    copy.write_bytes((driver / "libcuda.so.1").read_bytes())
    return Cuda(copy)


@pytest.fixture
def process() -> Iterator[int]:
    sleeper = subprocess.Popen(["sleep", "60"])
    yield sleeper.pid
    sleeper.kill()
    sleeper.wait(timeout=10)


def test_there_and_back(cuda: Cuda, process: int) -> None:
    assert cuda.init() == OK
    steps = [("Lock", LOCKED), ("Checkpoint", CHECKPOINTED), ("Restore", LOCKED), ("Unlock", RUNNING)]
    assert cuda.state(process) == RUNNING
    for name, state in steps:
        assert cuda.move(name, process) == OK
        assert cuda.state(process) == state


@pytest.mark.parametrize(
    ("way", "illegal"),
    [
        ([], ["Checkpoint", "Restore", "Unlock"]),
        (["Lock"], ["Lock", "Restore"]),
        (["Lock", "Checkpoint"], ["Lock", "Checkpoint", "Unlock"]),
    ],
)
def test_illegal_moves_change_nothing(cuda: Cuda, process: int, way: list[str], illegal: list[str]) -> None:
    cuda.init()
    assert [cuda.move(name, process) for name in way] == [OK] * len(way)
    before = cuda.state(process)
    assert [cuda.move(name, process) for name in illegal] == [ILLEGAL_STATE] * len(illegal)
    assert cuda.state(process) == before


def test_each_process_has_its_own_state(cuda: Cuda, process: int) -> None:
    cuda.init()
    assert cuda.move("Lock", process) == OK
    assert (cuda.state(process), cuda.state(os.getpid())) == (LOCKED, RUNNING)


def test_no_process_no_driver_no_function(cuda: Cuda, gpud: Any, process: int) -> None:
    assert cuda.move("Lock", process) == NOT_INITIALIZED
    assert cuda.init() == OK
    gone = subprocess.Popen(["true"])
    gone.wait(timeout=10)
    assert [cuda.move("Lock", pid) for pid in (0, -1, gone.pid)] == [INVALID_VALUE] * 3
    assert cuda.function("cuMemAlloc_v2")[0] == NOT_FOUND
    gpud.stop()
    (gpud.folder / "state").unlink()
    assert cuda.move("Lock", process) == NO_DEVICE


@pytest.mark.skipif(os.geteuid() != 0, reason="the daemon reads other processes' environments: root only")
def test_a_checkpointed_process_gives_its_memory_back(cuda: Cuda, gpud: Any, until: Callable[..., None]) -> None:
    worker = gpud.work(gpud.uuid(0), memory=2 * GI)
    used = "answer = n.nvmlDeviceGetMemoryInfo(h[0]).used >> 30"
    until(lambda: gpud.nvml(used) == 2, "memory in use")
    cuda.init()
    for name in ("Lock", "Checkpoint"):
        assert cuda.move(name, worker.pid) == OK
    until(lambda: gpud.nvml(used) == 0, "memory free")
    for name in ("Restore", "Unlock"):
        assert cuda.move(name, worker.pid) == OK
    until(lambda: gpud.nvml(used) == 2, "memory in use again")
