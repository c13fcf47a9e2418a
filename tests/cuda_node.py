"""A GPU node for tests of CUDA checkpoints: a driver, and programs that hold CUDA on it.

The driver is the fake one, built once and run for real, or with PODIUM_TEST_DRIVER=real (`make test-gpu`) the machine's
own; the programs are the same on both. Folders of tests that use it import its fixtures in their conftest.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pynvml
import pytest

ROOT = Path(__file__).resolve().parents[1]
REAL = os.environ.get("PODIUM_TEST_DRIVER") == "real"
MI = 1 << 20

# Holds a block of GPU memory whose first word is the step: read back, counted up, written again, then printed. What is
# printed goes on without a gap only if the memory came back as it was. The last word of the block must stay as well.
# argv: library, bytes, GPU[,GPU...]: a context and a block on each, the one with the step on the first; seconds of a
# step beside its copies. SIGUSR1: once more as many bytes on the first, taken at the next step.
PROGRAM = """
import ctypes, signal, sys, time
more = []
signal.signal(signal.SIGUSR1, lambda *_: more.append(1))
cuda = ctypes.CDLL(sys.argv[1])
size, kernel = int(sys.argv[2]), float(sys.argv[4])
def ok(code):
    if code: sys.exit(f"CUDA error {code}")
device, context, block = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
ok(cuda.cuInit(0))
for number in reversed(sys.argv[3].split(",")):
    ok(cuda.cuDeviceGet(ctypes.byref(device), int(number)))
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    ok(cuda.cuCtxSetCurrent(context))
    ok(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size)))
step, last, eight = ctypes.c_uint64(0), ctypes.c_uint64(0x5eed), ctypes.c_size_t(8)
end = ctypes.c_uint64(block.value + size - 8)
ok(cuda.cuMemcpyHtoD_v2(block, ctypes.byref(step), eight))
ok(cuda.cuMemcpyHtoD_v2(end, ctypes.byref(last), eight))
while True:
    ok(cuda.cuMemcpyDtoH_v2(ctypes.byref(step), block, eight))
    ok(cuda.cuMemcpyDtoH_v2(ctypes.byref(last), end, eight))
    if last.value != 0x5eed: sys.exit("the block is not what it was")
    if kernel: time.sleep(kernel)
    step.value += 1
    if more:
        more.pop()
        ok(cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size)))
    ok(cuda.cuMemcpyHtoD_v2(block, ctypes.byref(step), eight))
    sys.stdout.write(f"{step.value}\\n"); sys.stdout.flush()
"""


# Takes all of a GPU but some bytes, says so, and holds it. argv: library, GPU, bytes.
STRANGER = """
import ctypes, signal, sys
cuda = ctypes.CDLL(sys.argv[1])
device, context, block = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
codes = [cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), int(sys.argv[2]))]
codes += [cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context)]
codes += [cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))]
size = ctypes.c_size_t(max(1, free.value - int(sys.argv[3])))
print(*codes, cuda.cuMemAlloc_v2(ctypes.byref(block), size), flush=True)
signal.pause()
"""


def until(condition: Callable[[], object], what: str, seconds: float = 300.0) -> None:
    """Waits for a condition and says what did not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.002)


def _free(gpu: int) -> int:
    """Bytes, by NVML."""
    pynvml.nvmlInit()
    free = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(gpu)).free
    pynvml.nvmlShutdown()
    return int(free)


def own_name(node: str) -> str:
    """For a fake driver of this process alone. Its daemon sees all processes of the machine: with GPUs of the same
    UUIDs, which come from the name, it would take those of tests that run beside these for its own."""
    return f"{node}-{os.getpid()}"


