"""The parts of `bench_realtime.py` that execute: on this machine's cores, and on a GPU where there is one.

The load is the paper's: N tasks of one network at one rate, released together, deadline = period. The rate is chosen so
that some PIVOT tasks fill the cores. Candidates are measured in turn within each repeat, each repeat beginning with
another one, and ratios are taken within a repeat. A repeat that others disturbed is left out and one more is made
(`Others`); where too few are quiet the result says so and is not judged.

Candidates: `naive` is the paper's unmanaged concurrency (a process a task, each believing that it has all cores: the
BLAS library's own threads), `naive-single` the same with one thread each, `sgprs`, `ahead` (ours).
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import realtime_report

from podium_realtime.results.metrics import Summary
from podium_realtime.runtime.backend import Availability
from podium_realtime.runtime.cpu import CpuSession, CpuTask, available_cores
from podium_realtime.runtime.runner import NET, SchedulerConfig, SchedulerRunner
from podium_realtime.runtime.worker import WHOLE_NETWORK
from podium_realtime.scheduling.pool import context_pool

CANDIDATES = ("naive", "naive-single", "sgprs", "launch-ahead")
PIVOT = 12  # tasks that would just fill the cores, by the time of one frame
ZERO = 0.002  # a share of misses that counts as none: a core of a shared machine is sometimes taken away
NEAR = 0.05  # so few misses may be such an accident too: the run is made once more, whoever the candidate is
EXTRA = 1  # repeats that are made in place of disturbed ones
SWITCHES = 300
FRAMES = 100  # a core, to find the rate
Say = Callable[[str], None]


class Others:
    """What else ran on the machine: busy time of all cores less that of this process and its ended children."""

    def __init__(self) -> None:
        self._begun, self._busy, self._own = perf_counter(), _busy(), sum(os.times()[:4])

    def share(self) -> float:
        """Of the cores' time since the beginning, 0..1."""
        span = (perf_counter() - self._begun) * (os.cpu_count() or 1)
        return max(0.0, _busy() - self._busy - sum(os.times()[:4]) + self._own) / span


def _busy() -> float:
    """Seconds that the machine's cores were not idle since its start, stolen time included (proc(5))."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Measured:
    """One repeat. `others`: share of the cores' time that others used meanwhile; then per candidate."""

    others: float
    zeros: dict[str, int]
    overload: dict[str, Summary]

    @property
    def quiet(self) -> bool:
        return self.others <= realtime_report.QUIET


