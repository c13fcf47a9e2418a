"""libcuda.so.1: a restore by a map of GPUs, onto others than those that a program left."""

from __future__ import annotations

import ctypes
import signal
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cuda_calls import INVALID_VALUE, MI, OK, SIZE, Cuda, Pair, RestoreArguments, held, uuid
from cuda_node import REAL, CudaNode, until


def test_a_map_moves_a_program_to_another_gpu(cuda: Cuda, cuda_node: Any) -> None:
    program = cuda_node.start(SIZE)
    for call in ("Lock", "Checkpoint"):
        assert cuda.move(call, program.pid) == OK
    wrong, right = Pair(uuid(1), uuid(0)), Pair(uuid(0), uuid(1))
    for pair, code in ((wrong, INVALID_VALUE), (right, OK)):
        arguments = RestoreArguments(ctypes.pointer(pair), 1)
        assert cuda.move("Restore", program.pid, arguments) == code
    assert cuda.move("Unlock", program.pid) == OK
    assert program.pid not in held(0)
    assert held(1)[program.pid] >= SIZE
    assert program.goes_on()
    program.process.send_signal(signal.SIGUSR1)
    until(lambda: held(1)[program.pid] >= 2 * SIZE, "what it takes from now on lies there too")
    assert program.pid not in held(0)
    assert program.steps()


def test_a_map_names_all_gpus_of_a_program(cuda: Cuda, cuda_node: Any) -> None:
    assert uuid(1)
    program = cuda_node.start(SIZE, gpu="0,1")
    for call in ("Lock", "Checkpoint"):
        assert cuda.move(call, program.pid) == OK
    straight = (Pair * 2)(Pair(uuid(0), uuid(1)), Pair(uuid(1), uuid(0)))
    twice = (Pair * 2)(Pair(uuid(0), uuid(1)), Pair(uuid(1), uuid(1)))
    for pairs, count, code in ((straight, 1, INVALID_VALUE), (twice, 2, INVALID_VALUE), (straight, 2, OK)):
        arguments = RestoreArguments(ctypes.cast(pairs, ctypes.POINTER(Pair)), count)
        assert cuda.move("Restore", program.pid, arguments) == code
    assert cuda.move("Unlock", program.pid) == OK
    assert held(0)[program.pid] >= SIZE
    assert held(1)[program.pid] >= SIZE
    assert program.goes_on()


OF_THE_FAKE = pytest.mark.skipif(REAL, reason="of the fake driver's own GPUs")


@OF_THE_FAKE
def test_a_map_to_a_gpu_of_another_product_is_refused(
    driver: Path, mixed_gpud: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_FAKE_DRIVER_STATE", str(mixed_gpud.folder / "state"))
    node = CudaNode(str(driver / "libcuda.so.1"), tmp_path)
    cuda = Cuda(node.library)
    assert cuda.init() == OK
    program = node.start(MI, gpu=1)
    for call in ("Lock", "Checkpoint"):
        assert cuda.move(call, program.pid) == OK
    for target, code in ((0, INVALID_VALUE), (2, OK)):
        pair = Pair(uuid(1), uuid(target))
        assert cuda.move("Restore", program.pid, RestoreArguments(ctypes.pointer(pair), 1)) == code
    assert f"process {program.pid} on 2 LOCKED memory {MI}\n" in told(mixed_gpud, "show")
    program.end()


def told(gpud: Any, *words: str) -> str:
    """What the daemon's program prints for a command."""
    ran = subprocess.run([gpud.program, *words], env=gpud.environment, capture_output=True, text=True, check=True)
    return ran.stdout


@OF_THE_FAKE
@pytest.mark.parametrize(("lie", "ends"), [(0, " off"), (1, "")])
def test_show_tells_whether_the_bytes_are_on_the_gpu(
    driver: Path, mixed_gpud: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: int, ends: str
) -> None:
    monkeypatch.setenv("PODIUM_FAKE_DRIVER_STATE", str(mixed_gpud.folder / "state"))
    node = CudaNode(str(driver / "libcuda.so.1"), tmp_path)
    cuda = Cuda(node.library)
    assert cuda.init() == OK
    told(mixed_gpud, "checkpoint", f"lie={lie}")
    program = node.start(MI)
    for call in ("Lock", "Checkpoint"):
        assert cuda.move(call, program.pid) == OK
    assert f"process {program.pid} on 0 CHECKPOINTED memory {MI}{ends}\n" in told(mixed_gpud, "show")
    program.end()
    told(mixed_gpud, "checkpoint", "all=ok")


def test_work_is_noted_on_the_gpu_that_a_program_was_moved_to(cuda: Cuda, cuda_node: Any) -> None:
    if cuda_node.folder is None:
        pytest.skip("a real driver keeps no record")
    first, second = (f"GPU-{UUID(bytes=bytes(uuid(gpu)))}" for gpu in (0, 1))
    program = cuda_node.start(MI, environment={"NVIDIA_VISIBLE_DEVICES": first})

    def noted(gpu: str) -> bool:
        lines = [line.split(" ") for line in (cuda_node.folder / "work.log").read_text().splitlines()]
        return any(fields[2:4] == [gpu, str(program.pid)] for fields in lines if fields[0] != "#")

    until(lambda: noted(first), "work where it began")
    for call in ("Lock", "Checkpoint"):
        assert cuda.move(call, program.pid) == OK
    assert not noted(second)
    pair = Pair(uuid(0), uuid(1))
    assert cuda.move("Restore", program.pid, RestoreArguments(ctypes.pointer(pair), 1)) == OK
    assert cuda.move("Unlock", program.pid) == OK
    until(lambda: noted(second), "work where it is now")
