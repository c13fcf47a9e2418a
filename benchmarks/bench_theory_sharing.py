"""Sharing GPUs of three speeds: makespan by LP against FIFO, fair shares with residual and duality gap, rounding.

    python benchmarks/bench_theory_sharing.py

Called by `make bench-theory`, or alone. Tables and a plot go to benchmarks/results/. Job sets are drawn as Gavel's
evaluation states (`podium_optimisers.sharing.gavel_jobs`), with the speeds that its authors measured and, at 500 jobs,
with a model of our own beside; 36 V100 + 36 P100 + 36 K80.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import theory_part

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
SETS = 3  # job sets a size
BLIND = 10  # FIFO runs a job set, each with other random choices of a type
PRIORITIES: tuple[Priority, ...] = ("deficit", "ratio")
MODEL = "500, own model"


def makespans(jobs: JobSet) -> dict[str, float]:
    """Hours of one job set."""
    blind = [
        replay_fifo(jobs.problem, jobs.steps, np.random.default_rng(choice)).makespan / HOUR for choice in range(BLIND)
    ]
    return {
        "bound": 1.0 / makespan_shares(jobs.problem, jobs.steps).bound / HOUR,
        **{way: replay_rounds(jobs.problem, jobs.steps, ROUND, way).makespan / HOUR for way in PRIORITIES},
        "fifo": statistics.mean(blind),
        "fifo_best": min(blind),
        "fifo_fastest": replay_fifo(jobs.problem, jobs.steps).makespan / HOUR,
    }


def methods(jobs: JobSet) -> list[tuple[TimeShares, float]]:
    """Each with the seconds it took."""
    ways: tuple[Callable[[], TimeShares], ...] = (
        lambda: makespan_shares(jobs.problem, jobs.steps),
        lambda: max_min_shares(jobs.problem),
        lambda: proportional_shares(jobs.problem),
    )
    found = []
    for way in ways:
        begun = time.perf_counter()
        shares = way()
        found.append((shares, time.perf_counter() - begun))
    return found


def drf_example(size: int) -> tuple[float, float]:
    """Residual and spread of the dominant shares of jobs that need GPUs, CPUs and memory in seeded proportions."""
    rng = np.random.default_rng(0)
    demand = np.stack([rng.choice([1, 2, 4, 8], size), rng.integers(1, 65, size), rng.integers(1, 257, size)], axis=1)
    problem = DrfProblem.of([f"j{i}" for i in range(size)], ("gpus", "cpus", "gib"), demand, (108.0, 1728.0, 6912.0))
    shares = drf_shares(problem)
    return shares.residual, float(np.ptp(shares.dominant_share))


@dataclass(frozen=True, slots=True)
class Report:
    sets: dict[str, list[dict[str, float]]]  # by number of jobs (and MODEL): hours of each job set
    solved: list[tuple[TimeShares, float]]
    drf_residual: float
    drf_spread: float

    def mean(self, which: str) -> dict[str, float]:
        return {key: statistics.mean(one[key] for one in self.sets[which]) for key in self.sets[which][0]}

    def over_rounds(self, key: str, which: str = "500") -> list[float]:
        """Of each job set."""
        return [one[key] / one["deficit"] for one in self.sets[which]]


def run() -> dict[str, Any]:
    """Measures, writes tables and plot, and gives the keys of `RESULT` that belong to sharing."""
    report = measure()
    found = summary(report)
    theory_part.write(PART, "sharing", tables(report), "makespans", found)
    plot(report)
    return found


def measure() -> Report:
    def sets(draw: Callable[[np.random.Generator, int], JobSet], size: int) -> list[dict[str, float]]:
        return [makespans(draw(np.random.default_rng(seed), size)) for seed in range(SETS)]

    found = {str(size): sets(gavel_measured, size) for size in SIZES} | {MODEL: sets(gavel_like, 500)}
    return Report(found, methods(gavel_measured(np.random.default_rng(0), 500)), *drf_example(500))


def summary(report: Report) -> dict[str, Any]:
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
    found = summary(report)
    lines = [
        f"Makespan in hours, mean of {SETS} job sets a size; 36 V100 + 36 P100 + 36 K80, rounds of {ROUND:g} s.",
        f"FIFO takes a random type with room and stays on it ({BLIND} runs a set); fastest: the fastest with room.\n",
        "| jobs | proven bound | LP in rounds (deficit) | (ratio) | FIFO, mean | FIFO, luckiest | FIFO, fastest |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(f"| {n} | {' | '.join(f'{hours:.1f}' for hours in report.mean(n).values())} |" for n in report.sets),
        f"\nAt 500 jobs FIFO takes {found['lp_over_fifo']} times as long as the LP in rounds (geometric mean) with the",
        f"speeds that Gavel's authors measured, {found['lp_over_fifo_own_model']} times with our model of them.",
        "FIFO's makespan is that of a long job that started late on a slow type.\n",
        "Shares of 500 jobs. Bound by weak duality from prices; residual: largest violation of a constraint.\n",
        "| method | objective | bound | gap | residual | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {shares.method} | {shares.objective:.9g} | {shares.bound:.9g} | {shares.gap:.1e} | "
            f"{shares.residual:.1e} | {seconds:.2f} |"
            for shares, seconds in report.solved
        ),
        f"| DRF | dominant shares within {report.drf_spread:.0e} | | | {report.drf_residual:.1e} | |",
        "\nLargest part of a share that rounds did not give:\n",
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


def plot(report: Report) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5), layout="constrained")
    names = {"bound": "proven bound", "deficit": "LP in rounds", "fifo": "FIFO", "fifo_fastest": "FIFO, fastest type"}
    for place, (key, name) in enumerate(names.items()):
        at = [number + 0.2 * (place - 1.5) for number in range(len(SIZES))]
        axes.bar(at, [report.mean(str(size))[key] for size in SIZES], 0.18, label=name)
    axes.set_xticks(range(len(SIZES)), [f"{size} jobs" for size in SIZES])
    axes.set_ylabel("makespan (h)")
    axes.set_ylim(top=1.3 * axes.get_ylim()[1])
    axes.legend(ncols=2, loc="upper left")
    figure.savefig(theory_part.page(PART).with_suffix(".png"), dpi=120)


if __name__ == "__main__":
    sys.exit(theory_part.alone(PART, __doc__, run))
