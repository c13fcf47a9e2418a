"""(Pm,Pk)||Cmax: every method against the optimum on 200 seeded instances and hand-made traps.

    python -m benchmarks.theory.bench_makespan [--seeds 40] [--out FOLDER]

A part of `make bench-theory`. There are five sizes with 40 seeds each. The optimum is the answer of HiGHS, started from
the schedule of the dual approximation, at a relative gap of 1e-4 and 20 s; the table states how often HiGHS proved
less. A violated certificate ends the benchmark with an AssertionError.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inputs import positive
from benchmarks.theory.part import page_path, run_alone, write
from podium_optimisers.makespan import generator, registry
from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.methods import dual, milp
from podium_optimisers.makespan.schedule import MakespanPlan, MakespanSchedule

PART = "makespan"
SIZES = ((20, 4, 1), (30, 4, 1), (30, 8, 1), (20, 4, 2), (30, 4, 2))  # tasks, CPUs, GPUs
SEEDS = 40
LARGE, LARGE_SEEDS = (1000, 64, 8), 3
GAP, TIME_LIMIT = 1e-4, 20.0
METHODS = [name for name in registry.METHODS if name != "milp"]
CLOSE = 1 + 1e-6


@dataclass(slots=True)
class Tally:
    """One method on all instances.

    Makespan over the optimum and over the method's own certified bound, and seconds.
    """

    to_optimum: list[float] = field(default_factory=list)
    to_bound: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """What was measured.

    `unproven`: gaps that HiGHS left; `large`: seconds and certified ratio at n = 1000.
    """

    tallies: dict[str, Tally] = field(default_factory=lambda: {name: Tally() for name in METHODS})
    unproven: list[float] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    traps: list[str] = field(default_factory=list)
    large: list[tuple[float, float]] = field(default_factory=list)


def run(out: Path, seeds: int = SEEDS) -> dict[str, Any]:
    """Measure, write tables and plot into `out`, and return this part's keys of RESULT."""
    report = measure(seeds)
    figures = summary(report)
    path = page_path(out, PART)
    write(path, "(Pm,Pk)||Cmax", tables(report), "ratios", figures)
    plot(report, path.with_suffix(".png"))
    return figures


def measure(seeds: int) -> Report:
    """Solve all instances with every method."""
    report = Report()
    for size in SIZES:
        for seed in range(seeds):
            _one(report, generator.random_instance(*size, np.random.default_rng([*size, seed])))
        report.rows.append(_size_row(report, size, seeds))
        print(report.rows[-1], flush=True)
    for name, instance in generator.hard_instances().items():
        report.traps.append(_trap_row(name, instance))
    with _one_core():
        for seed in range(LARGE_SEEDS):
            instance = generator.random_instance(*LARGE, np.random.default_rng(seed))
            schedule, seconds = _timed("dual", instance)
            report.large.append((seconds, schedule.ratio))
    return report


def _one(report: Report, instance: MakespanInstance) -> None:
    timed = {name: _timed(name, instance) for name in METHODS}
    best = timed["dual"][0]
    start = MakespanPlan(np.array(best.assignment), bound=best.lower_bound)
    plan = milp.solve(instance, start, TIME_LIMIT, GAP)
    optimum = min(float(instance.loads(plan.machine_of).max()), *(one.makespan for one, _ in timed.values()))
    if optimum > plan.bound * (1 + 2 * GAP):
        report.unproven.append(optimum / plan.bound - 1)
    for name, (schedule, seconds) in timed.items():
        # every lower bound is the last infeasible value of a bisection, so the optimum must not be below it
        assert schedule.lower_bound <= optimum * CLOSE, f"{name}: bound {schedule.lower_bound}, optimum {optimum}"
        tally = report.tallies[name]
        tally.to_optimum.append(schedule.makespan / optimum)
        tally.to_bound.append(_within_proof(instance, schedule, optimum))
        tally.seconds.append(seconds)


def _within_proof(instance: MakespanInstance, schedule: MakespanSchedule, best: float) -> float:
    """Return the makespan over the certified bound.

    Raises AssertionError where a method exceeds its proven ratio to `best` (the makespan of the optimum or of a known
    schedule, in seconds), and where the dual approximation exceeds its ratio to the bound.
    """
    ratio = registry.get_method(schedule.method).ratio
    if ratio is not None:
        within = ratio(instance) * best * CLOSE
        assert schedule.makespan <= within, f"{schedule.method}: {schedule.makespan} is above the proven {within}"
    if schedule.method in ("dual", "shelves"):
        proven = dual.approximation_ratio(instance) * (1 + dual.GAP)
        assert schedule.ratio <= proven * CLOSE, f"{schedule.method}: {schedule.ratio} is above the proven {proven}"
    return schedule.ratio


