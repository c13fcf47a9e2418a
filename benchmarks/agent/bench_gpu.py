"""Cost of suspension by `cuda-checkpoint` on a real NVIDIA GPU, with the agent's own method on PyTorch trials.

    make bench-gpu [OUT=FOLDER]                    (root, NVIDIA driver 570 or newer, PyTorch)
    python -m benchmarks.agent.bench_gpu [--sizes 1,4,16,64] [--only PART ...]

Parts:

- copies: seconds and GB/s to suspend and resume by size, and how much is charged to the trial's memory cgroup;
- calls: an agent that keeps running, against a process for each call;
- overhead: what the agent adds to the driver's own time;
- bits: a trial with data-loading processes is suspended repeatedly, and compared with the same trial alone;
- full: two trials that hold 60 % of the GPU's memory each;
- sharing: two small trials at the planner's minimum time slice, against one after the other.

Each part that ran replaces its section in bench-gpu-PRODUCT.md in `--out`; the file keeps the sections of the other
parts. The last line is RESULT {json}. Without a GPU the benchmark ends with an error.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pynvml

from benchmarks import result_sections
from benchmarks.agent.real_gpu import Bench, TimedDriver
from benchmarks.command_line import Parser
from benchmarks.output import Say, add_out, command
from benchmarks.result_sections import Section
from podium_core.policies.min_time_slice import smallest_time_slice
from podium_suspension.cuda_checkpoint import CudaCheckpoint
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_memory import read_memory
from podium_suspension.gpu_state_notes import GpuStateNotes
from podium_suspension.processes import CudaProcesses

GIB = 1 << 30
BAR_MS = 50.0
FOREVER = 10**9
PARTS = ("copies", "calls", "overhead", "bits", "full", "sharing")
# the driver's calls from a process of its own, as a tool like NVIDIA's cuda-checkpoint makes them
ONCE = """
import ctypes, sys, time
begin = time.perf_counter()
cuda = ctypes.CDLL("libcuda.so.1")
codes = [cuda.cuInit(0)]
ready = time.perf_counter()
pid = int(sys.argv[1])
for call in sys.argv[2:]:
    codes.append(getattr(cuda, "cuCheckpointProcess" + call)(pid, None))
print(*codes, ready - begin, time.perf_counter() - ready)
"""


def machine(bench: Bench) -> str:
    """Return the GPU, its link, the driver and the machine."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    version, name = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlDeviceGetName(handle)
    link = f"PCIe {pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)} x{pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)}"
    pynvml.nvmlShutdown()
    storage = "" if bench.driver.has_custom_storage else ", no custom storage (CUDA 13.4)"
    return f"{name}, {link}, driver {version}{storage}, {os.cpu_count()} cores, Linux {platform.release()}"


def copies(bench: Bench, sizes: list[float], say: Say) -> dict[str, Any]:
    """Time the driver's own calls by size, one after the other. "Out" suspends, "in" resumes."""
    say("| trial, GB | first out, s | out, s | GB/s | in, s | GB/s | lock and unlock, ms | charged to its cgroup, GB |")
    say("| --- | --- | --- | --- | --- | --- | --- | --- |")
    figures = {}
    for size in sizes:
        rounds = 5 if size <= 4 else 3 if size <= 16 else 2
        with bench.trial(FOREVER, size) as trial:
            trial.wait_for(20)
            pid, driver = trial.process.pid, bench.driver
            held = read_memory().held_by(trial.freezer.processes())[bench.uuid]
            taken: dict[str, list[float]] = {"lock": [], "out": [], "in": [], "unlock": []}
            before, charged = trial.charged(), 0
            for _ in range(rounds):
                steps: tuple[tuple[str, Callable[[], None]], ...] = (
                    ("lock", partial(driver.lock, pid, 10.0)),
                    ("out", partial(driver.checkpoint, pid)),
                    ("in", partial(driver.restore, pid)),
                    ("unlock", partial(driver.unlock, pid)),
                )
                for name, call in steps:
                    begin = time.perf_counter()
                    call()
                    taken[name].append(time.perf_counter() - begin)
                    if name == "out":
                        charged = max(charged, trial.charged() - before)
                trial.wait_for(len(trial.lines()) + 5)
        out, back = median(taken["out"]), median(taken["in"])
        small = 1000 * (median(taken["lock"]) + median(taken["unlock"]))
        gb = held / 1e9
        figures[f"{size:g}"] = {
            "held_gb": round(gb, 2), "out_s": round(out, 3), "in_s": round(back, 3),
            "first_out_s": round(taken["out"][0], 3),
            "out_gb_s": round(gb / out, 2), "in_gb_s": round(gb / back, 2), "charged_gb": round(charged / 1e9, 2),
        }  # fmt: skip
        times = f"{taken['out'][0]:.2f} | {out:.2f} | {gb / out:.1f} | {back:.2f} | {gb / back:.1f}"
        say(f"| {gb:.2f} | {times} | {small:.1f} | {charged / 1e9:.2f} |")
    return figures


