"""(Pm,Pk)||Cmax: every method against the optimum on 200 seeded instances and hand-made traps; the time at n = 1000.

    python benchmarks/bench_theory_makespan.py [--seeds 40]

Called by `make bench-theory`, or alone. Tables and a plot go to benchmarks/results/. The instances are those of the
research note (2.2): five sizes, 40 seeds each. The optimum is HiGHS' answer, started from the dual approximation's
schedule, at a relative gap of 1e-4 and 20 s; the table says how often it proved less. A certificate that is broken ends
the benchmark with an AssertionError.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import theory_part

from podium_optimisers.makespan import dual, generator, milp, registry
from podium_optimisers.makespan.instance import MakespanInstance
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
    """One method over all instances: makespan over optimum, over its own certified bound, and seconds."""

    to_optimum: list[float] = field(default_factory=list)
    to_bound: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    tallies: dict[str, Tally] = field(default_factory=lambda: {name: Tally() for name in METHODS})
    unproven: list[float] = field(default_factory=list)  # gaps that HiGHS left
    rows: list[str] = field(default_factory=list)
    traps: list[str] = field(default_factory=list)
    large: list[tuple[float, float]] = field(default_factory=list)  # seconds, certified ratio


def run(seeds: int = SEEDS) -> dict[str, Any]:
    """Measures, writes tables and plot, and gives the keys of `RESULT` that belong to the makespan problem."""
    report = measure(seeds)
    found = summary(report)
    theory_part.write(PART, "(Pm,Pk)||Cmax", tables(report), "ratios", found)
    plot(report)
    return found


def measure(seeds: int) -> Report:
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
    found = {name: _timed(name, instance) for name in METHODS}
    best = found["dual"][0]
    start = MakespanPlan(np.array(best.assignment), bound=best.lower_bound)
    plan = milp.solve(instance, start, TIME_LIMIT, GAP)
    optimum = min(float(instance.loads(plan.machine_of).max()), *(one.makespan for one, _ in found.values()))
    if optimum > plan.bound * (1 + 2 * GAP):
        report.unproven.append(optimum / plan.bound - 1)
    for name, (schedule, seconds) in found.items():
        # every lower bound is the last NO of a bisection: the solver's schedule must end after it
        assert schedule.lower_bound <= optimum * CLOSE, f"{name}: a NO at {schedule.lower_bound}, optimum {optimum}"
        tally = report.tallies[name]
        tally.to_optimum.append(schedule.makespan / optimum)
        tally.to_bound.append(_within_proof(instance, schedule, optimum))
        tally.seconds.append(seconds)


def _within_proof(instance: MakespanInstance, schedule: MakespanSchedule, best: float) -> float:
    """Makespan over the certified bound. Raises where a method passes its proven ratio to `best` (the optimum, or a
    schedule above it, in seconds), and the dual approximation where it passes its ratio to the bound.
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
    table = [
        f"{len(report.tallies['dual'].to_optimum)} seeded instances; ratio to the optimum.",
        f"HiGHS proved it to {2 * GAP:.2%} on all but {len(report.unproven)} of them,",
        f"where the best schedule known stands for it (largest gap {max(report.unproven, default=0.0):.2%}).",
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


def plot(report: Report) -> None:
    """A box for each method: makespan over the optimum, on all seeded instances."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = sorted(METHODS, key=lambda name: -statistics.fmean(report.tallies[name].to_optimum))
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    axes.boxplot([report.tallies[name].to_optimum for name in names], orientation="horizontal", whis=(0, 100))
    axes.set_yticks(range(1, len(names) + 1), names)
    axes.axvline(4 / 3, linestyle="--", linewidth=1, color="grey")
    axes.set_xlabel("makespan / optimum (box: quartiles, whiskers: all; dashed: 4/3)")
    figure.savefig(theory_part.page(PART).with_suffix(".png"), dpi=120)
    pyplot.close(figure)


def _mean_max(values: list[float]) -> str:
    return f"{statistics.fmean(values):.4f} | {max(values):.4f}"


if __name__ == "__main__":
    sys.exit(theory_part.alone(PART, __doc__, run, theory_part.Size("seeds", SEEDS, "instances of each size")))
