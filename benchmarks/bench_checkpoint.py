"""What the agent adds to the driver's own time when it moves a trial's memory off a GPU and back (`cuda-checkpoint`).

    python benchmarks/bench_checkpoint.py [ROUNDS]        (as root: it makes a cgroup)

A real process on the fake driver, whose copies take no time. In turns, ROUNDS times: the four driver calls and the
freezer alone, one after the other in one thread; then the agent's method with the memory ledger's question before the
restore. The agent's overhead of an action is its time less the median of the bare one. Bar: p99 at most 50 ms, on a
machine that has nothing else to do. Writes benchmarks/results/bench-checkpoint.md; the last line is RESULT {json}.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from cuda_node import CudaNode, until  # noqa: E402

from podium_agent.cgroups import Freezer, Frost  # noqa: E402
from podium_agent.ledger import Footprint, shortfall  # noqa: E402
from podium_agent.suspension.calls import give_up_after  # noqa: E402
from podium_agent.suspension.cuda import CudaDriver  # noqa: E402
from podium_agent.suspension.cuda_checkpoint import CudaCheckpoint  # noqa: E402
from podium_agent.suspension.freeze import Freeze  # noqa: E402
from podium_agent.suspension.memory import read_memory  # noqa: E402
from podium_agent.suspension.parked import Parked  # noqa: E402
from podium_agent.suspension.processes import CudaProcesses  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "bench-checkpoint.md"
V1 = Path("/sys/fs/cgroup/freezer")
BAR_MS = 50.0
SIZE = 64 << 20
ACTIONS = ("out", "in")


@contextmanager
def driver(folder: Path) -> Iterator[CudaNode]:
    """The fake one, built and at work."""
    subprocess.run(["make", "-s", "-C", str(ROOT / "agent/driver"), f"OUT={folder}"], check=True, timeout=300)
    environment = {"FAKE_GPU_DIR": str(folder / "node"), "FAKE_GPU_NODE": "bench", "FAKE_GPUS": "1"}
    os.environ["PODIUM_FAKE_DRIVER_STATE"] = str(folder / "node" / "state")
    gpud = folder / "podium-fake-gpud"
    daemon = subprocess.Popen([str(gpud), "run"], env=environment, stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    daemon.stdout.readline()
    ctypes.CDLL(str(folder / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
    node = CudaNode(str(folder / "libcuda.so.1"), folder, folder / "node", gpud)
    try:
        yield node
    finally:
        node.clear()
        daemon.terminate()
        daemon.communicate(timeout=20)


@contextmanager
def container(pid: int) -> Iterator[Freezer]:
    unified = not V1.is_dir()
    place = (V1.parent if unified else V1) / f"podium-bench-{uuid.uuid4().hex[:8]}"
    place.mkdir()
    (place / "cgroup.procs").write_text(str(pid))
    freezer = Freezer(place, unified)
    try:
        yield freezer
    finally:
        freezer.ask(False)
        ((V1.parent if unified else V1) / "cgroup.procs").write_text(str(pid))
        until(lambda: not freezer.processes(), "an empty cgroup")
        place.rmdir()


def bare(cuda: CudaDriver, pid: int, freezer: Freezer) -> tuple[float, float]:
    """Seconds out and in of what nobody can do without."""
    begin = time.perf_counter()
    cuda.lock(pid, 5.0)
    cuda.checkpoint(pid)
    freezer.ask(True)
    while freezer.frost() is not Frost.FROZEN:
        pass
    middle = time.perf_counter()
    freezer.ask(False)
    cuda.restore(pid)
    cuda.unlock(pid)
    return middle - begin, time.perf_counter() - middle


async def ours(method: CudaCheckpoint, parked: Parked, freezer: Freezer) -> tuple[float, float]:
    begin = time.perf_counter()
    out = await method.suspend((freezer,))
    middle = time.perf_counter()
    memory = await give_up_after(5.0, read_memory)
    moved = parked.read(freezer.path.name)
    claim = Footprint("trial", tuple(moved), SIZE, parked=moved)
    assert shortfall(claim, (), memory.free) is None
    back = await method.resume((freezer,))
    assert out.ok, out
    assert back.ok, back
    return middle - begin, time.perf_counter() - middle


async def measure(node: CudaNode, folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    program, cuda = node.start(SIZE), CudaDriver(node.library)
    parked = Parked(folder / "parked")
    method = CudaCheckpoint(CudaProcesses(cuda, 5.0, 20.0), Freeze(5.0), parked)
    taken: dict[str, list[tuple[float, float]]] = {"bare": [], "ours": []}
    with container(program.pid) as freezer:
        for _ in range(rounds):
            taken["bare"].append(bare(cuda, program.pid, freezer))
            taken["ours"].append(await ours(method, parked, freezer))
    assert program.goes_on()
    program.steps()
    found = {}
    for index, action in enumerate(ACTIONS):
        alone = statistics.median(1000 * one[index] for one in taken["bare"])
        more = sorted(1000 * one[index] - alone for one in taken["ours"])
        found[action] = {
            "bare_p50_ms": round(alone, 2),
            "overhead_p50_ms": round(statistics.median(more), 2),
            "overhead_p99_ms": round(more[min(len(more) - 1, int(0.99 * len(more)))], 2),
        }
    return found


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name, driver(Path(name)) as node:
        found = asyncio.run(measure(node, Path(name), rounds))
    worst = max(found[action]["overhead_p99_ms"] for action in ACTIONS)
    result = {
        "rounds": rounds,
        "cores": os.cpu_count(),
        "load_before": round(load, 1),
        **found,
        "held": worst <= BAR_MS,
    }
    rows = [f"| {action} | {' | '.join(str(value) for value in found[action].values())} |" for action in ACTIONS]
    text = [
        "# What the agent adds to the driver's own time (cuda-checkpoint, fake driver)",
        "",
        f"`python benchmarks/bench_checkpoint.py {rounds}`, {platform.machine()}, {os.cpu_count()} cores, load average",
        f"{load:.1f} when it began: on a quiet machine it is less than 1; with more, others' work is in the figures.",
        "",
        "| action | driver and freezer alone, p50 (ms) | agent's overhead, p50 (ms) | p99 (ms) |",
        "| --- | --- | --- | --- |",
        *rows,
        "",
        f"Bar: p99 at most {BAR_MS:g} ms: {'holds' if worst <= BAR_MS else 'does not hold'}.",
        "",
        f"RESULT {json.dumps(result)}",
    ]
    RESULTS.write_text("\n".join(text) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    main()
