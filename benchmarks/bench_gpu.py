"""What suspending by `cuda-checkpoint` costs on a real NVIDIA GPU, by the agent's own method on PyTorch trials.

    python benchmarks/bench_gpu.py [--sizes 1,4,16,64] [--only PART ...]     (root, a driver of 570 or newer, PyTorch)

copies: seconds and GB/s out and in by size, and what of it is charged to the trial's memory cgroup. calls: an agent
that stays, against a process per call. overhead: what the agent adds to the driver's own time. bits: a trial with
processes that load its data is suspended again and again, against the same alone. sharing: two trials of 60 % of the
GPU's memory, and two small ones at the planner's quantum, against one after the other. Each part that ran replaces its
section in benchmarks/results/bench-gpu-NAME.md, NAME the GPU's product, by which the file keeps what ran before; the
last line is RESULT {json}. Without a GPU it says so and fails.
"""

from __future__ import annotations

import argparse
import asyncio
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
import result_sections
from gpu_site import Bench, TimedDriver
from result_sections import Section

from podium_agent.suspension.cuda_checkpoint import CudaCheckpoint
from podium_agent.suspension.freeze import Freeze
from podium_agent.suspension.memory import read_memory
from podium_agent.suspension.parked_memory import Parked
from podium_agent.suspension.processes import CudaProcesses
from podium_core.policies.min_time_slice import smallest_time_slice

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
GIB = 1 << 30
BAR_MS = 50.0
FOREVER = 10**9
PARTS = ("copies", "calls", "overhead", "bits", "full", "sharing")
# the driver's calls by a process of its own: what a tool like NVIDIA's cuda-checkpoint does
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
Say = Callable[[str], None]


def machine(bench: Bench) -> str:
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    version, name = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlDeviceGetName(handle)
    link = f"PCIe {pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)} x{pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)}"
    pynvml.nvmlShutdown()
    storage = "" if bench.driver.has_custom_storage else ", no custom storage (CUDA 13.4)"
    return f"{name}, {link}, driver {version}{storage}, {os.cpu_count()} cores, Linux {platform.release()}"


def copies(bench: Bench, sizes: list[float], say: Say) -> dict[str, Any]:
    """By size: the driver's own calls, one after the other."""
    say("| trial, GB | first out, s | out, s | GB/s | in, s | GB/s | lock and unlock, ms | charged to its cgroup, GB |")
    say("| --- | --- | --- | --- | --- | --- | --- | --- |")
    found = {}
    for size in sizes:
        rounds = 5 if size <= 4 else 3 if size <= 16 else 2
        with bench.trial(FOREVER, size) as trial:
            trial.wait_for(20)
            pid, driver = trial.process.pid, bench.driver
            held = read_memory().of(trial.freezer.processes())[bench.uuid]
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
        found[f"{size:g}"] = {
            "held_gb": round(gb, 2), "out_s": round(out, 3), "in_s": round(back, 3),
            "first_out_s": round(taken["out"][0], 3),
            "out_gb_s": round(gb / out, 2), "in_gb_s": round(gb / back, 2), "charged_gb": round(charged / 1e9, 2),
        }  # fmt: skip
        times = f"{taken['out'][0]:.2f} | {out:.2f} | {gb / out:.1f} | {back:.2f} | {gb / back:.1f}"
        say(f"| {gb:.2f} | {times} | {small:.1f} | {charged / 1e9:.2f} |")
    return found


def calls(bench: Bench, rounds: int, say: Say) -> dict[str, float]:
    """Lock and checkpoint, restore and unlock: by this process, and by one made for each."""
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
    found = {"resident_s": median(resident), "process_s": median(single), "its_start_s": median(init)}
    say(
        f"One way of a trial that holds next to nothing: {found['resident_s']:.2f} s by an agent that stays, "
        f"{found['process_s']:.2f} s by a process per call ({found['its_start_s']:.2f} s of it are its cuInit)."
    )
    return {name: round(value, 3) for name, value in found.items()}


