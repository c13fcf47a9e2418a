"""libcuda.so.1: a restore with a map of GPUs, to other GPUs than those of the checkpoint."""

from __future__ import annotations

import ctypes
import signal
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cuda_calls import INVALID_VALUE, MI, OK, SIZE, Cuda, Pair, RestoreArguments, gpu_uuid, memory_by_pid
from cuda_node import REAL, CudaNode, until


def test_a_map_moves_a_program_to_another_gpu(cuda: Cuda, cuda_node: Any) -> None:
    program = cuda_node.start(SIZE)
    for call in ("Lock", "Checkpoint"):
        assert cuda.call(call, program.pid) == OK
    wrong, right = Pair(gpu_uuid(1), gpu_uuid(0)), Pair(gpu_uuid(0), gpu_uuid(1))
    for pair, code in ((wrong, INVALID_VALUE), (right, OK)):
        arguments = RestoreArguments(ctypes.pointer(pair), 1)
        assert cuda.call("Restore", program.pid, arguments) == code
    assert cuda.call("Unlock", program.pid) == OK
    assert program.pid not in memory_by_pid(0)
    assert memory_by_pid(1)[program.pid] >= SIZE
    assert program.continues()
    program.process.send_signal(signal.SIGUSR1)
    until(lambda: memory_by_pid(1)[program.pid] >= 2 * SIZE, "later allocations are on the new GPU too")
    assert program.pid not in memory_by_pid(0)
    assert program.steps()


def test_a_map_must_name_all_gpus_of_a_program_and_each_target_once(cuda: Cuda, cuda_node: Any) -> None:
    assert gpu_uuid(1)
    program = cuda_node.start(SIZE, gpu="0,1")
    for call in ("Lock", "Checkpoint"):
        assert cuda.call(call, program.pid) == OK
    swapped = (Pair * 2)(Pair(gpu_uuid(0), gpu_uuid(1)), Pair(gpu_uuid(1), gpu_uuid(0)))
    same_target = (Pair * 2)(Pair(gpu_uuid(0), gpu_uuid(1)), Pair(gpu_uuid(1), gpu_uuid(1)))
    for pairs, count, code in ((swapped, 1, INVALID_VALUE), (same_target, 2, INVALID_VALUE), (swapped, 2, OK)):
        arguments = RestoreArguments(ctypes.cast(pairs, ctypes.POINTER(Pair)), count)
        assert cuda.call("Restore", program.pid, arguments) == code
    assert cuda.call("Unlock", program.pid) == OK
    assert memory_by_pid(0)[program.pid] >= SIZE
    assert memory_by_pid(1)[program.pid] >= SIZE
    assert program.continues()


FAKE_DRIVER_ONLY = pytest.mark.skipif(REAL, reason="needs GPUs of the fake driver")


@FAKE_DRIVER_ONLY
def test_a_map_to_a_gpu_of_another_product_is_refused(
    driver: Path, mixed_gpud: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_FAKE_DRIVER_STATE", str(mixed_gpud.folder / "state"))
    node = CudaNode(str(driver / "libcuda.so.1"), tmp_path)
    cuda = Cuda(node.library)
    assert cuda.init() == OK
    program = node.start(MI, gpu=1)
    for call in ("Lock", "Checkpoint"):
        assert cuda.call(call, program.pid) == OK
    for target, code in ((0, INVALID_VALUE), (2, OK)):
        pair = Pair(gpu_uuid(1), gpu_uuid(target))
        assert cuda.call("Restore", program.pid, RestoreArguments(ctypes.pointer(pair), 1)) == code
    assert f"process {program.pid} on 2 LOCKED memory {MI}\n" in run_gpud(mixed_gpud, "show")
    program.end()


def run_gpud(gpud: Any, *words: str) -> str:
    """Return the output of a command of podium-fake-gpud."""
    ran = subprocess.run([gpud.program, *words], env=gpud.environment, capture_output=True, text=True, check=True)
    return ran.stdout


@FAKE_DRIVER_ONLY
@pytest.mark.parametrize(("lie", "ends"), [(0, " off"), (1, "")])
def test_show_reports_whether_the_memory_is_on_the_gpu(
    driver: Path, mixed_gpud: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: int, ends: str
) -> None:
    monkeypatch.setenv("PODIUM_FAKE_DRIVER_STATE", str(mixed_gpud.folder / "state"))
    node = CudaNode(str(driver / "libcuda.so.1"), tmp_path)
    cuda = Cuda(node.library)
    assert cuda.init() == OK
    run_gpud(mixed_gpud, "checkpoint", f"lie={lie}")
    program = node.start(MI)
    for call in ("Lock", "Checkpoint"):
        assert cuda.call(call, program.pid) == OK
    assert f"process {program.pid} on 0 CHECKPOINTED memory {MI}{ends}\n" in run_gpud(mixed_gpud, "show")
    program.end()
    run_gpud(mixed_gpud, "checkpoint", "all=ok")


def test_work_is_logged_on_the_gpu_to_which_a_program_was_restored(cuda: Cuda, cuda_node: Any) -> None:
    if cuda_node.folder is None:
        pytest.skip("a real driver has no work.log")
    first, second = (f"GPU-{UUID(bytes=bytes(gpu_uuid(gpu)))}" for gpu in (0, 1))
    program = cuda_node.start(MI, environment={"NVIDIA_VISIBLE_DEVICES": first})

    def logged(gpu: str) -> bool:
        lines = [line.split(" ") for line in (cuda_node.folder / "work.log").read_text().splitlines()]
        return any(fields[2:4] == [gpu, str(program.pid)] for fields in lines if fields[0] != "#")

    until(lambda: logged(first), "work on the first GPU")
    for call in ("Lock", "Checkpoint"):
        assert cuda.call(call, program.pid) == OK
    assert not logged(second)
    pair = Pair(gpu_uuid(0), gpu_uuid(1))
    assert cuda.call("Restore", program.pid, RestoreArguments(ctypes.pointer(pair), 1)) == OK
    assert cuda.call("Unlock", program.pid) == OK
    until(lambda: logged(second), "work on the second GPU")