@dataclass(slots=True)
class Program:
    """One running PROGRAM and what it has printed."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def steps(self) -> list[int]:
        """All whole lines; a gap or a repetition is a failure."""
        steps = [int(line) for line in self.output.read_text().splitlines(keepends=True) if line.endswith("\n")]
        assert steps == list(range(1, len(steps) + 1)), "steps were lost or done twice"
        return steps

    def goes_on(self) -> bool:
        """Whether it prints another line."""
        before, end = self.output.stat().st_size, time.monotonic() + 300.0
        while time.monotonic() < end:
            if self.output.stat().st_size > before:
                return True
            time.sleep(0.002)
        return False

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=300)


@dataclass(slots=True)
class CudaNode:
    """`library`: what to load as libcuda. `folder`: of the fake driver's state, None with a real one."""

    library: str
    scratch: Path
    folder: Path | None = None
    gpud: Path | None = None
    programs: list[Program] = field(default_factory=list)
    _stranger: subprocess.Popen[str] | None = None

    def start(
        self,
        size: int = 64 * MI,
        gpu: int | str = 0,
        container: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        kernel: float = 0.0,
    ) -> Program:
        """A program that has begun to work; `container` is a command that runs it, `environment` comes on top,
        `kernel`: seconds of a step beside its copies.
        """
        output = self.scratch / f"program-{len(self.programs)}"
        command = [*container, sys.executable, "-S", "-E", "-c", PROGRAM, self.library]
        command += [str(size), str(gpu), str(kernel)]
        with output.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, env={**os.environ, **(environment or {})})
            program = Program(process, output)
        self.programs.append(program)
        until(lambda: output.stat().st_size > 0 or program.process.poll() is not None, "the first step")
        assert program.process.poll() is None, "it does not run"
        return program

    def fault(self, *assignments: str) -> None:
        """Faults of checkpoints; a real driver has none on command."""
        if self.folder is None:
            pytest.skip("a real driver makes no faults on command")
        self._gpud("checkpoint", *assignments)

    def stranger(self, gpu: int, leave: int) -> None:
        """Somebody else takes the memory of a GPU, but for so many bytes."""
        if self.folder is not None:
            self._gpud("set", str(gpu), f"memory={_free(gpu) - leave}")
            return
        command = [sys.executable, "-S", "-E", "-c", STRANGER, self.library, str(gpu), str(leave)]
        self._stranger = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._stranger.stdout is not None
        assert set(self._stranger.stdout.readline().split()) == {"0"}, "the stranger does not get his memory"

    def crowd(self, gpu: int, memory: int) -> None:
        """Somebody else is said to hold so many bytes, also where others hold them now."""
        if self.folder is None:
            pytest.skip("a real driver gives nobody what others hold")
        self._gpud("set", str(gpu), f"memory={memory}")

    def no_stranger(self, gpu: int) -> None:
        """He gives it back."""
        if self.folder is not None:
            self._gpud("set", str(gpu), "memory=0")
        elif self._stranger is not None:
            self._stranger.kill()
            self._stranger.communicate(timeout=300)
            self._stranger = None
            until(lambda: _free(gpu) > 1 << 30, "his memory is free")

    def lose(self, gpu: int) -> None:
        """The GPU falls off the bus."""
        if self.folder is None:
            pytest.skip("no GPU of a real driver is lost on command")
        self._gpud("set", str(gpu), "health=lost")

    def _gpud(self, *words: str) -> None:
        command = [str(self.gpud), *words]
        subprocess.run(command, env={"FAKE_GPU_DIR": str(self.folder)}, check=True, timeout=300)

    def clear(self) -> None:
        for program in self.programs:
            program.end()
        self.programs.clear()
        self.clear_faults()
        if self._stranger is not None:
            self.no_stranger(0)

    def clear_faults(self) -> None:
        if self.folder is not None:
            self._gpud("checkpoint", "all=ok")
            self._gpud("set", "all", "health=ok")


# each conftest that imports a session's fixture has one of its own: they share what was made first
_BUILT: list[Path] = []
_MACHINES: list[CudaNode] = []


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the fake driver was built."""
    if _BUILT:
        return _BUILT[0]
    if shutil.which("make") is None or shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    out = tmp_path_factory.mktemp("fake-driver")
    subprocess.run(["make", "-s", "-C", str(ROOT / "agent/driver"), f"OUT={out}"], check=True, timeout=300)
    _BUILT.append(out)
    return out


@pytest.fixture(scope="session")
def cuda_machine(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[CudaNode]:
    """The driver at work."""
    if _MACHINES:
        yield _MACHINES[0]
        return
    scratch = tmp_path_factory.mktemp("cuda")
    if REAL:
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            pytest.fail(f"PODIUM_TEST_DRIVER=real, and there is none: {error}")
        yield CudaNode("libcuda.so.1", scratch)
        return
    built, folder = request.getfixturevalue("driver"), scratch / "node"
    environment = {"FAKE_GPU_DIR": str(folder), "FAKE_GPU_NODE": own_name("machine"), "FAKE_GPUS": "2"}
    program = built / "podium-fake-gpud"
    daemon = subprocess.Popen([str(program), "run"], env=environment, stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    assert daemon.stdout.readline().startswith("podium-fake-gpud: node")
    # a library that is asked for by its name later (pynvml does) is the one loaded already
    ctypes.CDLL(str(built / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
    _MACHINES.append(CudaNode(str(built / "libcuda.so.1"), scratch, folder, program))
    yield _MACHINES[0]
    daemon.terminate()
    daemon.communicate(timeout=300)


@pytest.fixture
def cuda_node(cuda_machine: CudaNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaNode]:
    """The node for one test; its programs end and its faults go with it."""
    if cuda_machine.folder is not None:
        monkeypatch.setenv("PODIUM_FAKE_DRIVER_STATE", str(cuda_machine.folder / "state"))
    node = CudaNode(cuda_machine.library, tmp_path, cuda_machine.folder, cuda_machine.gpud)
    yield node
    node.clear()
