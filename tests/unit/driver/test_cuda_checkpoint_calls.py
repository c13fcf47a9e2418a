"""libcuda.so.1: the checkpoint states of a process that uses CUDA, and the calls that change them.

With PODIUM_TEST_DRIVER=real the same tests run on a real driver, except those that inject faults.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cuda_calls import (
    CALLS,
    CALLS_TO_REACH,
    CHECKPOINTED,
    FAILED,
    ILLEGAL_STATE,
    INVALID_VALUE,
    LOCKED,
    MI,
    NO_DEVICE,
    NOT_FOUND,
    NOT_INITIALIZED,
    NOT_READY,
    OK,
    OPERATING_SYSTEM,
    OUT_OF_MEMORY,
    RUNNING,
    SIZE,
    TRANSITIONS,
    UNKNOWN,
    Cuda,
    gpu_uuid,
    memory_by_pid,
)


@pytest.mark.parametrize("state", [RUNNING, LOCKED, CHECKPOINTED, FAILED])
def test_every_call_in_every_state(cuda: Cuda, cuda_node: Any, state: int) -> None:
    if state == FAILED:
        cuda_node.fault("break=restore")
    pid = cuda_node.start(SIZE).pid
    answers = [cuda.call(name, pid) for name in CALLS_TO_REACH[state]]
    assert answers == ([OK, OK, UNKNOWN] if state == FAILED else [OK] * len(answers))
    assert cuda.state(pid) == state
    for call in [call for call in CALLS if (state, call) not in TRANSITIONS]:
        assert cuda.call(call, pid) == ILLEGAL_STATE
        assert cuda.state(pid) == state, f"{call} changed the state"
    for call, after in [(call, after) for (before, call), after in TRANSITIONS.items() if before == state]:
        assert cuda.call(call, pid) == OK
        assert cuda.state(pid) == after
        if after == LOCKED and state == RUNNING:
            continue
        back = {CHECKPOINTED: "Restore", RUNNING: "Lock", LOCKED: "Checkpoint"}[after]
        assert cuda.call(back, pid) == OK


def test_a_checkpoint_removes_a_program_and_its_memory_from_the_gpu_and_a_restore_returns_both(
    cuda: Cuda, cuda_node: Any
) -> None:
    program = cuda_node.start(SIZE)
    assert memory_by_pid()[program.pid] >= SIZE
    for call in ("Lock", "Checkpoint"):
        assert cuda.call(call, program.pid) == OK
    steps = program.steps()
    assert program.pid not in memory_by_pid()
    for call in ("Restore", "Unlock"):
        assert cuda.call(call, program.pid) == OK
    assert memory_by_pid()[program.pid] >= SIZE
    assert program.continues()
    assert program.steps()[: len(steps)] == steps


def test_a_checkpointed_program_has_no_file_of_the_driver_open(cuda: Cuda, cuda_node: Any) -> None:
    """Otherwise CRIU would have to restore the file on another node."""
    program = cuda_node.start(MI)

    def open_files() -> set[str]:
        paths = {str(entry.readlink()) for entry in Path(f"/proc/{program.pid}/fd").iterdir()}
        return {path for path in paths if path.startswith(driver)}

    driver = "/dev/nvidia" if cuda_node.folder is None else str(cuda_node.folder / "state")
    assert open_files(), "while it runs"
    for call in ("Lock", "Checkpoint"):
        assert cuda.call(call, program.pid) == OK
    assert open_files() == set()
    for call in ("Restore", "Unlock"):
        assert cuda.call(call, program.pid) == OK
    assert program.continues()


def test_a_locked_program_makes_no_steps_and_other_programs_do(cuda: Cuda, cuda_node: Any) -> None:
    locked, free = cuda_node.start(MI), cuda_node.start(MI)
    assert cuda.call("Lock", locked.pid) == OK
    before = len(locked.steps())
    assert free.continues()
    assert (cuda.state(locked.pid), cuda.state(free.pid)) == (LOCKED, RUNNING)
    assert len(locked.steps()) <= before + 1, "one line may have been printed already"
    assert cuda.call("Unlock", locked.pid) == OK
    assert locked.continues()


def test_a_process_without_cuda_is_not_initialized_and_a_missing_one_is_an_error(cuda: Cuda, cuda_node: Any) -> None:
    program, other = cuda_node.start(MI), subprocess.Popen(["sleep", "60"])
    code, thread = cuda.query("GetRestoreThreadId", program.pid)
    assert code == OK
    assert Path(f"/proc/{program.pid}/task/{thread}").exists()
    assert cuda.query("GetRestoreThreadId", other.pid)[0] == NOT_INITIALIZED
    assert [cuda.call(call, other.pid) for call in CALLS] == [NOT_INITIALIZED] * 4
    other.kill()
    other.wait(timeout=300)
    assert [cuda.call("Lock", pid) for pid in (0, -1, other.pid)] == [OPERATING_SYSTEM] * 3


def test_a_lock_waits_for_work_until_its_timeout(cuda: Cuda, cuda_node: Any) -> None:
    pid = cuda_node.start(MI).pid
    cuda_node.fault("busy=1")
    begin = time.monotonic()
    assert cuda.call("Lock", pid, (ctypes.c_uint * 16)(50)) == NOT_READY
    assert time.monotonic() - begin >= 0.05
    assert cuda.state(pid) == RUNNING
    cuda_node.fault("busy=0")
    assert cuda.call("Lock", pid) == OK


def test_a_restore_without_enough_memory_fails_for_good(cuda: Cuda, cuda_node: Any) -> None:
    program = cuda_node.start(SIZE)
    for call in ("Lock", "Checkpoint"):
        assert cuda.call(call, program.pid) == OK
    cuda_node.occupy_memory(0, SIZE // 2)
    assert cuda.call("Restore", program.pid) == OUT_OF_MEMORY
    cuda_node.release_memory(0)
    for _ in range(2):
        codes = {call: cuda.call(call, program.pid) for call in CALLS}
        assert codes == {call: OPERATING_SYSTEM if call == "Restore" else ILLEGAL_STATE for call in CALLS}
    assert cuda.state(program.pid) == CHECKPOINTED, "the reported state"


@pytest.mark.parametrize("call", CALLS)
def test_reserved_fields_must_be_zero(cuda: Cuda, cuda_node: Any, call: str) -> None:
    pid = cuda_node.start(MI).pid
    assert cuda.call(call, pid, (ctypes.c_uint * 16)(*[0] * 15, 1)) == INVALID_VALUE
    assert cuda.state(pid) == RUNNING


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_changes_nothing(cuda: Cuda, cuda_node: Any, call: str) -> None:
    pid = cuda_node.start(MI).pid
    before = next(state for state, name in TRANSITIONS if name == call)
    for name in CALLS_TO_REACH[before]:
        assert cuda.call(name, pid) == OK
    cuda_node.fault(f"fail={call.lower()}")
    assert cuda.call(call, pid) == OPERATING_SYSTEM
    assert cuda.state(pid) == before
    cuda_node.fault("fail=")
    assert cuda.call(call, pid) == OK


def test_a_hanging_call_returns_when_the_fault_is_cleared_or_the_program_dies(cuda: Cuda, cuda_node: Any) -> None:
    first, second = cuda_node.start(MI), cuda_node.start(MI)
    cuda_node.fault(f"pid={first.pid}", "hang=lock")
    with ThreadPoolExecutor(2) as pool:
        call = pool.submit(cuda.call, "Lock", first.pid)
        assert cuda.call("Lock", second.pid) == OK
        assert not call.done()
        first.end()
        assert call.result(timeout=300) in (INVALID_VALUE, OPERATING_SYSTEM)
        cuda_node.fault(f"pid={second.pid}", "hang=unlock")
        call = pool.submit(cuda.call, "Unlock", second.pid)
        cuda_node.fault("all=ok")
        assert call.result(timeout=300) == OK


def test_a_stopped_program_does_not_answer(cuda: Cuda, cuda_node: Any) -> None:
    """So a program must not be frozen before a checkpoint: the driver needs a thread of it."""
    program = cuda_node.start(MI)
    program.process.send_signal(signal.SIGSTOP)
    os.waitpid(program.pid, os.WUNTRACED)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(cuda.call, "Lock", program.pid)
        time.sleep(0.1)
        assert not call.done()
        program.process.send_signal(signal.SIGCONT)
        assert call.result(timeout=300) == OK


def test_the_fault_lie_returns_success_and_keeps_the_memory(cuda: Cuda, cuda_node: Any) -> None:
    program = cuda_node.start(SIZE)
    cuda_node.fault("lie=1")
    for call in ("Lock", "Checkpoint"):
        assert cuda.call(call, program.pid) == OK
    assert cuda.state(program.pid) == CHECKPOINTED
    assert memory_by_pid()[program.pid] == SIZE
    for call in ("Restore", "Unlock"):
        assert cuda.call(call, program.pid) == OK


def test_copies_take_the_time_of_their_bytes(cuda: Cuda, cuda_node: Any) -> None:
    program = cuda_node.start(SIZE)
    cuda_node.fault("latency_ms=10", f"speed={SIZE * 20}")
    assert cuda.call("Lock", program.pid) == OK
    begin = time.monotonic()
    assert cuda.call("Checkpoint", program.pid) == OK
    assert time.monotonic() - begin >= 0.06, "0.05 s for the bytes and 0.01 s of latency"


def test_a_program_in_a_container_has_the_pid_of_the_host(cuda: Cuda, cuda_node: Any) -> None:
    if cuda_node.folder is None:
        pytest.skip("fake driver only: the kernel module of a real driver knows the PID")
    gpu = "GPU-" + str(UUID(bytes=bytes(gpu_uuid(1))))
    container = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    # the declared memory and the allocated memory do not fit together, so only one of them may count
    environment = {"NVIDIA_VISIBLE_DEVICES": gpu, "PODIUM_GPU_MEMORY_BYTES": str(15 << 30)}
    shell = cuda_node.start(2 << 30, container=container, environment=environment)
    pid = int(Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text())
    assert cuda.query("GetRestoreThreadId", pid)[0] == OK
    assert memory_by_pid(1)[pid] == 2 << 30
    for call, listed in (("Lock", True), ("Checkpoint", False), ("Restore", True), ("Unlock", True)):
        assert cuda.call(call, pid) == OK
        assert (pid in memory_by_pid(1)) == listed
    assert shell.continues()
    assert shell.steps()


def test_an_allocation_beyond_the_free_memory_fails(cuda: Cuda, cuda_node: Any) -> None:
    cuda_node.occupy_memory(0, 1 << 30)
    cuda_node.start(4 * MI)
    with pytest.raises(AssertionError, match="the program has ended"):
        cuda_node.start(1 << 30)
    cuda_node.release_memory(0)


def test_calls_without_cuinit_without_a_driver_and_of_an_unknown_function(
    driver: Path, gpud: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_FAKE_DRIVER_STATE", str(gpud.folder / "state"))
    copy = tmp_path / "libcuda.so.1"  # a copy, because a library that is loaded twice shares its state
    copy.write_bytes((driver / "libcuda.so.1").read_bytes())
    cuda = Cuda(str(copy))
    assert cuda.call("Lock", os.getpid()) == NOT_INITIALIZED
    assert cuda.init() == OK
    assert cuda.function("cuMemAllocManaged")[0] == NOT_FOUND
    gpud.stop()
    (gpud.folder / "state").unlink()
    assert cuda.call("Lock", os.getpid()) == NO_DEVICE
