"""The fake driver's daemon: counted work and memory, work.log, and restarts."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GI = 1 << 30
Until = Callable[..., None]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="reads other processes' environments: root only")


def readings(gpud: Any) -> list[list[int]]:
    """Return the utilisation, the used memory (Gi) and the number of processes of each GPU."""
    answer: list[list[int]] = gpud.nvml(
        "answer = [[n.nvmlDeviceGetUtilizationRates(x).gpu, n.nvmlDeviceGetMemoryInfo(x).used >> 30,"
        " len(n.nvmlDeviceGetComputeRunningProcesses(x))] for x in h]"
    )
    return answer


def worked(gpud: Any, pid: int) -> bool:
    """Return whether the log has work of a process."""
    return any(interval.pid == pid for interval in gpud.log())


def test_utilisation_and_memory_follow_the_container_that_works(gpud: Any, until: Until) -> None:
    """The declared memory of a container counts once, for all its processes.

    Here the container is a cgroup.
    """
    gpud.work(gpud.uuid(0), memory=3 * GI)
    gpud.work(gpud.uuid(0), memory=3 * GI)

    def both_seen() -> bool:
        busy, memory, processes = readings(gpud)[0]
        return 30 < busy <= 100 and (memory, processes) == (3, 2)

    until(both_seen, "utilisation, and the memory counted once")
    assert readings(gpud)[1] == [0, 0, 0]


def test_a_gpu_is_idle_after_its_process_has_ended(gpud: Any, until: Until) -> None:
    worker = gpud.work(gpud.uuid(1), memory=GI)
    until(lambda: readings(gpud)[1][1] == 1, "memory in use")
    worker.kill()
    worker.wait(timeout=300)
    until(lambda: readings(gpud)[1] == [0, 0, 0], "an idle GPU")


def test_a_process_on_two_gpus_counts_on_both(gpud: Any, until: Until) -> None:
    worker = gpud.work(f"{gpud.uuid(0)},{gpud.uuid(1)}", memory=GI)
    until(lambda: {i.gpu for i in gpud.log() if i.pid == worker.pid} == {gpud.uuid(0), gpud.uuid(1)}, "both GPUs")
    assert [r[1:] for r in readings(gpud)] == [[1, 1], [1, 1]]


def test_other_processes_and_the_gate_are_not_work(gpud: Any, tmp_path: Path, until: Until) -> None:
    gate = shutil.copy(os.path.realpath("/bin/sh"), tmp_path / "podium-gate")
    others = [gpud.work(None), gpud.work("all"), gpud.work("GPU-of-another-node"), gpud.work(gpud.uuid(0), GI, gate)]
    witness = gpud.work(gpud.uuid(1))
    until(lambda: worked(gpud, witness.pid), "work of a trial's process")
    assert not any(worked(gpud, other.pid) for other in others)
    assert readings(gpud)[0] == [0, 0, 0]


def test_a_process_that_execs_into_a_container_is_measured(gpud: Any, until: Until) -> None:
    """runc runs for a while without the container's environment and then execs."""
    command = ["/bin/sh", "-c", f"read go; exec env NVIDIA_VISIBLE_DEVICES={gpud.uuid(0)} sh -c 'while :; do :; done'"]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, env={"PATH": os.environ["PATH"]})
    gpud.workers.append(worker)
    witness = gpud.work(gpud.uuid(1))
    until(lambda: worked(gpud, witness.pid), "work of a trial's process")
    assert not worked(gpud, worker.pid)
    assert worker.stdin is not None
    worker.stdin.write(b"\n")
    worker.stdin.close()
    until(lambda: worked(gpud, worker.pid), "work after exec")