def calls(bench: Bench, rounds: int, say: Say) -> dict[str, float]:
    """Time the driver's calls.

    Lock and checkpoint, then restore and unlock: by this process, and by a process for each pair of calls.
    """
    resident: list[float] = []
    single: list[float] = []
    init: list[float] = []
    with bench.trial(FOREVER, 0.0) as trial:
        trial.wait_for(20)
        pid, driver = trial.process.pid, bench.driver
        for _ in range(rounds):
            begin = time.perf_counter()
            driver.lock(pid, 10.0)
            driver.checkpoint(pid)
            driver.restore(pid)
            driver.unlock(pid)
            resident.append((time.perf_counter() - begin) / 2)
            for pair in (("Lock", "Checkpoint"), ("Restore", "Unlock")):
                begin = time.perf_counter()
                command = [sys.executable, "-S", "-E", "-c", ONCE, str(pid), *pair]
                said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
                single.append(time.perf_counter() - begin)
                assert said[:3] == ["0"] * 3, said
                init.append(float(said[3]))
    figures = {"resident_s": median(resident), "process_s": median(single), "its_start_s": median(init)}
    say(
        f"One direction for a trial with almost no memory: {figures['resident_s']:.2f} s by an agent that keeps "
        f"running, {figures['process_s']:.2f} s by a process for each call ({figures['its_start_s']:.2f} s of it "
        "are its cuInit)."
    )
    return {name: round(value, 3) for name, value in figures.items()}


async def overhead(bench: Bench, rounds: int, say: Say) -> dict[str, float]:
    """Measure the part of the method's time that is not spent in the driver's calls."""
    driver_ms: dict[str, list[float]] = {"out": [], "in": []}
    more_ms: dict[str, list[float]] = {"out": [], "in": []}
    with bench.trial(FOREVER, 0.5) as trial:
        trial.wait_for(20)
        for _ in range(rounds):
            for action, act in (("out", bench.suspend), ("in", bench.resume)):
                bench.driver.spent = 0.0
                took = await act(trial)
                driver_ms[action].append(1000 * bench.driver.spent)
                more_ms[action].append(1000 * (took - bench.driver.spent))
            trial.wait_for(len(trial.lines()) + 5)
    figures: dict[str, float] = {}
    for action, more in more_ms.items():
        more.sort()
        p50, p99 = median(more), more[min(len(more) - 1, int(0.99 * len(more)))]
        figures |= {f"{action}_driver_ms": round(median(driver_ms[action]), 1)}
        figures |= {f"{action}_overhead_p50_ms": round(p50, 1), f"{action}_overhead_p99_ms": round(p99, 1)}
        say(f"{action}: the driver {median(driver_ms[action]):.0f} ms, the agent {p50:.1f} ms (p50), {p99:.1f} (p99).")
    worst = max(figures["out_overhead_p99_ms"], figures["in_overhead_p99_ms"])
    say(f"{rounds} times. Bar: p99 at most {BAR_MS:g} ms: {'holds' if worst <= BAR_MS else 'does not hold'}.")
    return figures