async def overhead(bench: Bench, rounds: int, say: Say) -> dict[str, float]:
    """What of the method's time is not spent in the driver's calls that move something."""
    driver_ms: dict[str, list[float]] = {"out": [], "in": []}
    more_ms: dict[str, list[float]] = {"out": [], "in": []}
    with bench.trial(FOREVER, 0.5) as trial:
        trial.wait_for(20)
        for _ in range(rounds):
            for action, act in (("out", bench.out), ("in", bench.back)):
                bench.driver.spent = 0.0
                took = await act(trial)
                driver_ms[action].append(1000 * bench.driver.spent)
                more_ms[action].append(1000 * (took - bench.driver.spent))
            trial.wait_for(len(trial.lines()) + 5)
    found: dict[str, float] = {}
    for action, more in more_ms.items():
        more.sort()
        p50, p99 = median(more), more[min(len(more) - 1, int(0.99 * len(more)))]
        found |= {f"{action}_driver_ms": round(median(driver_ms[action]), 1)}
        found |= {f"{action}_overhead_p50_ms": round(p50, 1), f"{action}_overhead_p99_ms": round(p99, 1)}
        say(f"{action}: the driver {median(driver_ms[action]):.0f} ms, the agent {p50:.1f} ms (p50), {p99:.1f} (p99).")
    worst = max(found["out_overhead_p99_ms"], found["in_overhead_p99_ms"])
    say(f"{rounds} times. Bar: p99 at most {BAR_MS:g} ms: {'holds' if worst <= BAR_MS else 'does not hold'}.")
    return found


def alone(bench: Bench, steps: int, size: float, seed: int, workers: int = 0) -> tuple[float, list[str]]:
    """Seconds from its first line to its last, and its lines."""
    with bench.trial(steps, size, seed, workers) as trial:
        trial.wait_for(1)
        begin = time.perf_counter()
        trial.process.wait(600)
        return time.perf_counter() - begin, trial.lines()


async def bits(bench: Bench, times: int, say: Say) -> dict[str, Any]:
    """A whole tree of processes: those that load data hold no CUDA, and stop with it."""
    steps, workers = 60 * times, 2
    _, expected = alone(bench, steps, 1.0, 7, workers)
    with bench.trial(steps, 1.0, 7, workers) as trial:
        trial.wait_for(10)
        processes = len(trial.freezer.processes())
        for _ in range(times):
            await bench.out(trial)
            before = trial.lines()
            assert bench.uuid not in read_memory().of(trial.freezer.processes())
            assert trial.lines() == before, "it works while it is suspended"
            await bench.back(trial)
            trial.wait_for(min(steps, len(trial.lines()) + 40))
        trial.process.wait(120)
        same = trial.lines() == expected
    verdict = "bit for bit the same" if same else "DIFFER"
    say(f"{processes} processes, suspended {times} times: {len(expected)} losses {verdict}.")
    return {"processes": processes, "suspensions": times, "same_bits": same}


async def full(bench: Bench, say: Say) -> dict[str, Any]:
    """Two that hold 60 % of the GPU's memory each, turn by turn."""
    size = 0.6 * bench.total / GIB
    with bench.trial(FOREVER, size, 1) as a:
        a.wait_for(50)
        begin = time.perf_counter()
        outs, backs, gaps = [await bench.out(a)], [], []
        with bench.trial(FOREVER, size, 2) as b:
            b.wait_for(50)
            started = time.perf_counter() - begin
            for leaves, comes in ((b, a), (a, b)):
                begin = time.perf_counter()
                outs.append(await bench.out(leaves))
                backs.append(await bench.back(comes))
                comes.wait_for(len(comes.lines()) + 1)
                gaps.append(time.perf_counter() - begin)
                comes.wait_for(len(comes.lines()) + 250)  # its block's sum as well
            sums = [{line.split()[2] for line in trial.lines() if len(line.split()) == 3} for trial in (a, b)]
    whole = all(len(one) == 1 for one in sums)
    quantum = smallest_time_slice(median(outs) + median(backs), 30.0)
    found = {
        "size_gb": round(size * GIB / 1e9, 1), "out_s": round(median(outs), 2), "in_s": round(median(backs), 2),
        "hand_over_s": round(median(gaps), 2), "second_starts_s": round(started, 1), "blocks_whole": whole,
        "quantum_s": round(quantum),
    }  # fmt: skip
    say(
        f"Two trials of {found['size_gb']} GB each on one GPU of {bench.total / 1e9:.0f} GB: out {found['out_s']} s, "
        f"in {found['in_s']} s, from the last step of the one to the next of the other {found['hand_over_s']} s; "
        f"the blocks of both {'came back whole' if whole else 'CHANGED'}. The planner's quantum for such trials is "
        f"{quantum:.0f} s (3 %)."
    )
    return found