def stop(process: subprocess.Popen[bytes]) -> float:
    """Stop a process as the freezer does; return the time from which on it certainly does not run."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    return time.monotonic()


def certain_overlap(gpud: Any, one: int, other: int, since: float = 0.0) -> float:
    """Return the seconds in which both processes certainly worked."""
    mine = [i for i in gpud.log() if i.pid == one and i.start >= since]
    theirs = [i for i in gpud.log() if i.pid == other and i.start >= since]
    both = [min(a.certain_end, b.certain_end) - max(a.certain_start, b.certain_start) for a in mine for b in theirs]
    return float(sum(seconds for seconds in both if seconds > 0))


def test_two_processes_that_work_at_once_overlap(gpud: Any, until: Until) -> None:
    one, other = gpud.work(gpud.uuid(0)), gpud.work(gpud.uuid(0))
    until(lambda: certain_overlap(gpud, one.pid, other.pid) > 0.1, "overlap")


def test_two_processes_that_alternate_never_overlap(gpud: Any, until: Until) -> None:
    working, waiting = gpud.work(gpud.uuid(0)), gpud.work(gpud.uuid(0))
    begin = stop(waiting)

    def works_since(pid: int, moment: float) -> bool:
        return any(i.pid == pid and i.end > moment for i in gpud.log())

    for switch in range(8):
        stopped = stop(working)
        working, waiting = waiting, working
        working.send_signal(signal.SIGCONT)
        until(lambda p=working.pid, t=stopped: works_since(p, t), f"work after switch {switch}")
    assert certain_overlap(gpud, working.pid, waiting.pid, since=begin) == 0


def test_an_interval_covers_no_pause(gpud: Any, until: Until) -> None:
    worker = gpud.work(gpud.uuid(0))
    until(lambda: worked(gpud, worker.pid), "work")
    stopped = stop(worker)
    witness = gpud.work(gpud.uuid(1))
    until(lambda: any(i.pid == witness.pid and i.start > stopped + 0.5 for i in gpud.log()), "half a second")
    resumed = time.monotonic()
    worker.send_signal(signal.SIGCONT)
    until(lambda: any(i.pid == worker.pid and i.end > resumed for i in gpud.log()), "work after the pause")
    mine = [i for i in gpud.log() if i.pid == worker.pid]
    # the last sample before the pause began before the stop, and the first one after it ended after the resume
    assert [i for i in mine if i.certain_end > stopped and i.certain_start < resumed] == []
    # the kernel counts CPU time in ticks: a short interval may include up to two earlier ticks
    assert all(i.nanoseconds <= (i.end - i.start) * 1.1e9 + 20e6 for i in mine)


def test_open_intervals_are_written_at_the_end(gpud: Any, until: Until) -> None:
    worker = gpud.work(gpud.uuid(0))
    until(lambda: readings(gpud)[0][0] > 0, "utilisation")
    gpud.process.terminate()
    assert gpud.process.wait(timeout=300) == 143
    assert worked(gpud, worker.pid)


def test_faults_and_uuids_survive_a_killed_daemon(gpud: Any) -> None:
    gpud.set("0", "ecc=5")
    before = gpud.nvml("answer = [n.nvmlDeviceGetUUID(x) for x in h]")
    gpud.process.kill()
    gpud.process.wait(timeout=300)
    gpud.start()
    after = gpud.nvml("answer = [n.nvmlDeviceGetUUID(x) for x in h]")
    assert before == after == [gpud.uuid(0), gpud.uuid(1)]
    assert gpud.nvml("answer = n.nvmlDeviceGetTotalEccErrors(h[0], 1, 0)") == 5


def test_a_killed_writer_blocks_no_reader_and_no_writer(gpud: Any) -> None:
    """The sequence remains odd. Readers use what they have; the next writer makes it even again."""
    gpud.process.kill()
    gpud.process.wait(timeout=300)
    state = gpud.folder / "state"
    with state.open("r+b") as file:
        file.seek(16)
        (sequence,) = struct.unpack("<I", file.read(4))
        file.seek(16)
        file.write(struct.pack("<I", sequence | 1))
    assert gpud.nvml("answer = n.nvmlDeviceGetTemperature(h[0], 0)") == 34
    assert gpud.set("0", "temperature=60").returncode == 0
    assert struct.unpack_from("<I", state.read_bytes(), 16)[0] % 2 == 0
    assert gpud.nvml("answer = n.nvmlDeviceGetTemperature(h[0], 0)") == 60


@pytest.mark.parametrize(
    ("name", "value"), [("FAKE_GPUS", "17"), ("FAKE_GPU_MEMORY", "lots"), ("FAKE_GPU_SAMPLE_MS", "0")]
)
def test_invalid_settings_are_named(driver: Path, tmp_path: Path, name: str, value: str) -> None:
    done = subprocess.run(
        [str(driver / "podium-fake-gpud")],
        env={"FAKE_GPU_DIR": str(tmp_path), name: value},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert f"{name}={value}: must be a number" in done.stderr


def test_the_entrypoint_installs_the_libraries_and_runs_the_daemon(driver: Path, tmp_path: Path, until: Until) -> None:
    image, node = tmp_path / "image", tmp_path / "node"
    shutil.copytree(driver, image)
    shutil.copy(Path(__file__).resolve().parents[3] / "agent/driver/install.sh", image)
    process = subprocess.Popen(
        ["/bin/sh", str(image / "install.sh")], env={"FAKE_GPU_DIR": str(node), "PATH": os.environ["PATH"]}
    )
    until(lambda: (node / "state").exists(), "the state")
    process.terminate()
    assert process.wait(timeout=300) == 143
    assert sorted(p.name for p in (node / "lib").iterdir()) == ["libcuda.so.1", "libnvidia-ml.so.1"]
    assert (node / "bin/podium-fake-gpud").stat().st_mode & 0o111
