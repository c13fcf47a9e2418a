"""What the agent adds to the driver's own time when it suspends and resumes a trial by `cuda-checkpoint`.

    make bench-checkpoint [OUT=FOLDER]            (root: it makes cgroups)
    python -m benchmarks.agent.bench_checkpoint [ROUNDS] [--seconds SECONDS]

A real process runs on the fake driver, whose copies take no time. ROUNDS times, in alternation: the four driver calls
and the freezer alone, in one thread; then the agent's method, with the memory ledger's check before the restore. The
agent's overhead of an action is its time less the median of the bare action. Bar: p99 at most 50 ms on an idle machine.

Then two programs that hold 60 % of the GPU's memory each alternate at the planner's minimum time slice, with copies as
slow as a real GPU's (`checkpoint_sharing`). Bar: at most 3 % fewer steps.

Writes bench-checkpoint.md into `--out`; the last line is RESULT {json}.
"""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.agent.checkpoint_sharing import Shared, share
from benchmarks.agent.fake_driver import CudaNode, container, driver
from benchmarks.command_line import Parser
from benchmarks.output import add_out, command, result_line, write_page
from podium_agent.observe.cgroups import Freezer
from podium_agent.schedule.memory_ledger import Footprint, shortfall
from podium_core.policies.min_time_slice import MAX_SWITCH_SHARE
from podium_suspension.cuda import CudaDriver
from podium_suspension.cuda_checkpoint import CudaCheckpoint
from podium_suspension.driver_calls import call_with_timeout
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_memory import read_memory
from podium_suspension.gpu_state_notes import GpuStateNotes
from podium_suspension.processes import CudaProcesses
from podium_suspension.target import FreezerState

BAR_MS = 50.0
SIZE = 64 << 20
MEMORY = 1 << 30  # of the GPU
SIXTY_PERCENT = MEMORY * 6 // 10
SPEED = 4 << 30  # bytes a second at which the sharing programs are copied; a real H100: 2 GiB/s out, 5 GiB/s in
ACTIONS = ("suspend", "resume")


def bare(cuda: CudaDriver, pid: int, freezer: Freezer) -> tuple[float, float]:
    """Return the seconds of the calls that any implementation needs, to suspend and to resume."""
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


async def by_agent(method: CudaCheckpoint, notes: GpuStateNotes, freezer: Freezer) -> tuple[float, float]:
    """Return the seconds of the agent's method, to suspend and to resume."""
    begin = time.perf_counter()
    out = await method.suspend((freezer,))
    middle = time.perf_counter()
    memory = await call_with_timeout(5.0, read_memory)
    moved = notes.held_bytes(freezer.name)
    claim = Footprint("trial", tuple(moved), SIZE, off_gpu=moved)
    assert shortfall(claim, (), memory.free) is None
    back = await method.resume((freezer,))
    assert out.ok, out
    assert back.ok, back
    return middle - begin, time.perf_counter() - middle


async def measure(
    node: CudaNode, method: CudaCheckpoint, notes: GpuStateNotes, rounds: int
) -> dict[str, dict[str, float]]:
    """Measure both in alternation; return the figures of each action."""
    program, cuda = node.start(SIZE), CudaDriver(node.library)
    taken: dict[str, list[tuple[float, float]]] = {"bare": [], "agent": []}
    with container(program.pid) as freezer:
        for _ in range(rounds):
            taken["bare"].append(bare(cuda, program.pid, freezer))
            taken["agent"].append(await by_agent(method, notes, freezer))
    assert program.continues()
    program.steps()
    program.end()
    figures = {}
    for index, action in enumerate(ACTIONS):
        alone = statistics.median(1000 * one[index] for one in taken["bare"])
        more = sorted(1000 * one[index] - alone for one in taken["agent"])
        figures[action] = {
            "bare_p50_ms": round(alone, 2),
            "overhead_p50_ms": round(statistics.median(more), 2),
            "overhead_p99_ms": round(more[min(len(more) - 1, int(0.99 * len(more)))], 2),
        }
    return figures


async def both(node: CudaNode, folder: Path, rounds: int, seconds: float) -> tuple[dict[str, dict[str, float]], Shared]:
    """Measure the overhead and the sharing."""
    notes = GpuStateNotes(folder / "gpu-state")
    method = CudaCheckpoint(CudaProcesses(CudaDriver(node.library), 5.0, 20.0), Freeze(5.0), notes)
    return await measure(node, method, notes, rounds), await share(node, method, SIXTY_PERCENT, SPEED, seconds)


def report(rounds: int, load: float, figures: dict[str, dict[str, float]], shared: Shared) -> str:
    """Return the page."""
    worst = max(figures[action]["overhead_p99_ms"] for action in ACTIONS)
    result = {
        "rounds": rounds, "cores": os.cpu_count(), "load_before": round(load, 1), **figures, "held": worst <= BAR_MS,
        "sharing": {name: round(value, 4) for name, value in asdict(shared).items()} | {"held": shared.held},
    }  # fmt: skip
    rows = [f"| {action} | {' | '.join(str(value) for value in figures[action].values())} |" for action in ACTIONS]
    text = [
        "# What the agent adds to the driver's own time (cuda-checkpoint, fake driver)",
        "",
        f"`{command()}`, {platform.machine()},",
        f"{os.cpu_count()} cores, load average {load:.1f} at the start. On an idle machine it is less than 1;",
        "with more, the work of other programs is in the figures.",
        "",
        "| action | driver and freezer alone, p50 (ms) | agent's overhead, p50 (ms) | p99 (ms) |",
        "| --- | --- | --- | --- |",
        *rows,
        "",
        f"Bar: p99 at most {BAR_MS:g} ms: {'holds' if worst <= BAR_MS else 'does not hold'}.",
        "",
        "## Two programs that do not fit together, at the planner's minimum time slice",
        "",
        f"Each holds 60 % of the GPU; the driver copies {SPEED / 2**30:g} GiB/s. {shared.switches} switches in",
        f"{shared.seconds:.0f} s, {shared.switch_seconds:.2f} s each, time slice {shared.time_slice:.1f} s:",
        f"{100 * shared.overhead:.2f} % fewer steps than without switches. Bar: at most {100 * MAX_SWITCH_SHARE:g} %: "
        + ("holds." if shared.held else "does not hold."),
        "",
        result_line(result),
    ]
    return "\n".join(text) + "\n"


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=200, help="of the agent's overhead (default: 200)")
    parser.add_argument("--seconds", type=float, default=120.0, help="that two programs share (default: 120)")
    add_out(parser)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name, driver(Path(name), MEMORY) as node:
        figures, shared = asyncio.run(both(node, Path(name), options.rounds, options.seconds))
    text = report(options.rounds, load, figures, shared)
    write_page(options.out / "bench-checkpoint.md", text)
    print(text, end="")


if __name__ == "__main__":
    main()
