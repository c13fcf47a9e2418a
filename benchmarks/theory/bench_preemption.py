"""Preemption, prediction and hybrids on the virtual-time engine: M/M/1 by formula, the Philly trace, and forecasts.

    python -m benchmarks.theory.bench_preemption [--jobs 1000000] [--trace FILE] [--out FOLDER]

A part of `make bench-theory`. `--trace` is a CSV in the format of the Philly trace (benchmarks/data/philly), or the
word `synthetic` for a seeded synthetic trace; then the page and the bars say so. All figures except seconds are the
same on every machine. Shares of an oracle's gain compare like with like. Either FIFO, SJF and predicted-SJF all stop at
the first gang that does not fit, as in the Helios authors' simulator, whose policies set the bar on Philly (SC 2021).
Or all of them backfill, as in the PAI authors' simulator (NSDI 2022).
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inputs import PHILLY, positive, require_file
from benchmarks.theory.part import page_path, run_alone, write
from podium_optimisers.arrays import Floats
from podium_optimisers.engine.cluster import GpuCluster, PreemptionCosts
from podium_optimisers.engine.result import SimulationResult
from podium_optimisers.engine.simulation import SchedulingPolicy, simulate
from podium_optimisers.engine.traces import poisson_workload, read_philly_trace, synthetic_trace
from podium_optimisers.engine.workload import Workload
from podium_optimisers.hybrid.hierarchical import HierarchicalPolicy
from podium_optimisers.hybrid.static_plan import StaticPlanPolicy
from podium_optimisers.prediction.arrivals import count_arrivals, fit_holt_winters, seasonal_naive
from podium_optimisers.prediction.history import burst_templates
from podium_optimisers.prediction.predicted import PredictedSjfPolicy, PredictedSrptPolicy
from podium_optimisers.preemptive.policies import FifoPolicy, GittinsPolicy, LasPolicy, SafPolicy, SjfPolicy, SrptPolicy
from podium_optimisers.queueing.service import Exponential
from podium_optimisers.queueing.srpt import srpt_mean_response

PART = "preemption"
SYNTHETIC = "synthetic"
LOAD, JOBS, SEEDS = 0.9, 1_000_000, (0, 1, 2)
COSTS = PreemptionCosts(restart=30.0, migration=60.0)
NODE = 8  # GPUs
MAIN, OTHERS = 64, (48, 80)  # nodes for the whole trace: with 64 FIFO queues for days and no queue diverges
ALONE = (("0e4a51", 8), ("6214e9", 6), ("11cb48", 3), ("6c71a0", 6), ("b436b2", 9))  # virtual clusters on own nodes
STRICT: tuple[SchedulingPolicy, ...] = (
    FifoPolicy(),
    SjfPolicy(backfill=False, name="sjf, strict"),
    PredictedSjfPolicy(backfill=False, name="predicted-sjf, strict"),
)
BACKFILLED: tuple[SchedulingPolicy, ...] = (
    FifoPolicy(backfill=True, name="fifo, backfilled"),
    SjfPolicy(),
    PredictedSjfPolicy(),
)
PREEMPTING = ("fifo, backfilled", "srpt", "predicted-srpt")
# seconds by which each arrival is delayed at most, and how often: it shows how much of a share is chance
SHIFT, SHIFTS = 60.0, 5
DAYS_KNOWN, HOUR, DAY = 70, 3600.0, 24
BATCHES, BATCH = 20, 200


@dataclass(slots=True)
class Report:
    """What was measured.

    `philly`: the trace is that of benchmarks/data; `bursts`: job templates are derived from bursts of arrivals; `pace`:
    million events a minute of the slowest run; `main`: outcome of each policy on the whole trace; `later`: mean
    completion without the jobs that Gittins learned from; `shares`: mean completion by policy, for each setting;
    `shifted`: smallest and largest share; `groups`: slowdown of the group with the largest one, by policy.
    """

    trace: str = ""
    philly: bool = False
    bursts: bool = False
    queue: list[str] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    pace: float = 0.0
    main: dict[str, SimulationResult] = field(default_factory=dict)
    later: dict[str, float] = field(default_factory=dict)
    shares: dict[str, dict[str, float]] = field(default_factory=dict)
    shifted: dict[str, tuple[float, float]] = field(default_factory=dict)
    groups: dict[str, float] = field(default_factory=dict)
    forecast: dict[str, float] = field(default_factory=dict)
    plans: dict[str, list[float]] = field(default_factory=dict)


def run(out: Path, jobs: int = JOBS, trace: str = str(PHILLY)) -> dict[str, Any]:
    """Measure, write tables and plot into `out`, and return the keys of RESULT that belong to this part."""
    report = measure(jobs, trace)
    figures = summary(report)
    path = page_path(out, PART)
    write(path, "preemption, prediction, hybrids", tables(report), "mean JCT", figures)
    plot(report, path.with_suffix(".png"))
    return figures


def measure(jobs: int, trace: str) -> Report:
    """Run all simulations. `trace`: a file, or SYNTHETIC."""
    report = Report()
    workload, cluster = read_trace(report, trace)
    measure_queue(report, jobs)
    measure_policies(report, workload, cluster)
    measure_shifted(report, workload, cluster)
    measure_virtual_clusters(report, workload)
    measure_forecast(report, workload)
    measure_plans(report)
    return report


def measure_queue(report: Report, jobs: int) -> None:
    """Simulate SRPT and FIFO in M/M/1 at load 0.9."""
    exact = srpt_mean_response(LOAD, Exponential(1.0))
    paces = []
    for seed in SEEDS:
        workload = poisson_workload(jobs, LOAD, np.random.default_rng(seed))
        means = []
        for policy in (SrptPolicy(), FifoPolicy()):
            begun = time.perf_counter()
            result = simulate(workload, GpuCluster(1, 1), policy)
            paces.append(result.events / (time.perf_counter() - begun) * 60.0 / 1e6)
            means.append(result.mean_completion)
        report.errors.append(means[0] / exact - 1.0)
        fifo = means[1] * (1.0 - LOAD) - 1.0
        report.queue.append(f"| {seed} | {means[0]:.4f} | {100 * report.errors[-1]:+.2f} % | {100 * fifo:+.2f} % |")
    report.pace = min(paces)


def read_trace(report: Report, trace: str) -> tuple[Workload, GpuCluster]:
    """Return the jobs and the cluster. Ends the program where the file cannot be read."""
    if trace == SYNTHETIC:
        workload = synthetic_trace(20_000, np.random.default_rng(0), load=0.9, gpus=64)
        report.trace = f"synthetic, {len(workload)} jobs, on 8 nodes of {NODE} GPUs"
        return workload, GpuCluster(8, NODE)
    path = require_file(Path(trace), "--trace (make: TRACE=)")
    try:
        workload = read_philly_trace(path)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise SystemExit(f"--trace: {path} is not in the format of the Philly trace ({error})") from None
    report.philly, report.bursts = path == PHILLY, True
    report.trace = f"{'Philly' if report.philly else path.name}, {len(workload)} jobs, on {MAIN} nodes of {NODE} GPUs"
    return replace(workload, templates=burst_templates(workload)), GpuCluster(MAIN, NODE)


def measure_policies(report: Report, workload: Workload, cluster: GpuCluster) -> None:
    """Simulate all policies on the whole trace, and the central ones also on clusters of other sizes."""
    known = workload.arrival <= np.quantile(workload.arrival, 0.25)
    history = (workload.duration * workload.gpus)[known]
    policies: list[SchedulingPolicy] = [
        *STRICT,
        *BACKFILLED,
        SafPolicy(),
        SrptPolicy(),
        LasPolicy(),
        LasPolicy(promote=8.0, name="las, promoted"),
        GittinsPolicy.fit(history),
        PredictedSrptPolicy(),
        HierarchicalPolicy(lend=False, name="partitions"),
        HierarchicalPolicy(),
    ]
    for policy in policies:
        result = simulate(workload, cluster, policy, COSTS)
        report.main[policy.name] = result
        report.groups[policy.name] = worst_group(result)
        report.later[policy.name] = float(np.mean(result.completion[~known]))
    report.shares[f"all, {cluster.gpus} GPUs"] = {name: got.mean_completion for name, got in report.main.items()}
    for nodes in (cluster.nodes * other // MAIN for other in OTHERS):
        report.shares[f"all, {nodes * NODE} GPUs"] = central(workload, GpuCluster(nodes, NODE))


def measure_virtual_clusters(report: Report, workload: Workload) -> None:
    """Simulate virtual clusters on nodes of their own.

    There the group predicts nothing; only the bursts do.
    """
    for name, nodes in ALONE:
        rows = np.array([group == name for group in workload.groups])
        if rows.any():
            part = workload.select(rows)
            report.shares[f"{name}, {nodes * NODE} GPUs"] = central(part, GpuCluster(nodes, NODE))


def central(workload: Workload, cluster: GpuCluster) -> dict[str, float]:
    """Return the mean completion of the central policies."""
    policies = (*STRICT, *BACKFILLED, SrptPolicy(), PredictedSrptPolicy())
    return {policy.name: simulate(workload, cluster, policy, COSTS).mean_completion for policy in policies}


def measure_shifted(report: Report, workload: Workload, cluster: GpuCluster) -> None:
    """Simulate the central policies with each arrival up to a minute later.

    This shows how much of a share is chance.
    """
    by_queue: dict[str, list[float]] = {}
    for seed in range(SHIFTS):
        later = workload.arrival + np.random.default_rng(seed).uniform(0.0, SHIFT, len(workload))
        moved = replace(workload, arrival=later)
        if report.bursts:
            moved = replace(moved, templates=burst_templates(moved))
        means = central(moved, cluster)
        for queue_ in (names(STRICT), names(BACKFILLED), PREEMPTING):
            by_queue.setdefault(queue_[-1], []).append(kept(means, *queue_))
    report.shifted = {name: (min(shares), max(shares)) for name, shares in by_queue.items()}


def names(policies: tuple[SchedulingPolicy, ...]) -> tuple[str, str, str]:
    """Return the names of FIFO, of the oracle and of the predicting policy."""
    fifo, oracle, predicted = (policy.name for policy in policies)
    return fifo, oracle, predicted


def worst_group(result: SimulationResult) -> float:
    """Return the largest median slowdown of a group with at least 100 jobs."""
    groups = np.array(result.workload.groups)
    slowdown = result.slowdown
    return max(
        float(np.median(slowdown[groups == name]))
        for name in sorted(set(result.workload.groups))
        if np.count_nonzero(groups == name) >= 100
    )


def measure_forecast(report: Report, workload: Workload) -> None:
    """Forecast the 24 hours of each day at midnight.

    The model is fitted on the first days and updated every hour.
    """
    counts = count_arrivals(workload.arrival, HOUR)
    known = min(DAYS_KNOWN * DAY, len(counts) * 2 // 3 // DAY * DAY)
    model = fit_holt_winters(counts[:known], DAY)
    errors: dict[str, list[float]] = {name: [] for name in ("Holt-Winters", "same hour yesterday", "last hour", "mean")}
    inside = []
    for at in range(known, len(counts) - DAY + 1, DAY):
        coming, past = counts[at : at + DAY], counts[:at]
        predicted = model.forecast(DAY)
        guesses: dict[str, Floats | float] = {
            "Holt-Winters": predicted.median,
            "same hour yesterday": seasonal_naive(past, DAY, DAY),
            "last hour": float(past[-1]),
            "mean": float(np.mean(past)),
        }
        for name, guess in guesses.items():
            errors[name].append(float(np.mean(np.abs(guess - coming))))
        inside.append(float(np.mean((predicted.low <= coming) & (coming <= predicted.high))))
        for count in coming.tolist():
            model = model.updated(count)
    report.forecast = {name: float(np.mean(model_errors)) for name, model_errors in errors.items()}
    report.forecast["share within the 90 % band"] = float(np.mean(inside))


def measure_plans(report: Report) -> None:
    """Simulate planned batches of jobs on 8 nodes of 2 GPUs.

    The durations in the plans have a log-normal error (sigma 1).
    """
    cluster = GpuCluster(8, 2)
    for seed in range(BATCHES):
        generator = np.random.default_rng(seed)
        duration = np.exp(generator.normal(np.log(600.0), 1.0, BATCH))
        gpus = generator.choice([1, 2], size=BATCH, p=[0.8, 0.2]).astype(np.int64)
        workload = Workload(np.zeros(BATCH), duration, gpus)
        guess = duration * np.exp(generator.normal(0.0, 1.0, BATCH))
        bound = max(float(np.sum(duration * gpus)) / cluster.gpus, float(np.max(duration)))
        tried: dict[str, SchedulingPolicy] = {
            "literal plan": StaticPlanPolicy(guess, work_stealing=False),
            "corrected plan": StaticPlanPolicy(guess),
            "corrected plan, true durations": StaticPlanPolicy(duration),
            "no plan (fifo, backfilled)": FifoPolicy(backfill=True),
        }
        for name, policy in tried.items():
            report.plans.setdefault(name, []).append(simulate(workload, cluster, policy).makespan / bound)


def kept(means: dict[str, float], fifo: str, oracle: str, predicted: str) -> float:
    """Return the share of the oracle's gain over FIFO that prediction keeps.

    All three have the same kind of queue.
    """
    return (means[fifo] - means[predicted]) / (means[fifo] - means[oracle])


def summary(report: Report) -> dict[str, Any]:
    """Return the figures for RESULT."""
    means = next(iter(report.shares.values()))
    return {
        "philly": report.philly,
        "srpt_error": round(max(abs(error) for error in report.errors), 4),
        "events_per_minute_million": round(report.pace, 1),
        "fifo_over_sjf": round(means["fifo, backfilled"] / means["sjf"], 2),
        "fifo_over_sjf_strict": round(means["fifo"] / means["sjf, strict"], 2),
        "fifo_over_srtf": round(means["fifo"] / means["srpt"], 2),
        "sjf_over_srtf": round(means["sjf"] / means["srpt"], 2),
        "predicted_sjf_share": round(kept(means, *names(STRICT)), 3),
        "predicted_sjf_share_over_backfilled": round(kept(means, *names(BACKFILLED)), 3),
        "predicted_sjf_share_shifted": [round(share, 3) for share in report.shifted["predicted-sjf, strict"]],
        "predicted_sjf_share_over_backfilled_shifted": [round(share, 3) for share in report.shifted["predicted-sjf"]],
        "predicted_srpt_share": round(kept(means, *PREEMPTING), 3),
        "forecast_over_naive": round(report.forecast["Holt-Winters"] / report.forecast["same hour yesterday"], 3),
    }


def tables(report: Report) -> str:
    """Return the tables of the page."""
    exact = srpt_mean_response(LOAD, Exponential(1.0))
    lines = [
        (
            f"M/M/1 at load {LOAD:g}; SRPT's mean response by formula {exact:.4f}, FIFO's {1 / (1 - LOAD):.4f}. "
            f"Slowest run: {report.pace:.1f} million events a minute.\n"
        ),
        "| seed | SRPT, simulated | off | FIFO off |\n| --- | --- | --- | --- |",
        *report.queue,
        f"\n{report.trace}. A restart costs {COSTS.restart:g} s of the gang's GPUs, a move {COSTS.migration:g} s.\n",
        (
            "| policy | mean JCT (s) | median (s) | 99 % (s) | over SJF | preemptions | moves | overhead (GPU-h) | "
            "worst group's median slowdown | mean JCT (s) without the first quarter, from which Gittins learned |"
        ),
        "| --- |" + " --- |" * 9,
        *(_policy_row(name, got, report) for name, got in report.main.items()),
        (
            "\nMean JCT (s), and the share of the oracle's gain over FIFO that prediction keeps. Strict: FIFO, SJF and "
            "predicted-SJF all stop at the first gang that does not fit; backfilled: other jobs may pass it.\n"
        ),
        "| jobs | FIFO, strict | SJF | kept | FIFO, backfilled | SJF | kept | SRTF | kept by predicted-SRPT |",
        "| --- |" + " --- |" * 8,
        *(_share_row(name, means) for name, means in report.shares.items()),
        f"\nThe first row with each arrival up to {SHIFT:g} s later, {SHIFTS} seeds; smallest and largest share:\n",
        *(f"- {name}: {100 * low:.1f} to {100 * high:.1f} %" for name, (low, high) in report.shifted.items()),
        "\nArrivals an hour, each day forecast at midnight, mean absolute error (jobs):\n",
        "| forecast | error |\n| --- | --- |",
        *(f"| {name} | {value:.2f} |" for name, value in report.forecast.items()),
        f"\n{BATCHES} batches of {BATCH} jobs, durations guessed with sigma 1; makespan over the lower bound:\n",
        "| plan | mean | worst |\n| --- | --- | --- |",
        *(f"| {name} | {np.mean(ratios):.3f} | {max(ratios):.3f} |" for name, ratios in report.plans.items()),
    ]
    return "\n".join(lines)


def _policy_row(name: str, got: SimulationResult, report: Report) -> str:
    median, late = np.quantile(got.completion, [0.5, 0.99])
    return (
        f"| {name} | {got.mean_completion:.0f} | {median:.0f} | {late:.0f} | "
        f"{got.mean_completion / report.main['sjf'].mean_completion:.2f} | {got.preemptions.sum()} | "
        f"{got.migrations.sum()} | {got.overhead / 3600:.0f} | {report.groups[name]:.1f} | "
        f"{report.later[name]:.0f} |"
    )


def _share_row(name: str, means: dict[str, float]) -> str:
    cells = []
    for fifo, oracle, predicted in (names(STRICT), names(BACKFILLED)):
        share = 100 * kept(means, fifo, oracle, predicted)
        cells += [f"{means[fifo]:.0f}", f"{means[oracle]:.0f}", f"{share:.1f} %"]
    return f"| {name} | {' | '.join(cells)} | {means['srpt']:.0f} | {100 * kept(means, *PREEMPTING):.1f} % |"


def plot(report: Report, path: Path) -> None:
    """Draw the plot of this part."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
    order = sorted(report.main, key=lambda name: -report.main[name].mean_completion)
    axes.barh(order, [report.main[name].mean_completion / HOUR for name in order])
    axes.set_xscale("log")
    axes.set_xlabel("mean job completion time (hours)")
    axes.set_title(report.trace, fontsize=9)
    figure.savefig(path, dpi=120)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of jobs and the trace."""
    text = f"jobs in each simulated M/M/1 queue (default: {JOBS})"
    parser.add_argument("--jobs", type=positive, default=JOBS, help=text)
    text = f"CSV of jobs, or `{SYNTHETIC}` (default: benchmarks/data/philly/{PHILLY.name})"
    parser.add_argument("--trace", default=str(PHILLY), metavar="FILE", help=text)


if __name__ == "__main__":
    sys.exit(run_alone(PART, __doc__, run, add_options))
