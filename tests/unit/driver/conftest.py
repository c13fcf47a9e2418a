"""Fixtures that build and run the C programs: the gate helper and the fake driver."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for `cuda_node`, which several folders of tests share

from cuda_calls import cuda
from cuda_node import cuda_machine, cuda_node, driver, unique_node_name

__all__ = ["cuda", "cuda_machine", "cuda_node", "driver"]
ROOT = Path(__file__).resolve().parents[3]


def until(condition: Callable[[], object], what: str, seconds: float = 300.0) -> None:
    """Wait for a condition; fail with `what` after the timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Interval:
    """A line of work.log. If the work lasted only one sample, `certain_start` is after `certain_end`."""

    start: float
    end: float
    gpu: str
    pid: int
    container: str
    nanoseconds: int
    certain_start: float
    certain_end: float
    name: str


def parse_log(text: str) -> list[Interval]:
    """Return the intervals of a work.log."""
    rows = [line.split(" ", 10) for line in text.splitlines() if not line.startswith("#")]
    return [
        Interval(float(r[0]), float(r[1]), r[2], int(r[3]), r[4], int(r[5]), float(r[6]), float(r[7]), r[10])
        for r in rows
    ]


class Gpud:
    """A running daemon, and the processes that work on its GPUs."""

    def __init__(self, build: Path, folder: Path, **settings: str) -> None:
        self.build = build
        self.folder = folder
        self.program = str(build / "podium-fake-gpud")
        self.node = unique_node_name("node-a")
        self.environment = {"FAKE_GPU_DIR": str(folder), "FAKE_GPU_NODE": self.node, **settings}
        self.workers: list[subprocess.Popen[bytes]] = []
        self.process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        command = [self.program, "run"]
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
        self.process = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith(f"podium-fake-gpud: node {self.node}")

    def stop(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait(timeout=300)
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=300)

    def uuid(self, index: int) -> str:
        command = [self.program, "uuid", self.node, str(index)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout.strip()

    def set(self, gpu: str, *assignments: str) -> subprocess.CompletedProcess[str]:
        command = [self.program, "set", gpu, *assignments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=300, check=False)

    def nvml(self, body: str) -> object:
        """Run `body` with the real pynvml and the GPUs as `h`; return the value that it assigns to `answer`."""
        script = (
            "import json, pynvml as n\nn.nvmlInit()\n"
            "h = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]\n"
            + textwrap.dedent(body)
            + "\nprint(json.dumps(answer))"
        )
        environment = {
            "LD_LIBRARY_PATH": str(self.build),
            "PODIUM_FAKE_DRIVER_STATE": str(self.folder / "state"),
            "PATH": os.environ["PATH"],
        }
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        answer: object = json.loads(done.stdout)
        return answer

    def work(self, gpus: str | None, memory: int = 0, program: str = "/bin/sh") -> subprocess.Popen[bytes]:
        """Start a process that uses CPU time all the while; without `gpus` it belongs to no trial."""
        environment = {"PODIUM_GPU_MEMORY_BYTES": str(memory)}
        if gpus is not None:
            environment["NVIDIA_VISIBLE_DEVICES"] = gpus
        worker = subprocess.Popen([program, "-c", "while :; do :; done"], env=environment)
        self.workers.append(worker)
        return worker

    def log(self) -> list[Interval]:
        return parse_log((self.folder / "work.log").read_text())


@pytest.fixture(scope="session")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("make") is None or shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    out = tmp_path_factory.mktemp("gate")
    subprocess.run(["make", "-s", "-C", str(ROOT / "agent/helper"), f"OUT={out}"], check=True, timeout=300)
    return out / "podium-gate"


@pytest.fixture
def gpud(driver: Path, tmp_path: Path) -> Iterator[Gpud]:
    daemon = Gpud(driver, tmp_path / "node", FAKE_GPUS="2", FAKE_GPU_MEMORY="16Gi", FAKE_GPU_SAMPLE_MS="10")
    yield daemon
    daemon.stop()


@pytest.fixture
def mixed_gpud(driver: Path, tmp_path: Path) -> Iterator[Gpud]:
    """A daemon with three GPUs: one of product A, two of product B."""
    daemon = Gpud(driver, tmp_path / "node", FAKE_GPUS="3", FAKE_GPU_PRODUCT="A,B")
    yield daemon
    daemon.stop()


@pytest.fixture(scope="module")
def idle_gpud(driver: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpud]:
    """A daemon for the tests that use its GPUs for no work."""
    daemon = Gpud(driver, tmp_path_factory.mktemp("node") / "fake", FAKE_GPUS="2", FAKE_GPU_MEMORY="16Gi")
    yield daemon
    daemon.stop()


@pytest.fixture(name="until")
def until_fixture() -> Callable[..., None]:
    return until
