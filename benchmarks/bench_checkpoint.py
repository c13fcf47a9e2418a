"""What the agent adds to the driver's own time when it moves a trial's memory off a GPU and back (`cuda-checkpoint`).

    python benchmarks/bench_checkpoint.py [ROUNDS] [--seconds SECONDS]        (as root: it makes cgroups)

A real process on the fake driver, whose copies take no time. In turns, ROUNDS times: the four driver calls and the
freezer alone, one after the other in one thread; then the agent's method with the memory ledger's question before the
restore. The agent's overhead of an action is its time less the median of the bare one. Bar: p99 at most 50 ms, on a
machine that has nothing else to do. Then two programs of 60 % of the GPU's memory each, their copies as slow as a real
GPU's, take turns at the planner's quantum (`checkpoint_sharing.py`); bar: at most 3 % fewer steps. Writes
benchmarks/results/bench-checkpoint.md; the last line is RESULT {json}.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from checkpoint_sharing import Shared, share
from checkpoint_site import ROOT, CudaNode, container, driver

from podium_agent.observe.cgroups import Freezer, FreezerState
from podium_agent.schedule.memory_ledger import Footprint, shortfall
from podium_agent.suspension.cuda import CudaDriver
from podium_agent.suspension.cuda_checkpoint import CudaCheckpoint
from podium_agent.suspension.driver_calls import give_up_after
from podium_agent.suspension.freeze import Freeze
from podium_agent.suspension.memory import read_memory
from podium_agent.suspension.parked_memory import Parked
from podium_agent.suspension.processes import CudaProcesses
from podium_core.policies.min_time_slice import MAX_SWITCH_SHARE

RESULTS = ROOT / "benchmarks" / "results" / "bench-checkpoint.md"
BAR_MS = 50.0
SIZE = 64 << 20
MEMORY = 1 << 30  # of the GPU
SIXTY_PERCENT = MEMORY * 6 // 10
SPEED = 4 << 30  # bytes a second, of what two that share it move; a real H100: 2 out, 5 in
ACTIONS = ("out", "in")


def bare(cuda: CudaDriver, pid: int, freezer: Freezer) -> tuple[float, float]:
    """Seconds out and in of what nobody can do without."""
    begin = time.perf_counter()
    cuda.lock(pid, 5.0)
    cuda.checkpoint(pid)
    freezer.ask(True)
    while freezer.frost() is not FreezerState.FROZEN:
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


async def measure(node: CudaNode, method: CudaCheckpoint, parked: Parked, rounds: int) -> dict[str, dict[str, float]]:
    program, cuda = node.start(SIZE), CudaDriver(node.library)
    taken: dict[str, list[tuple[float, float]]] = {"bare": [], "ours": []}
    with container(program.pid) as freezer:
        for _ in range(rounds):
            taken["bare"].append(bare(cuda, program.pid, freezer))
            taken["ours"].append(await ours(method, parked, freezer))
    assert program.continues()
    program.steps()
    program.end()
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


async def both(node: CudaNode, folder: Path, rounds: int, seconds: float) -> tuple[dict[str, dict[str, float]], Shared]:
    parked = Parked(folder / "parked")
    method = CudaCheckpoint(CudaProcesses(CudaDriver(node.library), 5.0, 20.0), Freeze(5.0), parked)
    return await measure(node, method, parked, rounds), await share(node, method, SIXTY_PERCENT, SPEED, seconds)


def report(rounds: int, seconds: float, load: float, found: dict[str, dict[str, float]], shared: Shared) -> str:
    worst = max(found[action]["overhead_p99_ms"] for action in ACTIONS)
    result = {
        "rounds": rounds, "cores": os.cpu_count(), "load_before": round(load, 1), **found, "held": worst <= BAR_MS,
        "sharing": {name: round(value, 4) for name, value in asdict(shared).items()} | {"held": shared.held},
    }  # fmt: skip
    rows = [f"| {action} | {' | '.join(str(value) for value in found[action].values())} |" for action in ACTIONS]
    text = [
        "# What the agent adds to the driver's own time (cuda-checkpoint, fake driver)",
        "",
        f"`python benchmarks/bench_checkpoint.py {rounds} --seconds {seconds:g}`, {platform.machine()},",
        f"{os.cpu_count()} cores, load average {load:.1f} when it began: on a quiet machine it is less than 1;",
        "with more, others' work is in the figures.",
        "",
        "| action | driver and freezer alone, p50 (ms) | agent's overhead, p50 (ms) | p99 (ms) |",
        "| --- | --- | --- | --- |",
        *rows,
        "",
        f"Bar: p99 at most {BAR_MS:g} ms: {'holds' if worst <= BAR_MS else 'does not hold'}.",
        "",
        "## Two that do not fit together, at the planner's quantum",
        "",
        f"Each holds 60 % of the GPU; the driver copies {SPEED / 2**30:g} GiB/s. {shared.hand_overs} hand-overs in",
        f"{shared.seconds:.0f} s, {shared.hand_over:.2f} s each, quantum {shared.quantum:.1f} s:",
        f"{100 * shared.overhead:.2f} % fewer steps than without hand-overs. "
        f"Bar: at most {100 * MAX_SWITCH_SHARE:g} %: " + ("holds." if shared.held else "does not hold."),
        "",
        f"RESULT {json.dumps(result)}",
    ]
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", nargs="?", type=int, default=200, help="of the agent's overhead")
    parser.add_argument("--seconds", type=float, default=120.0, help="of the time that two share")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name, driver(Path(name), MEMORY) as node:
        found, shared = asyncio.run(both(node, Path(name), options.rounds, options.seconds))
    text = report(options.rounds, options.seconds, load, found, shared)
    RESULTS.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