async def sharing(bench: Bench, seconds: float, say: Say) -> dict[str, Any]:
    """Two small ones take turns at the planner's quantum until both are done, against one after the other."""
    size = 1.0
    with bench.trial(FOREVER, size) as probe:
        probe.wait_for(50)
        begin, count = time.perf_counter(), len(probe.lines())
        probe.wait_for(count + 500)
        rate = (len(probe.lines()) - count) / (time.perf_counter() - begin)
        costs = [await bench.out(probe) + await bench.back(probe) for _ in range(3)]
    quantum, steps = smallest_time_slice(median(costs), 1.0), int(rate * seconds)
    one, two = alone(bench, steps, size, 3), alone(bench, steps, size, 4)
    with bench.trial(steps, size, 3) as a:
        a.wait_for(1)
        begin = time.perf_counter()
        await bench.out(a)
        with bench.trial(steps, size, 4) as b:
            b.wait_for(1)
            await bench.out(b)
            waits, works, switches = a, b, 0
            begin = time.perf_counter()
            await bench.back(a)
            works, waits = a, b
            while works.process.poll() is None:
                end = time.perf_counter() + quantum
                with suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(works.process.wait, max(0.0, end - time.perf_counter()))
                if works.process.poll() is None:
                    await bench.out(works)
                    switches += 1
                    works, waits = waits, works
                    await bench.back(works)
            if waits.process.poll() is None:
                await bench.back(waits)
                waits.process.wait(600)
            took = time.perf_counter() - begin
            same = (a.lines(), b.lines()) == (one[1], two[1])
    share = took / (one[0] + two[0]) - 1
    say(
        f"Two trials of {one[0]:.0f} s each, a suspension and its resumption {median(costs):.2f} s, quantum "
        f"{quantum:.0f} s, {switches} switches: {took:.1f} s against {one[0] + two[0]:.1f} s one after the other: "
        f"{100 * share:.1f} % more (bar 3 %), losses {'bit for bit the same' if same else 'DIFFER'}."
    )
    return {
        "switch_s": round(median(costs), 2), "quantum_s": round(quantum, 1), "switches": switches,
        "overhead": round(share, 4), "same_bits": same,
    }  # fmt: skip


def measures(bench: Bench, options: argparse.Namespace, say: Say) -> dict[str, Callable[[], dict[str, Any]]]:
    return {
        "copies": lambda: copies(bench, [float(size) for size in options.sizes.split(",")], say),
        "calls": lambda: calls(bench, 10, say),
        "overhead": lambda: asyncio.run(overhead(bench, options.rounds, say)),
        "bits": lambda: asyncio.run(bits(bench, 20, say)),
        "full": lambda: asyncio.run(full(bench, say)),
        "sharing": lambda: asyncio.run(sharing(bench, options.seconds, say)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1,4,16,64", help="GiB that a trial holds")
    parser.add_argument("--rounds", type=int, default=100, help="of the agent's overhead")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each of two that share, alone")
    parser.add_argument("--only", nargs="+", choices=PARTS)
    options = parser.parse_args()
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        driver, parked = TimedDriver(), Parked(folder / "parked")
        method = CudaCheckpoint(CudaProcesses(driver, 10.0, 300.0), Freeze(5.0), parked)
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        uuid, total = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetMemoryInfo(handle).total
        product = pynvml.nvmlDeviceGetName(handle)
        # NVML stays open, as it does in the agent, whose telemetry reads it
        bench = Bench(driver, method, parked, folder, uuid, total)
        command, where = " ".join(["python benchmarks/bench_gpu.py", *sys.argv[1:]]), machine(bench)
        path = RESULTS / f"bench-gpu-{product.lower().replace(' ', '-')}.md"
        result_sections.read(path)  # what it would overwrite is said before the measurement, not after
        last = ""
        for part, run in measures(bench, options, say).items():
            if part not in (options.only or PARTS):
                continue
            lines.clear()
            print(f"\n## {part}\n", flush=True)
            result = run()
            text = "\n".join([f"## {part}", "", f"`{command}` on {where}.", "", *lines])
            sections = result_sections.read(path) | {part: Section(result, text)}
            last = result_sections.write(path, [f"# cuda-checkpoint on one {product}", ""], sections, PARTS)
    print(last)


if __name__ == "__main__":
    main()
