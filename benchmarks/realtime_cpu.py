"""The parts of `bench_realtime.py` that execute: on this machine's cores, and on a GPU where there is one.

The load is the paper's: N tasks of one network at one rate, released together, deadline = period. The rate is chosen so
that some PIVOT tasks fill the cores. Candidates, measured in turn within each repeat, so that whatever else the machine
does hits all: `naive` is the paper's unmanaged concurrency (a process a task, each believing that it has all cores: the
BLAS library's own threads), `naive-single` the same with one thread each, `sgprs`, `ahead` (ours).
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import realtime_report

from podium_realtime.record.metrics import Summary
from podium_realtime.runtime.backend import Availability
from podium_realtime.runtime.compare import NET, Bench, Candidate
from podium_realtime.runtime.cpu import CpuSession, CpuTask, cores_here
from podium_realtime.runtime.worker import WHOLE
from podium_realtime.scheduling.pool import context_pool

CANDIDATES = ("naive", "naive-single", "sgprs", "ahead")
PIVOT = 12  # tasks that would just fill the cores, by the time of one frame
ZERO = 0.002  # a share of misses that counts as none: a core of a shared machine is sometimes taken away
SWITCHES = 300
Say = Callable[[str], None]


class Others:
    """What else ran on the machine: busy time of all cores less that of this process and its ended children."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._begun, self._busy, self._own = perf_counter(), _busy(), sum(os.times()[:4])

    def share(self) -> float:
        """Of the cores' time since the beginning, 0..1."""
        span = (perf_counter() - self._begun) * (os.cpu_count() or 1)
        return max(0.0, _busy() - self._busy - sum(os.times()[:4]) + self._own) / span

    def told(self) -> str:
        return (
            f"Load average before: {self._load:.2f}. Others used {100 * self.share():.1f} % of the cores' time "
            f"meanwhile: above {100 * realtime_report.QUIET:.0f} % the ratios say nothing, because who runs more "
            "processes gets more of a crowded machine."
        )


def _busy() -> float:
    """Seconds that the machine's cores were not idle since its start, stolen time included (proc(5))."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def compare(repeats: int, seconds: float, say: Say) -> dict[str, Any]:
    """Ratios of ours over naive concurrency: tasks without a miss, and fps at 1.5 times our pivot."""
    others = Others()
    fps = _rate()
    most = round(1.5 * PIVOT) + 3
    say(f"\n### Real execution on {len(cores_here())} cores: `{NET.name}`, {fps:.1f} fps a task, released together\n")
    say("| repeat | scheduler | tasks without a miss | fps at 1.5x | in time | missed |")
    say("| ---: | --- | ---: | ---: | ---: | ---: |")
    zeros: dict[str, list[int]] = {name: [] for name in CANDIDATES}
    rates: dict[str, list[Summary]] = {name: [] for name in CANDIDATES}
    for repeat in range(repeats):
        for name in CANDIDATES:
            with Bench(Candidate.named(name), most) as bench:
                zeros[name].append(_last_zero(bench, fps, seconds, most))
                overload = bench.run(round(1.5 * PIVOT), fps, seconds)
            rates[name].append(overload)
            say(
                f"| {repeat} | {name} | {zeros[name][-1]} | {overload.fps:.1f} | {overload.fps_in_time:.1f} | "
                f"{100 * overload.missed:.1f} % |"
            )
    staying, moving, again = _switch()
    crowd = others.share()
    say(f"\n{others.told()}")
    say(
        f"\nA stage in the partition where it was: {staying:.0f} us; in the other pre-warmed one: {moving:.0f} us; "
        f"re-creating a partition: {again:.0f} us. In ratios a count of 0 tasks is taken as 1."
    )
    answer: dict[str, Any] = {
        "switch_us": round(moving - staying),
        "recreate_us": round(again),
        "others_share": round(crowd, 3),
    }
    for rival, prefix in (("naive", ""), ("naive-single", "single_")):
        for name in ("ahead", "sgprs"):
            mine = "" if name == "ahead" else "sgprs_"
            answer[f"{mine}{prefix}zero_miss_ratio"] = _ratio(
                [max(1, n) for n in zeros[name]], [max(1, n) for n in zeros[rival]]
            )
            answer[f"{mine}{prefix}fps_ratio"] = _ratio([s.fps for s in rates[name]], [s.fps for s in rates[rival]])
            answer[f"{mine}{prefix}in_time_ratio"] = _ratio(
                [max(1.0, s.fps_in_time) for s in rates[name]], [max(1.0, s.fps_in_time) for s in rates[rival]]
            )
    return answer


def on_gpu(found: Availability, seconds: float, say: Say) -> dict[str, Any]:
    """ResNet-18, batch 1, 30 fps tasks on the GPU, divided by one stream; "not run" where there is none."""
    say(found.message)
    if not found.runs:
        return {"run": False, "reason": found.code}
    answer: dict[str, Any] = {"run": True, "device": found.message}
    singles = {}
    for name in ("single", "single-synchronous"):
        with Bench(Candidate.named(name, "cuda"), 4) as bench:
            singles[name] = bench.run(4, 500.0, seconds).fps  # more than one stream can do
    pipelined, synchronous = singles["single"], singles["single-synchronous"]
    most = int(2.5 * pipelined / 30.0)
    for name in ("naive", "sgprs", "ahead"):
        with Bench(Candidate.named(name, "cuda"), most) as bench:
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
    """Frames a second of each task such that PIVOT of them fill the cores, by one frame alone on one core."""
    pool = context_pool(len(cores_here()), len(cores_here()), 1.0, high=0, low=1, in_flight=1)
    with CpuSession([CpuTask("probe", NET)], pool) as session:
        times = _round_trips(session, [0] * 60)
    return len(cores_here()) / (PIVOT * statistics.median(times))


def _last_zero(bench: Bench, fps: float, seconds: float, most: int) -> int:
    """By halving: the largest number of tasks without a miss, taking misses to grow with the tasks."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        if bench.run(middle, fps, seconds).missed <= ZERO:
            low = middle
        else:
            high = middle
    return low


def _switch() -> tuple[float, float, float]:
    """Microseconds: a stage in the partition where it was, in the other one each time, and re-creating a partition."""
    cores = len(cores_here())
    pool = context_pool(cores, 2, 1.0 if cores > 1 else 2.0, high=0, low=1, in_flight=1)
    with CpuSession([CpuTask("probe", NET)], pool) as session:
        staying = statistics.median(_round_trips(session, [0] * SWITCHES, stage=3))
        moving = statistics.median(_round_trips(session, [0, 1] * (SWITCHES // 2), stage=3))
        again = statistics.median(session.recreate(1, 0) for _ in range(3))
    return 1e6 * staying, 1e6 * moving, 1e6 * again


def _round_trips(session: CpuSession, places: list[int], stage: int | None = None) -> list[float]:
    """Seconds from an order to its answer, one after another; a stage of one task, or the whole network."""
    times = []
    for number, place in enumerate(places):
        begun = perf_counter()
        session.order(place, 0, number, "probe", WHOLE if stage is None else stage)
        while not session.wait(1.0):
            pass
        times.append(perf_counter() - begun)
    return times


def _ratio(mine: list[Any], theirs: list[Any]) -> float:
    """Median over the repeats of ours over theirs."""
    return round(float(statistics.median(a / b for a, b in zip(mine, theirs, strict=True))), 2)
