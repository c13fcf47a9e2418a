"""Sharing GPUs of three speeds: makespan by LP against FIFO, fair shares with residual and duality gap, and rounding.

    python -m benchmarks.theory.bench_sharing [--out FOLDER]

A part of `make bench-theory`. Job sets are drawn as Gavel's evaluation describes
(`podium_optimisers.sharing.gavel_jobs`), with the speeds that its authors measured and, at 500 jobs, also with Podium's
own model. The cluster has 36 V100, 36 P100 and 36 K80.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.theory.part import page_path, run_alone, write
from podium_optimisers.sharing.drf import DrfProblem, drf_shares
from podium_optimisers.sharing.gavel_jobs import JobSet, gavel_like, gavel_measured
from podium_optimisers.sharing.makespan import makespan_shares
from podium_optimisers.sharing.max_min import max_min_shares
from podium_optimisers.sharing.proportional import proportional_shares
from podium_optimisers.sharing.replay import replay_fifo, replay_rounds
from podium_optimisers.sharing.rounds import Priority, round_shares
from podium_optimisers.sharing.shares import TimeShares

PART = "sharing"
HOUR = 3600.0
ROUND = 360.0  # seconds
SIZES = (300, 500, 700)
SETS = 3  # job sets of each size
FIFO_RUNS = 10  # for each job set, each with other random choices of a GPU type
PRIORITIES: tuple[Priority, ...] = ("deficit", "ratio")
MODEL = "500, own model"


def makespans(jobs: JobSet) -> dict[str, float]:
    """Return the hours of one job set by method."""
    fifo_hours = [
        replay_fifo(jobs.problem, jobs.steps, np.random.default_rng(choice)).makespan / HOUR
        for choice in range(FIFO_RUNS)
    ]
    return {
        "bound": 1.0 / makespan_shares(jobs.problem, jobs.steps).bound / HOUR,
        **{way: replay_rounds(jobs.problem, jobs.steps, ROUND, way).makespan / HOUR for way in PRIORITIES},
        "fifo": statistics.mean(fifo_hours),
        "fifo_best": min(fifo_hours),
        "fifo_fastest": replay_fifo(jobs.problem, jobs.steps).makespan / HOUR,
    }


def methods(jobs: JobSet) -> list[tuple[TimeShares, float]]:
    """Return the shares of each method with the seconds that it took."""
    ways: tuple[Callable[[], TimeShares], ...] = (
        lambda: makespan_shares(jobs.problem, jobs.steps),
        lambda: max_min_shares(jobs.problem),
        lambda: proportional_shares(jobs.problem),
    )
    timed = []
    for way in ways:
        begun = time.perf_counter()
        shares = way()
        timed.append((shares, time.perf_counter() - begun))
    return timed


def drf_example(size: int) -> tuple[float, float]:
    """Return residual and spread of the dominant shares.

    The jobs have seeded needs of GPUs, CPUs and memory.
    """
    rng = np.random.default_rng(0)
    demand = np.stack([rng.choice([1, 2, 4, 8], size), rng.integers(1, 65, size), rng.integers(1, 257, size)], axis=1)
    problem = DrfProblem.of([f"j{i}" for i in range(size)], ("gpus", "cpus", "gib"), demand, (108.0, 1728.0, 6912.0))
    shares = drf_shares(problem)
    return shares.residual, float(np.ptp(shares.dominant_share))


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured. `sets`: hours of each job set, by number of jobs, and MODEL."""

    sets: dict[str, list[dict[str, float]]]
    solved: list[tuple[TimeShares, float]]
    drf_residual: float
    drf_spread: float

    def mean(self, which: str) -> dict[str, float]:
        """Return the mean hours over the job sets."""
        return {key: statistics.mean(one[key] for one in self.sets[which]) for key in self.sets[which][0]}

    def over_rounds(self, key: str, which: str = "500") -> list[float]:
        """Return this method's hours over those of the LP in rounds, for each job set."""
        return [one[key] / one["deficit"] for one in self.sets[which]]


def run(out: Path) -> dict[str, Any]:
    """Measure, write tables and plot into `out`, and return the keys of RESULT that belong to sharing."""
    report = measure()
    figures = summary(report)
    path = page_path(out, PART)
    write(path, "sharing", tables(report), "makespans", figures)
    plot(report, path.with_suffix(".png"))
    return figures