def alone(bench: Bench, steps: int, size: float, seed: int, workers: int = 0) -> tuple[float, list[str]]:
    """Run a trial undisturbed; return the seconds from its first line to its last, and its lines."""
    with bench.trial(steps, size, seed, workers) as trial:
        trial.wait_for(1)
        begin = time.perf_counter()
        trial.process.wait(600)
        return time.perf_counter() - begin, trial.lines()


async def bits(bench: Bench, times: int, say: Say) -> dict[str, Any]:
    """Suspend a tree of processes repeatedly.

    The data-loading processes hold no CUDA, and stop with the trial.
    """
    steps, workers = 60 * times, 2
    _, expected = alone(bench, steps, 1.0, 7, workers)
    with bench.trial(steps, 1.0, 7, workers) as trial:
        trial.wait_for(10)
        processes = len(trial.freezer.processes())
        for _ in range(times):
            await bench.suspend(trial)
            before = trial.lines()
            assert bench.uuid not in read_memory().held_by(trial.freezer.processes())
            assert trial.lines() == before, "it runs while it is suspended"
            await bench.resume(trial)
            trial.wait_for(min(steps, len(trial.lines()) + 40))
        trial.process.wait(120)
        same = trial.lines() == expected
    verdict = "bit for bit the same" if same else "DIFFER"
    say(f"{processes} processes, suspended {times} times: {len(expected)} losses {verdict}.")
    return {"processes": processes, "suspensions": times, "same_bits": same}


async def full(bench: Bench, say: Say) -> dict[str, Any]:
    """Alternate two trials that hold 60 % of the GPU's memory each."""
    size = 0.6 * bench.total / GIB
    with bench.trial(FOREVER, size, 1) as a:
        a.wait_for(50)
        begin = time.perf_counter()
        outs, backs, gaps = [await bench.suspend(a)], [], []
        with bench.trial(FOREVER, size, 2) as b:
            b.wait_for(50)
            started = time.perf_counter() - begin
            for holder, following in ((b, a), (a, b)):
                begin = time.perf_counter()
                outs.append(await bench.suspend(holder))
                backs.append(await bench.resume(following))
                following.wait_for(len(following.lines()) + 1)
                gaps.append(time.perf_counter() - begin)
                following.wait_for(len(following.lines()) + 250)  # until the checksum of its block is printed
            sums = [{line.split()[2] for line in trial.lines() if len(line.split()) == 3} for trial in (a, b)]
    whole = all(len(one) == 1 for one in sums)
    time_slice = smallest_time_slice(median(outs) + median(backs), 30.0)
    figures = {
        "size_gb": round(size * GIB / 1e9, 1), "out_s": round(median(outs), 2), "in_s": round(median(backs), 2),
        "switch_s": round(median(gaps), 2), "second_starts_s": round(started, 1), "blocks_whole": whole,
        "time_slice_s": round(time_slice),
    }  # fmt: skip
    say(
        f"Two trials of {figures['size_gb']} GB each on one GPU of {bench.total / 1e9:.0f} GB: out "
        f"{figures['out_s']} s, in {figures['in_s']} s, from the last step of the one "
        f"to the next of the other {figures['switch_s']} s; "
        f"the blocks of both {'were restored whole' if whole else 'CHANGED'}. The planner's minimum time slice for "
        f"such trials is {time_slice:.0f} s (3 %)."
    )
    return figures