def _timed(name: str, instance: MakespanInstance) -> tuple[MakespanSchedule, float]:
    begun = time.perf_counter()
    schedule = registry.solve(name, instance)
    return schedule, time.perf_counter() - begun


@contextmanager
def _one_core() -> Iterator[None]:
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def summary(report: Report) -> dict[str, Any]:
    """Return the figures for RESULT."""
    dual_tally, genetic, annealing = (report.tallies[name] for name in ("dual", "genetic", "annealing"))
    return {
        "dual_mean_ratio": round(statistics.fmean(dual_tally.to_optimum), 4),
        "dual_max_over_certified": round(max(dual_tally.to_bound), 4),
        "n1000_m64_k8_s": round(max(seconds for seconds, _ in report.large), 2),
        "ga_ratio": round(statistics.fmean(genetic.to_optimum), 4),
        "sa_ratio": round(statistics.fmean(annealing.to_optimum), 4),
        "ga_sa_max_ratio": round(max(*genetic.to_optimum, *annealing.to_optimum), 4),
        "ga_sa_max_s": round(max(*genetic.seconds, *annealing.seconds), 2),
        "heft_ratio": round(statistics.fmean(report.tallies["heft"].to_optimum), 4),
    }


def _size_row(report: Report, size: tuple[int, int, int], seeds: int) -> str:
    cells = []
    for name in ("shelves", "dual", "annealing", "genetic", "heft"):
        ratios = report.tallies[name].to_optimum[-seeds:]
        cells.append(f"{statistics.fmean(ratios):.4f} ({max(ratios):.3f})")
    return f"| {', '.join(map(str, size))} | {' | '.join(cells)} |"


def _trap_row(name: str, instance: MakespanInstance) -> str:
    schedules = {method: registry.solve(method, instance) for method in registry.METHODS}
    best = schedules["milp"].makespan
    for schedule in schedules.values():
        _within_proof(instance, schedule, best)
    return f"| {name} | {' | '.join(f'{schedule.makespan / best:.4g}' for schedule in schedules.values())} |"


def tables(report: Report) -> str:
    """Return the tables of the page."""
    table = [
        f"{len(report.tallies['dual'].to_optimum)} seeded instances; ratio to the optimum.",
        f"HiGHS proved it to {2 * GAP:.2%} on all but {len(report.unproven)} of them,",
        f"where the best known schedule takes its place (largest gap {max(report.unproven, default=0.0):.2%}).",
        "",
        "| method | mean | max | max over its certified bound | mean seconds | max seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    by_mean = sorted(report.tallies.items(), key=lambda item: statistics.fmean(item[1].to_optimum))
    table += [
        f"| {name} | {_mean_max(tally.to_optimum)} | {max(tally.to_bound):.4f} | {_mean_max(tally.seconds)} |"
        for name, tally in by_mean
    ]
    table += ["", "Mean (max) by size n, m, k:", "", "| size | shelves | dual | annealing | genetic | heft |"]
    table += ["| --- | --- | --- | --- | --- | --- |", *report.rows]
    table += ["", "Hand-made traps, ratio to the optimum:", "", f"| trap | {' | '.join(registry.METHODS)} |"]
    table += [f"| --- |{' --- |' * len(registry.METHODS)}", *report.traps]
    large = ", ".join(f"{seconds:.2f} s (certified ratio {ratio:.4f})" for seconds, ratio in report.large)
    n, m, k = LARGE
    table += ["", f"n = {n}, m = {m}, k = {k} with `dual` on one core, {LARGE_SEEDS} seeds: {large}."]
    return "\n".join(table)


def plot(report: Report, path: Path) -> None:
    """Draw a box for each method: makespan over the optimum, on all seeded instances."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = sorted(METHODS, key=lambda name: -statistics.fmean(report.tallies[name].to_optimum))
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    axes.boxplot([report.tallies[name].to_optimum for name in names], orientation="horizontal", whis=(0, 100))
    axes.set_yticks(range(1, len(names) + 1), names)
    axes.axvline(4 / 3, linestyle="--", linewidth=1, color="grey")
    axes.set_xlabel("makespan / optimum (box: quartiles, whiskers: all; dashed: 4/3)")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _mean_max(values: list[float]) -> str:
    return f"{statistics.fmean(values):.4f} | {max(values):.4f}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of instances."""
    parser.add_argument("--seeds", type=positive, default=SEEDS, help=f"instances of each size (default: {SEEDS})")


if __name__ == "__main__":
    sys.exit(run_alone(PART, __doc__, run, add_options))