def measure() -> Report:
    """Measure all job sets."""

    def sets(draw: Callable[[np.random.Generator, int], JobSet], size: int) -> list[dict[str, float]]:
        return [makespans(draw(np.random.default_rng(seed), size)) for seed in range(SETS)]

    by_size = {str(size): sets(gavel_measured, size) for size in SIZES} | {MODEL: sets(gavel_like, 500)}
    return Report(by_size, methods(gavel_measured(np.random.default_rng(0), 500)), *drf_example(500))


def summary(report: Report) -> dict[str, Any]:
    """Return the figures for RESULT."""
    return {
        "lp_over_fifo": round(statistics.geometric_mean(report.over_rounds("fifo")), 2),
        "lp_over_fifo_own_model": round(statistics.geometric_mean(report.over_rounds("fifo", MODEL)), 2),
        "lp_over_luckiest_fifo": round(min(report.over_rounds("fifo_best")), 2),
        "lp_over_fifo_fastest": round(min(report.over_rounds("fifo_fastest")), 2),
        "rounds_over_bound": round(1.0 / min(report.over_rounds("bound")), 4),
        "max_residual": max(report.drf_residual, *(shares.residual for shares, _ in report.solved)),
        "duality_gaps": {shares.method: float(f"{shares.gap:.2g}") for shares, _ in report.solved},
    }


def tables(report: Report) -> str:
    """Return the tables of the page."""
    figures = summary(report)
    lines = [
        f"Makespan in hours, mean of {SETS} job sets a size; 36 V100 + 36 P100 + 36 K80, rounds of {ROUND:g} s.",
        f"FIFO takes a random GPU type with free GPUs and keeps it ({FIFO_RUNS} runs a set); fastest: the fastest.\n",
        "| jobs | proven bound | LP in rounds (deficit) | (ratio) | FIFO, mean | FIFO, luckiest | FIFO, fastest |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(f"| {n} | {' | '.join(f'{hours:.1f}' for hours in report.mean(n).values())} |" for n in report.sets),
        f"\nAt 500 jobs FIFO takes {figures['lp_over_fifo']} times as long as the LP in rounds (geometric mean) with",
        f"the speeds that Gavel's authors measured, {figures['lp_over_fifo_own_model']} times with Podium's model of",
        "them. FIFO's makespan is that of a long job that started late on a slow type.\n",
        "TimeShares of 500 jobs. Bound by weak duality from prices; residual: largest violation of a constraint.\n",
        "| method | objective | bound | gap | residual | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {shares.method} | {shares.objective:.9g} | {shares.bound:.9g} | {shares.gap:.1e} | "
            f"{shares.residual:.1e} | {seconds:.2f} |"
            for shares, seconds in report.solved
        ),
        f"| DRF | dominant shares within {report.drf_spread:.0e} | | | {report.drf_residual:.1e} | |",
        "\nLargest part of a share that the rounds did not provide:\n",
        "| method | priority | 100 rounds | 1000 rounds |",
        "| --- | --- | --- | --- |",
        *(
            f"| {shares.method} | {way} | "
            f"{' | '.join(f'{round_shares(shares, n, way).max_deficit:.4f}' for n in (100, 1000))} |"
            for shares, _ in report.solved
            for way in PRIORITIES
        ),
    ]
    return "\n".join(lines)


def plot(report: Report, path: Path) -> None:
    """Draw the plot of this part."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5), layout="constrained")
    names = {"bound": "proven bound", "deficit": "LP in rounds", "fifo": "FIFO", "fifo_fastest": "FIFO, fastest type"}
    for index, (key, name) in enumerate(names.items()):
        at = [number + 0.2 * (index - 1.5) for number in range(len(SIZES))]
        axes.bar(at, [report.mean(str(size))[key] for size in SIZES], 0.18, label=name)
    axes.set_xticks(range(len(SIZES)), [f"{size} jobs" for size in SIZES])
    axes.set_ylabel("makespan (h)")
    axes.set_ylim(top=1.3 * axes.get_ylim()[1])
    axes.legend(ncols=2, loc="upper left")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(run_alone(PART, __doc__, run))
