"""A GPU node for tests of CUDA checkpoints: a driver, and programs that use CUDA on it.

The driver is the fake one, built once and run for real. With PODIUM_TEST_DRIVER=real (`make test-gpu`) it is the
machine's own. The programs are the same on both. A folder of tests imports the fixtures in its conftest.
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

# A program that counts steps in the first word of a block of GPU memory: it reads, increments, writes and prints the
# step. The printed steps have no gap only if a restore brings the memory back unchanged. The last word of the block is
# checked as well. argv: library, bytes, GPU[,GPU...] and extra seconds for each step. There is a context and a block on
# each GPU; the step is on the first. SIGUSR1 makes the next step allocate as many bytes again on the first GPU.
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
    if last.value != 0x5eed: sys.exit("the memory block has changed")
    if kernel: time.sleep(kernel)
    step.value += 1
    if more:
        more.pop()
        ok(cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size)))
    ok(cuda.cuMemcpyHtoD_v2(block, ctypes.byref(step), eight))
    sys.stdout.write(f"{step.value}\\n"); sys.stdout.flush()
"""


# Allocates all memory of a GPU but some bytes, prints the result codes, and keeps it. argv: library, GPU, bytes.
MEMORY_HOLDER = """
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
    """Wait for a condition; fail with `what` after the timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.002)


def _free(gpu: int) -> int:
    """Return the free bytes of a GPU, as NVML reports them."""
    pynvml.nvmlInit()
    free = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(gpu)).free
    pynvml.nvmlShutdown()
    return int(free)


def unique_node_name(node: str) -> str:
    """Return a node name for a fake driver of this process alone.

    The daemon sees all processes of the machine, and the GPUs' UUIDs depend on the node name. With a shared name it
    would also count the processes of tests that run at the same time.
    """
    return f"{node}-{os.getpid()}"


@dataclass(slots=True)
class Program:
    """A running PROGRAM and its output."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def steps(self) -> list[int]:
        """Return the steps of all whole lines; fail if a step is missing or repeated."""
        steps = [int(line) for line in self.output.read_text().splitlines(keepends=True) if line.endswith("\n")]
        assert steps == list(range(1, len(steps) + 1)), "steps were lost or repeated"
        return steps

    def continues(self) -> bool:
        """Return whether the program prints another line."""
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
    """A driver, and the programs and faults of one test.

    `library` is loaded as libcuda. `folder` holds the fake driver's state; it is None with a real driver.
    """

    library: str
    scratch: Path
    folder: Path | None = None
    gpud: Path | None = None
    programs: list[Program] = field(default_factory=list)
    _memory_holder: subprocess.Popen[str] | None = None

    def start(
        self,
        size: int = 64 * MI,
        gpu: int | str = 0,
        container: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        kernel: float = 0.0,
    ) -> Program:
        """Start a program and wait for its first step.

        `container` is a command that runs the program. `environment` extends the environment of this process.
        `kernel` is the extra time of each step in seconds.
        """
        output = self.scratch / f"program-{len(self.programs)}"
        command = [*container, sys.executable, "-S", "-E", "-c", PROGRAM, self.library]
        command += [str(size), str(gpu), str(kernel)]
        with output.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, env={**os.environ, **(environment or {})})
            program = Program(process, output)
        self.programs.append(program)
        until(lambda: output.stat().st_size > 0 or program.process.poll() is not None, "the first step")
        assert program.process.poll() is None, "the program has ended"
        return program

    def fault(self, *assignments: str) -> None:
        """Inject faults of checkpoints; skip the test with a real driver."""
        if self.folder is None:
            pytest.skip("needs injected faults: fake driver only")
        self._gpud("checkpoint", *assignments)

    def occupy_memory(self, gpu: int, leave: int) -> None:
        """Let an unrelated process use all free memory of a GPU but `leave` bytes."""
        if self.folder is not None:
            self._gpud("set", str(gpu), f"memory={_free(gpu) - leave}")
            return
        command = [sys.executable, "-S", "-E", "-c", MEMORY_HOLDER, self.library, str(gpu), str(leave)]
        self._memory_holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._memory_holder.stdout is not None
        assert set(self._memory_holder.stdout.readline().split()) == {"0"}, "the memory cannot be allocated"

    def overcommit_memory(self, gpu: int, memory: int) -> None:
        """Report `memory` bytes as used by an unrelated process, even if other processes use them."""
        if self.folder is None:
            pytest.skip("a real driver does not overcommit memory")
        self._gpud("set", str(gpu), f"memory={memory}")

    def release_memory(self, gpu: int) -> None:
        """End the use of memory by an unrelated process."""
        if self.folder is not None:
            self._gpud("set", str(gpu), "memory=0")
        elif self._memory_holder is not None:
            self._memory_holder.kill()
            self._memory_holder.communicate(timeout=300)
            self._memory_holder = None
            until(lambda: _free(gpu) > 1 << 30, "the memory is free")

    def lose_gpu(self, gpu: int) -> None:
        """Let a GPU fall off the bus."""
        if self.folder is None:
            pytest.skip("needs injected faults: fake driver only")
        self._gpud("set", str(gpu), "health=lost")

    def _gpud(self, *words: str) -> None:
        command = [str(self.gpud), *words]
        subprocess.run(command, env={"FAKE_GPU_DIR": str(self.folder)}, check=True, timeout=300)

    def clear(self) -> None:
        for program in self.programs:
            program.end()
        self.programs.clear()
        self.clear_faults()
        if self._memory_holder is not None:
            self.release_memory(0)

    def clear_faults(self) -> None:
        if self.folder is not None:
            self._gpud("checkpoint", "all=ok")
            self._gpud("set", "all", "health=ok")


# Each conftest that imports a session fixture gets its own copy of it. All copies share the first result.
_BUILT: list[Path] = []
_MACHINES: list[CudaNode] = []


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the fake driver and return the folder."""
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
    """Run the driver for the session."""
    if _MACHINES:
        yield _MACHINES[0]
        return
    scratch = tmp_path_factory.mktemp("cuda")
    if REAL:
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            pytest.fail(f"PODIUM_TEST_DRIVER=real needs an NVIDIA driver: {error}")
        yield CudaNode("libcuda.so.1", scratch)
        return
    built, folder = request.getfixturevalue("driver"), scratch / "node"
    environment = {"FAKE_GPU_DIR": str(folder), "FAKE_GPU_NODE": unique_node_name("machine"), "FAKE_GPUS": "2"}
    program = built / "podium-fake-gpud"
    daemon = subprocess.Popen([str(program), "run"], env=environment, stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    assert daemon.stdout.readline().startswith("podium-fake-gpud: node")
    # pynvml later loads the library by its name and then gets this one
    ctypes.CDLL(str(built / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
    _MACHINES.append(CudaNode(str(built / "libcuda.so.1"), scratch, folder, program))
    yield _MACHINES[0]
    daemon.terminate()
    daemon.communicate(timeout=300)


@pytest.fixture
def cuda_node(cuda_machine: CudaNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaNode]:
    """A node for one test. Its programs and faults end with the test."""
    if cuda_machine.folder is not None:
        monkeypatch.setenv("PODIUM_FAKE_DRIVER_STATE", str(cuda_machine.folder / "state"))
    node = CudaNode(cuda_machine.library, tmp_path, cuda_machine.folder, cuda_machine.gpud)
    yield node
    node.clear()
