"""Reinforcement learning on the engine: trained from scratch, then ranked on workloads that no training used.

    python -m benchmarks.theory.bench_learning [--episodes 200] [--out FOLDER]

A part of `make bench-theory`. The weights that the package ships are ranked beside the fresh ones. Set
OPENBLAS_NUM_THREADS=1: the networks are too small for more threads. There are two tests: the distribution that was
trained on, and a synthetic trace with other widths, durations and cluster size.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inputs import positive
from benchmarks.theory.part import page_path, run_alone, write
from podium_optimisers.arrays import Floats
from podium_optimisers.engine.cluster import GpuCluster, PreemptionCosts
from podium_optimisers.engine.simulation import SchedulingPolicy, Simulation, simulate
from podium_optimisers.engine.traces import synthetic_trace
from podium_optimisers.engine.workload import Workload
from podium_optimisers.learning.backlog import Backlog
from podium_optimisers.learning.environment import EpisodeDistribution
from podium_optimisers.learning.policy import TRAINED_WEIGHTS, LearnedPolicy
from podium_optimisers.learning.train import METHODS
from podium_optimisers.preemptive.policies import FifoPolicy, LasPolicy, SafPolicy, SjfPolicy, SrptPolicy

PART = "learning"
EPISODES, HELD_OUT = 200, 1_000_000  # held-out workloads are drawn from seeds that start here
TRAINING_SEED = 0
FAR, FAR_CLUSTER, FAR_JOBS = 20, GpuCluster(8, 8), 400
RIVALS = ("random", "fifo", "fifo, backfilled", "sjf")


@dataclass(slots=True)
class Report:
    """What was measured.

    `seconds`: CPU seconds of the training; `curves`: mean completion during the training.
    `means`, `far`: mean completion of each held-out workload, by policy, on the training's distribution and on the
    synthetic traces.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[float]] = field(default_factory=dict)
    means: dict[str, Floats] = field(default_factory=dict)
    far: dict[str, Floats] = field(default_factory=dict)


