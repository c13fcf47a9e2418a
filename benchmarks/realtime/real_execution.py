"""The parts of bench_realtime that execute networks: on this machine's cores, and on a GPU where there is one.

The load is the paper's: N tasks of one network at one rate, released together, with deadline = period. The rate is
chosen so that PIVOT tasks fill the cores. In each repetition all candidates are measured, each time in another order,
and ratios are taken within a repetition. A repetition that other programs disturbed is left out and one more is made
(`OtherPrograms`). Where too few repetitions are undisturbed, the page says so and does not judge the bars.

Candidates: `naive` is the paper's unmanaged concurrency (one process for each task, each with the BLAS library's
threads for all cores), `naive-single` the same with one thread each, `sgprs`, and `launch-ahead`, Podium's own.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.output import Say
from benchmarks.realtime.report import QUIET
from podium_realtime.results.metrics import Summary
from podium_realtime.runtime.backend import BackendAvailability
from podium_realtime.runtime.cpu import CpuSession, CpuTask, available_cores
from podium_realtime.runtime.runner import NET, SchedulerConfig, SchedulerRunner
from podium_realtime.runtime.worker import WHOLE_NETWORK
from podium_realtime.scheduling.pool import context_pool

CANDIDATES = ("naive", "naive-single", "sgprs", "launch-ahead")
PIVOT = 12  # tasks that would just fill the cores, by the time of one frame
ZERO = 0.002  # a share of misses that counts as none: on a shared machine a core is sometimes not available
NEAR = 0.05  # so few misses may have the same cause: the run is repeated once, for every candidate
EXTRA = 1  # repetitions in place of disturbed ones
SWITCHES = 300
FRAMES = 100  # a core, to find the rate


class OtherPrograms:
    """CPU time of other programs: busy time of all cores less that of this process and its ended children."""

    def __init__(self) -> None:
        self._begun, self._busy, self._own = perf_counter(), _busy(), sum(os.times()[:4])

    def share(self) -> float:
        """Return the other programs' share of the cores' time since the beginning, 0 to 1."""
        span = (perf_counter() - self._begun) * (os.cpu_count() or 1)
        return max(0.0, _busy() - self._busy - sum(os.times()[:4]) + self._own) / span


def _busy() -> float:
    """Return the seconds that the cores were not idle since the machine started, with stolen time (proc(5))."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Measured:
    """One repetition by candidate. `others`: share of the cores' time that other programs used meanwhile."""

    others: float
    zeros: dict[str, int]
    overload: dict[str, Summary]

    @property
    def quiet(self) -> bool:
        return self.others <= QUIET