async def sharing(bench: Bench, seconds: float, say: Say) -> dict[str, Any]:
    """Alternate two small trials at the planner's minimum time slice, against one after the other."""
    size = 1.0
    with bench.trial(FOREVER, size) as probe:
        probe.wait_for(50)
        begin, count = time.perf_counter(), len(probe.lines())
        probe.wait_for(count + 500)
        rate = (len(probe.lines()) - count) / (time.perf_counter() - begin)
        costs = [await bench.suspend(probe) + await bench.resume(probe) for _ in range(3)]
    time_slice, steps = smallest_time_slice(median(costs), 1.0), int(rate * seconds)
    one, two = alone(bench, steps, size, 3), alone(bench, steps, size, 4)
    with bench.trial(steps, size, 3) as a:
        a.wait_for(1)
        begin = time.perf_counter()
        await bench.suspend(a)
        with bench.trial(steps, size, 4) as b:
            b.wait_for(1)
            await bench.suspend(b)
            switches = 0
            begin = time.perf_counter()
            await bench.resume(a)
            holder, waiting = a, b
            while holder.process.poll() is None:
                end = time.perf_counter() + time_slice
                with suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(holder.process.wait, max(0.0, end - time.perf_counter()))
                if holder.process.poll() is None:
                    await bench.suspend(holder)
                    switches += 1
                    holder, waiting = waiting, holder
                    await bench.resume(holder)
            if waiting.process.poll() is None:
                await bench.resume(waiting)
                waiting.process.wait(600)
            took = time.perf_counter() - begin
            same = (a.lines(), b.lines()) == (one[1], two[1])
    share = took / (one[0] + two[0]) - 1
    say(
        f"Two trials of {one[0]:.0f} s each, a suspension and its resumption {median(costs):.2f} s, time slice "
        f"{time_slice:.0f} s, {switches} switches: {took:.1f} s against {one[0] + two[0]:.1f} s one after the other: "
        f"{100 * share:.1f} % more (bar 3 %), losses {'bit for bit the same' if same else 'DIFFER'}."
    )
    return {
        "switch_s": round(median(costs), 2), "time_slice_s": round(time_slice, 1), "switches": switches,
        "overhead": round(share, 4), "same_bits": same,
    }  # fmt: skip


def measures(bench: Bench, options: argparse.Namespace, say: Say) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return the parts by name."""
    return {
        "copies": lambda: copies(bench, [float(size) for size in options.sizes.split(",")], say),
        "calls": lambda: calls(bench, 10, say),
        "overhead": lambda: asyncio.run(overhead(bench, options.rounds, say)),
        "bits": lambda: asyncio.run(bits(bench, 20, say)),
        "full": lambda: asyncio.run(full(bench, say)),
        "sharing": lambda: asyncio.run(sharing(bench, options.seconds, say)),
    }


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--sizes", default="1,4,16,64", help="GiB that a trial holds")
    parser.add_argument("--rounds", type=int, default=100, help="of the agent's overhead")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each of the two sharing trials, alone")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="parts to run (default: all)")
    add_out(parser)
    options = parser.parse_args()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise SystemExit(f"no NVIDIA GPU: {error}; run this on a machine with driver 570 or newer") from None
    if importlib.util.find_spec("torch") is None:
        raise SystemExit("PyTorch is missing; install it into this environment")
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        driver, notes = TimedDriver(), GpuStateNotes(folder / "gpu-state")
        method = CudaCheckpoint(CudaProcesses(driver, 10.0, 300.0), Freeze(5.0), notes)
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        uuid, total = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetMemoryInfo(handle).total
        product = pynvml.nvmlDeviceGetName(handle)
        # NVML remains open, as in the agent, whose telemetry reads it
        bench = Bench(driver, method, notes, folder, uuid, total)
        where = machine(bench)
        path = options.out / f"bench-gpu-{product.lower().replace(' ', '-')}.md"
        result_sections.read(path)  # fails before the measurement where the file would be overwritten
        last = ""
        for part, run in measures(bench, options, say).items():
            if part not in (options.only or PARTS):
                continue
            lines.clear()
            print(f"\n## {part}\n", flush=True)
            result = run()
            text = "\n".join([f"## {part}", "", f"`{command()}` on {where}.", "", *lines])
            sections = result_sections.read(path) | {part: Section(result, text)}
            last = result_sections.write(path, [f"# cuda-checkpoint on one {product}", ""], sections, PARTS)
    print(last)


if __name__ == "__main__":
    main()
