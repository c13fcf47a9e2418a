"""libcuda.so.1: the checkpoint states of a process that holds CUDA, and each move between them.

With PODIUM_TEST_DRIVER=real the same tests ask a real driver (those without faults on command).
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
    CHECKPOINTED,
    FAILED,
    ILLEGAL_STATE,
    INVALID_VALUE,
    LEGAL,
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
    UNKNOWN,
    WAY,
    Cuda,
    held,
    uuid,
)


@pytest.mark.parametrize("state", [RUNNING, LOCKED, CHECKPOINTED, FAILED])
def test_every_move_from_every_state(cuda: Cuda, cuda_node: Any, state: int) -> None:
    if state == FAILED:
        cuda_node.fault("break=restore")
    pid = cuda_node.start(SIZE).pid
    answers = [cuda.move(name, pid) for name in WAY[state]]
    assert answers == ([OK, OK, UNKNOWN] if state == FAILED else [OK] * len(answers))
    assert cuda.state(pid) == state
    for call in [call for call in CALLS if (state, call) not in LEGAL]:
        assert cuda.move(call, pid) == ILLEGAL_STATE
        assert cuda.state(pid) == state, f"{call} changed it"
    for call, after in [(call, after) for (before, call), after in LEGAL.items() if before == state]:
        assert cuda.move(call, pid) == OK
        assert cuda.state(pid) == after
        if after == LOCKED and state == RUNNING:
            continue
        back = {CHECKPOINTED: "Restore", RUNNING: "Lock", LOCKED: "Checkpoint"}[after]
        assert cuda.move(back, pid) == OK


def test_a_checkpoint_takes_a_program_and_its_bytes_off_the_gpu_and_a_restore_puts_them_back(
    cuda: Cuda, cuda_node: Any
) -> None:
    program = cuda_node.start(SIZE)
    assert held()[program.pid] >= SIZE
    for call in ("Lock", "Checkpoint"):
        assert cuda.move(call, program.pid) == OK
    steps = program.steps()
    assert program.pid not in held()
    for call in ("Restore", "Unlock"):
        assert cuda.move(call, program.pid) == OK
    assert held()[program.pid] >= SIZE
    assert program.goes_on()
    assert program.steps()[: len(steps)] == steps


def test_a_checkpointed_program_holds_no_file_of_the_driver(cuda: Cuda, cuda_node: Any) -> None:
    """Else CRIU would have to bring it back on another node."""
    program = cuda_node.start(MI)

    def held() -> set[str]:
        paths = {str(entry.readlink()) for entry in Path(f"/proc/{program.pid}/fd").iterdir()}
        return {path for path in paths if path.startswith(driver)}

    driver = "/dev/nvidia" if cuda_node.folder is None else str(cuda_node.folder / "state")
    assert held(), "at work"
    for call in ("Lock", "Checkpoint"):
        assert cuda.move(call, program.pid) == OK
    assert held() == set()
    for call in ("Restore", "Unlock"):
        assert cuda.move(call, program.pid) == OK
    assert program.goes_on()


def test_a_locked_program_computes_nothing_and_each_has_a_state_of_its_own(cuda: Cuda, cuda_node: Any) -> None:
    locked, free = cuda_node.start(MI), cuda_node.start(MI)
    assert cuda.move("Lock", locked.pid) == OK
    before = len(locked.steps())
    assert free.goes_on()
    assert (cuda.state(locked.pid), cuda.state(free.pid)) == (LOCKED, RUNNING)
    assert len(locked.steps()) <= before + 1, "a line that was on its way"
    assert cuda.move("Unlock", locked.pid) == OK
    assert locked.goes_on()


def test_who_holds_cuda(cuda: Cuda, cuda_node: Any) -> None:
    program, other = cuda_node.start(MI), subprocess.Popen(["sleep", "60"])
    code, thread = cuda.asked("GetRestoreThreadId", program.pid)
    assert code == OK
    assert Path(f"/proc/{program.pid}/task/{thread}").exists()
    assert cuda.asked("GetRestoreThreadId", other.pid)[0] == NOT_INITIALIZED
    assert [cuda.move(call, other.pid) for call in CALLS] == [NOT_INITIALIZED] * 4
    other.kill()
    other.wait(timeout=300)
    assert [cuda.move("Lock", pid) for pid in (0, -1, other.pid)] == [OPERATING_SYSTEM] * 3


def test_a_lock_waits_for_work_until_its_time_is_over(cuda: Cuda, cuda_node: Any) -> None:
    pid = cuda_node.start(MI).pid
    cuda_node.fault("busy=1")
    begin = time.monotonic()
    assert cuda.move("Lock", pid, (ctypes.c_uint * 16)(50)) == NOT_READY
    assert time.monotonic() - begin >= 0.05
    assert cuda.state(pid) == RUNNING
    cuda_node.fault("busy=0")
    assert cuda.move("Lock", pid) == OK


def test_a_restore_without_the_memory_is_the_end_of_it(cuda: Cuda, cuda_node: Any) -> None:
    program = cuda_node.start(SIZE)
    for call in ("Lock", "Checkpoint"):
        assert cuda.move(call, program.pid) == OK
    cuda_node.stranger(0, SIZE // 2)
    assert cuda.move("Restore", program.pid) == OUT_OF_MEMORY
    cuda_node.no_stranger(0)
    for _ in range(2):
        codes = {call: cuda.move(call, program.pid) for call in CALLS}
        assert codes == {call: OPERATING_SYSTEM if call == "Restore" else ILLEGAL_STATE for call in CALLS}
    assert cuda.state(program.pid) == CHECKPOINTED, "by its name"


@pytest.mark.parametrize("call", CALLS)
def test_reserved_fields_must_be_zero(cuda: Cuda, cuda_node: Any, call: str) -> None:
    pid = cuda_node.start(MI).pid
    assert cuda.move(call, pid, (ctypes.c_uint * 16)(*[0] * 15, 1)) == INVALID_VALUE
    assert cuda.state(pid) == RUNNING


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_is_refused_changes_nothing(cuda: Cuda, cuda_node: Any, call: str) -> None:
    pid = cuda_node.start(MI).pid
    before = next(state for state, name in LEGAL if name == call)
    for name in WAY[before]:
        assert cuda.move(name, pid) == OK
    cuda_node.fault(f"fail={call.lower()}")
    assert cuda.move(call, pid) == OPERATING_SYSTEM
    assert cuda.state(pid) == before
    cuda_node.fault("fail=")
    assert cuda.move(call, pid) == OK


def test_a_call_that_hangs_hangs_until_it_is_let_go_or_the_program_dies(cuda: Cuda, cuda_node: Any) -> None:
    first, second = cuda_node.start(MI), cuda_node.start(MI)
    cuda_node.fault(f"pid={first.pid}", "hang=lock")
    with ThreadPoolExecutor(2) as pool:
        call = pool.submit(cuda.move, "Lock", first.pid)
        assert cuda.move("Lock", second.pid) == OK
        assert not call.done()
        first.end()
        assert call.result(timeout=300) in (INVALID_VALUE, OPERATING_SYSTEM)
        cuda_node.fault(f"pid={second.pid}", "hang=unlock")
        call = pool.submit(cuda.move, "Unlock", second.pid)
        cuda_node.fault("all=ok")
        assert call.result(timeout=300) == OK


def test_a_stopped_program_gives_no_answer(cuda: Cuda, cuda_node: Any) -> None:
    """So it must not be frozen before: the driver needs a thread of it."""
    program = cuda_node.start(MI)
    program.process.send_signal(signal.SIGSTOP)
    os.waitpid(program.pid, os.WUNTRACED)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(cuda.move, "Lock", program.pid)
        time.sleep(0.1)
        assert not call.done()
        program.process.send_signal(signal.SIGCONT)
        assert call.result(timeout=300) == OK


def test_a_lie_says_success_and_keeps_the_memory(cuda: Cuda, cuda_node: Any) -> None:
    program = cuda_node.start(SIZE)
    cuda_node.fault("lie=1")
    for call in ("Lock", "Checkpoint"):
        assert cuda.move(call, program.pid) == OK
    assert cuda.state(program.pid) == CHECKPOINTED
    assert held()[program.pid] == SIZE
    for call in ("Restore", "Unlock"):
        assert cuda.move(call, program.pid) == OK


def test_copies_take_what_their_bytes_take(cuda: Cuda, cuda_node: Any) -> None:
    program = cuda_node.start(SIZE)
    cuda_node.fault("latency_ms=10", f"speed={SIZE * 20}")
    assert cuda.move("Lock", program.pid) == OK
    begin = time.monotonic()
    assert cuda.move("Checkpoint", program.pid) == OK
    assert time.monotonic() - begin >= 0.06, "a twentieth of a second, and the latency"


def test_a_program_in_a_container_is_known_by_the_pid_of_the_host(cuda: Cuda, cuda_node: Any) -> None:
    if cuda_node.folder is None:
        pytest.skip("of the fake driver: in a real one the kernel's part knows")
    gpu = "GPU-" + str(UUID(bytes=bytes(uuid(1))))
    container = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    # what it declared leaves no room for what it takes, if both were counted
    environment = {"NVIDIA_VISIBLE_DEVICES": gpu, "PODIUM_GPU_MEMORY_BYTES": str(15 << 30)}
    shell = cuda_node.start(2 << 30, container=container, environment=environment)
    pid = int(Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text())
    assert cuda.asked("GetRestoreThreadId", pid)[0] == OK
    assert held(1)[pid] == 2 << 30
    for call, listed in (("Lock", True), ("Checkpoint", False), ("Restore", True), ("Unlock", True)):
        assert cuda.move(call, pid) == OK
        assert (pid in held(1)) == listed
    assert shell.goes_on()
    assert shell.steps()


def test_no_more_can_be_allocated_than_there_is(cuda: Cuda, cuda_node: Any) -> None:
    cuda_node.stranger(0, 1 << 30)
    cuda_node.start(4 * MI)
    with pytest.raises(AssertionError, match="it does not run"):
        cuda_node.start(1 << 30)
    cuda_node.no_stranger(0)


def test_without_a_start_without_a_driver_and_without_a_function(
    driver: Path, gpud: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_FAKE_DRIVER_STATE", str(gpud.folder / "state"))
    copy = tmp_path / "libcuda.so.1"  # a copy: a library loaded twice would be one, initialised already
    copy.write_bytes((driver / "libcuda.so.1").read_bytes())
    cuda = Cuda(str(copy))
    assert cuda.move("Lock", os.getpid()) == NOT_INITIALIZED
    assert cuda.init() == OK
    assert cuda.function("cuMemAllocManaged")[0] == NOT_FOUND
    gpud.stop()
    (gpud.folder / "state").unlink()
    assert cuda.move("Lock", os.getpid()) == NO_DEVICE