class RandomRun(Backlog):
    """One run of the random policy: it starts any waiting job that fits, until none fits."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = np.random.default_rng(seed)

    def decide(self, simulation: Simulation) -> None:
        while fits := [job for job in self.visible_jobs() if job.gpus <= simulation.pool.free]:
            self.start(simulation, fits[int(self.generator.integers(len(fits)))])


@dataclass(frozen=True, slots=True)
class Random:
    """The random policy: the lower limit of what a policy should reach."""

    seed: int = 0
    name: str = "random"

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> RandomRun:
        return RandomRun(self.seed)


def run(out: Path, episodes: int = EPISODES) -> dict[str, Any]:
    """Measure, write tables and plot into `out`, and return the keys of RESULT that belong to learning."""
    report = measure(episodes)
    figures = summary(report)
    path = page_path(out, PART)
    write(path, "reinforcement learning", tables(report), "training", figures)
    plot(report, path.with_suffix(".png"))
    return figures


def measure(episodes: int) -> Report:
    """Train all methods and rank all policies on `episodes` held-out workloads."""
    report = Report()
    policies: list[SchedulingPolicy] = [
        Random(),
        FifoPolicy(),
        FifoPolicy(backfill=True, name="fifo, backfilled"),
        LasPolicy((600.0,)),
        SjfPolicy(),
        SafPolicy(),
        SrptPolicy(),
    ]
    for name, make in METHODS.items():
        curve: list[float] = []
        begun = time.process_time()
        network = make().train(TRAINING_SEED, lambda _, mean, curve=curve: curve.append(mean))  # type: ignore[misc]
        report.seconds[name], report.curves[name] = time.process_time() - begun, curve
        policies.append(LearnedPolicy(network, name))
        policies.append(LearnedPolicy.load(TRAINED_WEIGHTS / f"{name}.npz", f"{name}, shipped"))
    source = EpisodeDistribution()
    held_out = [source.sample(np.random.default_rng(HELD_OUT + seed)) for seed in range(episodes)]
    far = [synthetic_trace(FAR_JOBS, np.random.default_rng(HELD_OUT + seed)) for seed in range(FAR)]
    for policy in policies:
        report.means[policy.name] = np.array([_mean(workload, source.cluster, policy) for workload in held_out])
        report.far[policy.name] = np.array([_mean(workload, FAR_CLUSTER, policy) for workload in far])
    return report


def _mean(workload: Workload, cluster: GpuCluster, policy: SchedulingPolicy) -> float:
    return simulate(workload, cluster, policy).mean_completion


def difference(report: Report, policy: str, rival: str) -> tuple[float, float]:
    """Return the mean difference of policy and rival in seconds, and half its 95 % interval.

    The difference is paired over workloads.
    """
    gaps = report.means[policy] - report.means[rival]
    return float(np.mean(gaps)), 1.96 * float(np.std(gaps, ddof=1)) / float(np.sqrt(len(gaps)))


def beats(report: Report, policy: str, rival: str) -> bool:
    """Return whether the whole 95 % interval of the difference is below 0."""
    gap, half = difference(report, policy, rival)
    return gap + half < 0.0


def best_heuristic(report: Report) -> str:
    """Return the best policy that is not learned."""
    known = [name for name in report.means if name.split(",")[0] not in METHODS]
    return min(known, key=lambda name: float(np.mean(report.means[name])))


def summary(report: Report) -> dict[str, Any]:
    """Return the figures for RESULT."""
    best = min(METHODS, key=lambda name: float(np.mean(report.means[name])))
    mean = float(np.mean(report.means[best]))
    heuristic = best_heuristic(report)
    return {
        "rl_beats_fifo": all(beats(report, name, rival) for name in METHODS for rival in RIVALS if "fifo" in rival),
        "rl_beats_random": all(beats(report, name, "random") for name in METHODS),
        "rl_best": best,
        "rl_over_sjf": round(mean / float(np.mean(report.means["sjf"])), 3),
        "rl_over_best_heuristic": round(mean / float(np.mean(report.means[heuristic])), 3),
        "best_heuristic": heuristic,
        "rl_training_s": round(sum(report.seconds.values()), 1),
    }


def tables(report: Report) -> str:
    """Return the tables of the page."""
    order = sorted(report.means, key=lambda name: float(np.mean(report.means[name])))
    trained = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in report.seconds.items())
    count = len(report.means["fifo"])
    lines = [
        f"Trained from scratch (seed {TRAINING_SEED}), seconds of one core: {trained}.\n",
        (
            f"{count} held-out workloads of the training's distribution; seconds, mean over workloads. Differences are "
            "paired, with their 95 % interval. Far: mean completion over SJF's on "
            f"{FAR} synthetic traces of {FAR_JOBS} jobs on {FAR_CLUSTER.gpus} GPUs, on which nothing was trained.\n"
        ),
        f"| rank | policy | mean JCT (s) | {' | '.join(f'against {rival}' for rival in RIVALS)} | far, over sjf |",
        "| --- |" + " --- |" * (3 + len(RIVALS)),
        *(_row(rank, name, report) for rank, name in enumerate(order, start=1)),
    ]
    return "\n".join(lines)


def _row(rank: int, name: str, report: Report) -> str:
    gaps = (difference(report, name, rival) for rival in RIVALS)
    cells = " | ".join(f"{gap:+.0f} ± {half:.0f}" for gap, half in gaps)
    far = float(np.mean(report.far[name] / report.far["sjf"]))
    return f"| {rank} | {name} | {float(np.mean(report.means[name])):.1f} | {cells} | {far:.2f} |"


def plot(report: Report, path: Path) -> None:
    """Draw the plot of this part."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5), layout="constrained")
    for name, curve in report.curves.items():
        smooth = np.convolve(curve, np.full(10, 0.1), mode="valid")
        axes.plot(np.linspace(0.0, 1.0, len(smooth)), smooth, label=name)
    for name in ("random", "fifo, backfilled", "sjf", "srpt"):
        axes.axhline(float(np.mean(report.means[name])), linestyle=":", color="grey")
        axes.text(1.0, float(np.mean(report.means[name])), name, va="bottom", ha="right", fontsize=8)
    axes.set_xlabel("share of the training")
    axes.set_ylabel("mean completion of its episodes (s)")
    axes.legend()
    figure.savefig(path, dpi=120)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of held-out workloads."""
    text = f"held-out workloads (default: {EPISODES})"
    parser.add_argument("--episodes", type=positive, default=EPISODES, help=text)


if __name__ == "__main__":
    sys.exit(run_alone(PART, __doc__, run, add_options))