def compare(repeats: int, seconds: float, say: Say) -> dict[str, Any]:
    """Ratios of ours over naive concurrency: tasks without a miss, and fps at 1.5 times our pivot."""
    load = os.getloadavg()[0]
    fps = _rate()
    cores = len(available_cores())
    say(f"\n### Real execution on {cores} cores: `{NET.name}`, {fps:.1f} fps a task, released together\n")
    say("| repeat | scheduler | tasks without a miss | fps at 1.5x | in time | missed | others used |")
    say("| ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    made: list[Measured] = []
    while len(made) < repeats or (len(made) < repeats + EXTRA and sum(one.quiet for one in made) < repeats):
        made.append(_repeat(len(made), fps, seconds, say))
    quiet = [one for one in made if one.quiet][:repeats]
    used = quiet if len(quiet) == repeats else made
    others = Others()
    staying, moving, again = _switch()
    say(
        f"\nLoad average before: {load:.2f}. Repeats in the ratios: {len(used)} of {len(made)}. One in which others "
        f"used more than {100 * realtime_report.QUIET:.0f} % of the cores' time says nothing, because who runs more "
        "processes gets more of a crowded machine."
    )
    say(
        f"\nA stage in the partition where it was: {staying:.0f} us; in the other pre-warmed one: {moving:.0f} us; "
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


def _repeat(number: int, fps: float, seconds: float, say: Say) -> Measured:
    """All candidates once; a line for each."""
    most = round(1.5 * PIVOT) + 3
    first = number % len(CANDIDATES)
    zeros: dict[str, int] = {}
    overload: dict[str, Summary] = {}
    whole = Others()
    for name in (*CANDIDATES[first:], *CANDIDATES[:first]):
        own = Others()
        with SchedulerRunner(SchedulerConfig.named(name), most) as bench:
            zeros[name] = _last_zero(bench, fps, seconds, most)
            found = overload[name] = bench.run(round(1.5 * PIVOT), fps, seconds)
        say(
            f"| {number} | {name} | {zeros[name]} | {found.fps:.1f} | {found.fps_in_time:.1f} | "
            f"{100 * found.missed:.1f} % | {100 * own.share():.1f} % |"
        )
    return Measured(whole.share(), zeros, overload)


def on_gpu(found: Availability, seconds: float, say: Say) -> dict[str, Any]:
    """ResNet-18, batch 1, 30 fps tasks on the GPU, divided by one stream; "not run" where there is none."""
    say(found.message)
    if not found.available:
        return {"run": False, "reason": found.code}
    answer: dict[str, Any] = {"run": True, "device": found.message}
    singles = {}
    for name in ("single", "single-synchronous"):
        with SchedulerRunner(SchedulerConfig.named(name, "cuda"), 4) as bench:
            singles[name] = bench.run(4, 500.0, seconds).fps  # more than one stream can do
    pipelined, synchronous = singles["single"], singles["single-synchronous"]
    most = int(2.5 * pipelined / 30.0)
    for name in ("naive", "sgprs", "launch-ahead"):
        with SchedulerRunner(SchedulerConfig.named(name, "cuda"), most) as bench:
            zero = _last_zero(bench, 30.0, seconds, most)
            overload = bench.run(most, 30.0, seconds)
        answer[name] = {
            "zero_miss_tasks": zero,
            "missed_at_most": round(overload.missed, 3),
            "over_pipelined": round(overload.fps / pipelined, 3),
            "over_synchronous": round(overload.fps / synchronous, 3),
        }
        say(f"{name}: {answer[name]}")
    return answer


def _rate() -> float:
    """Frames a second of each task such that PIVOT of them fill the cores, by one frame at a time on every core at once
    (they share caches, memory and power).
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


def _last_zero(bench: SchedulerRunner, fps: float, seconds: float, most: int) -> int:
    """By halving: the largest number of tasks without a miss, taking misses to grow with the tasks."""
    low, high = 0, most + 1
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
    """Microseconds: a stage in the partition where it was, in the other one, and re-creating a partition. Orders go to
    the partitions 0, 0, 1, 1 and so on, so what stays and what moves is measured side by side.
    """
    cores = len(available_cores())
    pool = context_pool(cores, 2, 1.0 if cores > 1 else 2.0, high=0, low=1, in_flight=1)
    with CpuSession([CpuTask("probe", NET)], pool) as session:
        times = _round_trips(session, [number // 2 % 2 for number in range(2 * SWITCHES)], stage=3)
        moving, staying = statistics.median(times[2::2]), statistics.median(times[1::2])
        again = statistics.median(session.recreate(1, 0) for _ in range(3))
    return 1e6 * staying, 1e6 * moving, 1e6 * again


def _round_trips(session: CpuSession, places: list[int], stage: int) -> list[float]:
    """Seconds from an order to its answer, one after another; a stage of one task."""
    times = []
    for number, place in enumerate(places):
        begun = perf_counter()
        session.request(place, 0, number, "probe", stage)
        while not session.wait(1.0):
            pass
        times.append(perf_counter() - begun)
    return times


def _ratio(mine: list[Any], theirs: list[Any]) -> float:
    """Median over the repeats of ours over theirs."""
    return round(float(statistics.median(a / b for a, b in zip(mine, theirs, strict=True))), 2)