def compare(repeats: int, seconds: float, say: Say) -> dict[str, Any]:
    """Return the ratios to naive concurrency.

    They compare tasks without a miss, and frames per second at 1.5 times the pivot.
    """
    load = os.getloadavg()[0]
    fps = _rate()
    cores = len(available_cores())
    say(f"\n### Real execution on {cores} cores: `{NET.name}`, {fps:.1f} fps a task, released together\n")
    say("| repetition | scheduler | tasks without a miss | fps at 1.5x | in time | missed | others used |")
    say("| ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    made: list[Measured] = []
    while len(made) < repeats or (len(made) < repeats + EXTRA and sum(one.quiet for one in made) < repeats):
        made.append(_repetition(len(made), fps, seconds, say))
    quiet = [one for one in made if one.quiet][:repeats]
    used = quiet if len(quiet) == repeats else made
    others = OtherPrograms()
    staying, moving, again = _switch()
    say(
        f"\nLoad average before: {load:.2f}. Repetitions in the ratios: {len(used)} of {len(made)}. If other programs "
        f"used more than {100 * QUIET:.0f} % of the cores' time, a repetition does not count: a "
        "candidate with more processes gets more of a busy machine."
    )
    say(
        f"\nA stage in the same partition: {staying:.0f} us; in the other pre-warmed one: {moving:.0f} us; "
        f"re-creating a partition: {again:.0f} us (others used {100 * others.share():.1f} %). In ratios a count of 0 "
        "tasks is taken as 1."
    )
    zeros = {name: [one.zeros[name] for one in used] for name in CANDIDATES}
    rates = {name: [one.overload[name] for one in used] for name in CANDIDATES}
    answer: dict[str, Any] = {
        "switch_us": round(moving - staying),
        "recreate_us": round(again),
        "others_share": round(max(one.others for one in used), 3),
    }
    for rival, prefix in (("naive", ""), ("naive-single", "single_")):
        for name in ("launch-ahead", "sgprs"):
            mine = "" if name == "launch-ahead" else "sgprs_"
            answer[f"{mine}{prefix}zero_miss_ratio"] = _ratio(
                [max(1, n) for n in zeros[name]], [max(1, n) for n in zeros[rival]]
            )
            answer[f"{mine}{prefix}fps_ratio"] = _ratio([s.fps for s in rates[name]], [s.fps for s in rates[rival]])
            answer[f"{mine}{prefix}in_time_ratio"] = _ratio(
                [max(1.0, s.fps_in_time) for s in rates[name]], [max(1.0, s.fps_in_time) for s in rates[rival]]
            )
    return answer


def _repetition(number: int, fps: float, seconds: float, say: Say) -> Measured:
    """Measure all candidates once; print a line for each."""
    max_tasks = round(1.5 * PIVOT) + 3
    first = number % len(CANDIDATES)
    zeros: dict[str, int] = {}
    overload: dict[str, Summary] = {}
    whole = OtherPrograms()
    for name in (*CANDIDATES[first:], *CANDIDATES[:first]):
        own = OtherPrograms()
        with SchedulerRunner(SchedulerConfig.named(name), max_tasks) as bench:
            zeros[name] = _max_without_miss(bench, fps, seconds, max_tasks)
            result = overload[name] = bench.run(round(1.5 * PIVOT), fps, seconds)
        say(
            f"| {number} | {name} | {zeros[name]} | {result.fps:.1f} | {result.fps_in_time:.1f} | "
            f"{100 * result.missed:.1f} % | {100 * own.share():.1f} % |"
        )
    return Measured(whole.share(), zeros, overload)


def on_gpu(gpu: BackendAvailability, seconds: float, say: Say) -> dict[str, Any]:
    """Run ResNet-18 with batch 1 and 30 fps tasks on the GPU; "not run" where there is none.

    Figures are divided by those of one stream.
    """
    say(gpu.message)
    if not gpu.available:
        return {"run": False, "reason": gpu.code}
    answer: dict[str, Any] = {"run": True, "device": gpu.message}
    singles = {}
    for name in ("single", "single-synchronous"):
        with SchedulerRunner(SchedulerConfig.named(name, "cuda"), 4) as bench:
            singles[name] = bench.run(4, 500.0, seconds).fps  # more than one stream can do
    pipelined, synchronous = singles["single"], singles["single-synchronous"]
    max_tasks = int(2.5 * pipelined / 30.0)
    for name in ("naive", "sgprs", "launch-ahead"):
        with SchedulerRunner(SchedulerConfig.named(name, "cuda"), max_tasks) as bench:
            zero = _max_without_miss(bench, 30.0, seconds, max_tasks)
            overload = bench.run(max_tasks, 30.0, seconds)
        answer[name] = {
            "zero_miss_tasks": zero,
            "missed_at_most": round(overload.missed, 3),
            "over_pipelined": round(overload.fps / pipelined, 3),
            "over_synchronous": round(overload.fps / synchronous, 3),
        }
        say(f"{name}: {answer[name]}")
    return answer


def _rate() -> float:
    """Return the frames per second of each task with which PIVOT tasks fill the cores.

    It is measured with one frame at a time on all cores at once, because cores share caches, memory and power.
    """
    cores = len(available_cores())
    pool = context_pool(cores, cores, 1.0, high=0, low=1, in_flight=1)
    names = [f"probe-{number}" for number in range(cores)]
    with CpuSession([CpuTask(name, NET) for name in names], pool) as session:
        for context, name in enumerate(names):
            session.request(context, 0, context, name, WHOLE_NETWORK)
        begun, frames = perf_counter(), 0
        while frames < FRAMES * cores:
            for done in session.wait(1.0):
                frames += 1
                session.request(done.number, 0, done.number, names[done.number], WHOLE_NETWORK)
        rate = frames / (perf_counter() - begun)
        under_way = cores
        while under_way:
            under_way -= len(session.wait(1.0))
    return rate / PIVOT


def _max_without_miss(bench: SchedulerRunner, fps: float, seconds: float, max_tasks: int) -> int:
    """Return the largest number of tasks without a miss, by bisection: misses are assumed to grow with the tasks."""
    low, high = 0, max_tasks + 1
    while high - low > 1:
        middle = (low + high) // 2
        missed = bench.run(middle, fps, seconds).missed
        if ZERO < missed <= NEAR:
            missed = bench.run(middle, fps, seconds).missed
        if missed <= ZERO:
            low = middle
        else:
            high = middle
    return low


def _switch() -> tuple[float, float, float]:
    """Return the microseconds of a stage in the same partition, in the other one, and of re-creating a partition.

    Orders go to the partitions 0, 0, 1, 1 and so on, so that both kinds are measured under the same conditions.
    """
    cores = len(available_cores())
    pool = context_pool(cores, 2, 1.0 if cores > 1 else 2.0, high=0, low=1, in_flight=1)
    with CpuSession([CpuTask("probe", NET)], pool) as session:
        times = _round_trips(session, [number // 2 % 2 for number in range(2 * SWITCHES)], stage=3)
        moving, staying = statistics.median(times[2::2]), statistics.median(times[1::2])
        again = statistics.median(session.recreate(1, 0) for _ in range(3))
    return 1e6 * staying, 1e6 * moving, 1e6 * again


def _round_trips(session: CpuSession, partitions: list[int], stage: int) -> list[float]:
    """Return the seconds from an order to its answer, one after another, for a stage of one task."""
    times = []
    for number, partition in enumerate(partitions):
        begun = perf_counter()
        session.request(partition, 0, number, "probe", stage)
        while not session.wait(1.0):
            pass
        times.append(perf_counter() - begun)
    return times


def _ratio(mine: list[Any], theirs: list[Any]) -> float:
    """Return the median over the repetitions of the first over the second."""
    return round(float(statistics.median(a / b for a, b in zip(mine, theirs, strict=True))), 2)
