"""Queueing: exact simulation against Erlang B and C, SRPT and Allen-Cunneen, and the bound that admission keeps.

    python -m benchmarks.theory.bench_queueing [--out FOLDER]

A part of `make bench-theory`. One run of 10^6 jobs deviates by 1 to 5 % at high load (the table states by how much), so
each figure pools several runs; the sizes are stated.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.theory.part import page_path, run_alone, write
from podium_optimisers.queueing.admission import (
    AdmissionDecision,
    AdmissionRequest,
    AdmissionVerdict,
    WaitBound,
    admit_by_count,
    admit_by_schedule,
    queue_capacity,
)
from podium_optimisers.queueing.approximations import GGc, mg1_mean_wait
from podium_optimisers.queueing.erlang import MMc, erlang_b, mmck_blocking
from podium_optimisers.queueing.service import Exponential, fit_two_moments
from podium_optimisers.queueing.srpt import simulate_srpt, srpt_mean_response
from podium_optimisers.queueing.waiting import blocked_jobs, kiefer_wolfowitz, poisson_arrivals

PART = "queueing"
MILLION = 1_000_000
ERLANG_C = ((1, 0.8), (4, 0.9), (8, 0.8), (32, 0.95))
STREAMS, WARM_UP = 10, 15_000  # of one run of 10^6 jobs; jobs of each stream that are not counted
RUNS = 30
LOSSES = ((8.0, 8), (30.4, 32))
ADMISSION = (8, 1.3)  # servers, load
BOUND = WaitBound(0.5, 0.05)  # mean service 1
SRPT_LOADS, SRPT_RUNS = (0.5, 0.7, 0.8, 0.9), 10


@dataclass(frozen=True, slots=True)
class Checked:
    """A simulated mean against its exact value.

    `error`: of all runs together; `spread`: standard deviation of a single run's error; `seconds`: of a run of 10^6
    jobs.
    """

    error: float
    spread: float
    seconds: float

    @staticmethod
    def of(means: list[float], exact: float, seconds: float) -> Checked:
        errors = np.array(means) / exact - 1.0
        return Checked(float(errors.mean()), float(errors.std(ddof=1)), seconds / len(means))


def erlang_c(servers: int, load: float) -> tuple[Checked, Checked]:
    """Return mean wait and P(wait). Ten runs are simulated together, each of STREAMS streams."""
    waits, shares, begun, exact = [], [], time.perf_counter(), MMc(servers * load, 1.0, servers)
    shape = (10 * STREAMS, WARM_UP + MILLION // STREAMS)
    for batch in range(RUNS // 10):
        rng = np.random.default_rng([servers, batch])
        job_waits = kiefer_wolfowitz(poisson_arrivals(rng, servers * load, shape), rng.exponential(1.0, shape), servers)
        for run_waits in np.split(job_waits[:, WARM_UP:], 10):
            waits.append(float(run_waits.mean()))
            shares.append(float((run_waits > 0.0).mean()))
    seconds = time.perf_counter() - begun
    return Checked.of(waits, exact.mean_wait, seconds), Checked.of(shares, exact.wait_probability, seconds)


def erlang_b_error(offered: float, servers: int, c2: float) -> float:
    """Return the relative error of the simulated loss against Erlang B."""
    rng = np.random.default_rng(1)
    shape = (10 * STREAMS, 2_000 + MILLION // STREAMS)
    refused = blocked_jobs(poisson_arrivals(rng, offered, shape), fit_two_moments(1.0, c2).sample(rng, shape), servers)
    return float(refused[:, 2_000:].mean()) / erlang_b(offered, servers) - 1.0


def srpt(load: float) -> Checked:
    """Return the mean response of M/M/1 under SRPT."""
    means, begun, service = [], time.perf_counter(), Exponential(1.0)
    for seed in range(SRPT_RUNS):
        rng = np.random.default_rng(seed)
        arrivals = poisson_arrivals(rng, load, (MILLION,))
        means.append(float(simulate_srpt(arrivals, service.sample(rng, (MILLION,))).mean()))
    return Checked.of(means, srpt_mean_response(load, service), time.perf_counter() - begun)


def allen_cunneen_error(servers: int, load: float, c2: float) -> float:
    """Return the relative error of the approximation: formula over simulation (10^7 jobs), less 1."""
    rng = np.random.default_rng(2)
    shape = (10 * STREAMS, WARM_UP + MILLION // STREAMS)
    arrivals = poisson_arrivals(rng, servers * load, shape)
    waits = kiefer_wolfowitz(arrivals, fit_two_moments(1.0, c2).sample(rng, shape), servers)
    return GGc(servers * load, 1.0, servers, 1.0, c2).mean_wait / float(waits[:, WARM_UP:].mean()) - 1.0


@dataclass(frozen=True, slots=True)
class Admitted:
    """Result of an admission rule.

    `lost`: share of rejected jobs; `late`: share of admitted jobs that wait too long; `longest`: the longest wait.
    """

    lost: float
    late: float
    longest: float


Rule = Callable[[float, float, list[float], deque[tuple[float, float]]], AdmissionDecision]  # now, length, ends, queue


def admit(rule: Rule, servers: int, load: float, bound: float, jobs: int) -> Admitted:
    """Simulate M/M/c with an admission rule.

    The rule knows the exact ends of running jobs, and the start and length of waiting jobs (FCFS).
    """
    rng = np.random.default_rng(3)
    arrivals = poisson_arrivals(rng, servers * load, (jobs,)).tolist()
    free = [0.0] * servers  # when each server is free, with all admitted jobs
    running: list[float] = []
    queue: deque[tuple[float, float]] = deque()
    waits = []
    for now, length in zip(arrivals, rng.exponential(1.0, jobs).tolist(), strict=True):
        while queue and queue[0][0] <= now:
            start, lasting = queue.popleft()
            heapq.heappush(running, start + lasting)
        while running and running[0] <= now:
            heapq.heappop(running)
        if rule(now, length, running, queue).verdict is AdmissionVerdict.REJECT:
            continue
        start = max(now, free[0])
        heapq.heapreplace(free, start + length)
        waits.append(start - now)
        if start > now:
            queue.append((start, length))
        else:
            heapq.heappush(running, now + length)
    waited = np.array(waits)
    return Admitted(1.0 - waited.size / jobs, float((waited > bound * (1.0 + 1e-9)).mean()), float(waited.max()))


def both_rules(servers: int, load: float, bound: WaitBound) -> tuple[Admitted, Admitted]:
    """Return the results of admission by count and by schedule."""

    def count(now: float, length: float, running: list[float], queue: deque[tuple[float, float]]) -> AdmissionDecision:
        return admit_by_count(servers, len(running), len(queue), 1.0, bound)

    def schedule(
        now: float, length: float, running: list[float], queue: deque[tuple[float, float]]
    ) -> AdmissionDecision:
        busy = [end - now for end in running] + [0.0] * (servers - len(running))
        waiting = [AdmissionRequest(str(number), 1, lasting) for number, (_, lasting) in enumerate(queue)]
        return admit_by_schedule(AdmissionRequest("new", 1, length), busy, waiting, bound)

    return admit(count, servers, load, bound.wait, 400_000), admit(schedule, servers, load, bound.wait, 100_000)


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured.

    `delays`: mean wait and P(wait) by servers and load; `losses`: by offered load, servers and c2; `general`: by c2;
    `zero_bound`: admission with a bound of 0.
    """

    delays: dict[tuple[int, float], tuple[Checked, Checked]]
    losses: dict[tuple[float, int, float], float]
    shortest: dict[float, Checked]
    general: dict[float, float]
    counted: Admitted
    scheduled: Admitted
    zero_bound: Admitted

    @property
    def expected_loss(self) -> float:
        servers, load = ADMISSION
        return mmck_blocking(servers * load, servers, queue_capacity(servers, 1.0, BOUND))


def run(out: Path) -> dict[str, Any]:
    """Measure, write tables and plot into `out`, and return the keys of RESULT that belong to queueing."""
    report = measure()
    figures = summary(report)
    path = page_path(out, PART)
    write(path, "queueing", tables(report), "SRPT", figures)
    plot(report, path.with_suffix(".png"))
    return figures


def measure() -> Report:
    """Run all simulations."""
    return Report(
        {case: erlang_c(*case) for case in ERLANG_C},
        {(*case, c2): erlang_b_error(*case, c2) for case in LOSSES for c2 in (1.0, 4.0)},
        {load: srpt(load) for load in SRPT_LOADS},
        {c2: allen_cunneen_error(8, 0.8, c2) for c2 in (0.25, 0.5, 2.0, 4.0)},
        *both_rules(*ADMISSION, BOUND),
        both_rules(*ADMISSION, WaitBound(0.0))[0],
    )


def summary(report: Report) -> dict[str, Any]:
    """Return the figures for RESULT."""
    waits = {case: wait for case, (wait, _) in report.delays.items()}
    figures = {
        "srpt_error": abs(report.shortest[0.9].error),
        "erlang_c_error_to_0.9": max(abs(wait.error) for (_, load), wait in waits.items() if load <= 0.9),
        "erlang_c_error_at_0.95": abs(waits[32, 0.95].error),
        "wait_probability_error": max(abs(share.error) for _, share in report.delays.values()),
        "erlang_b_error": max(abs(error) for error in report.losses.values()),
        "million_jobs_s": max(estimate.seconds for estimate in (*waits.values(), *report.shortest.values())),
        "late_by_schedule": report.scheduled.late,
        "late_by_count": report.counted.late,
        "admission_loss_error": abs(report.counted.lost / report.expected_loss - 1.0),
    }
    return {name: round(figure, 4) for name, figure in figures.items()}


def tables(report: Report) -> str:
    """Return the tables of the page."""
    servers, load = ADMISSION
    lines = [
        f"M/M/c, mean service 1: simulated ({RUNS} runs of 10^6 jobs, Kiefer-Wolfowitz) against Erlang C.\n",
        "| c | load | P(wait) | error | mean wait | error | a single run's error (sd) | seconds a run |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(_delay_row(MMc(c * at, 1.0, c), *estimates) for (c, at), estimates in report.delays.items()),
        "\nLoss of M/G/c/c (10^7 jobs) against Erlang B, which depends only on the mean of the service:\n",
        "| offered | c | service c2 | Erlang B | error |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {offered:g} | {c} | {c2:g} | {erlang_b(offered, c):.6f} | {100 * error:+.2f} % |"
            for (offered, c, c2), error in report.losses.items()
        ),
        f"\nM/M/1 under SRPT: simulated ({SRPT_RUNS} runs of 10^6 jobs) against Schrage and Miller.\n",
        "| load | mean response, SRPT | error | a single run's error (sd) | FCFS | seconds a run |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {at} | {srpt_mean_response(at, Exponential(1.0)):.4f} | {100 * estimate.error:+.2f} % | "
            f"{100 * estimate.spread:.1f} % | {1.0 + mg1_mean_wait(at, 1.0, 1.0):.4f} | {estimate.seconds:.2f} |"
            for at, estimate in report.shortest.items()
        ),
        "\nAllen-Cunneen over the simulated mean wait (8 servers, load 0.8, Poisson arrivals, 10^7 jobs):\n",
        f"| service c2 | {' | '.join(f'{c2:g}' for c2 in report.general)} |",
        "| --- |" + " --- |" * len(report.general),
        f"| error | {' | '.join(f'{100 * error:+.1f} %' for error in report.general.values())} |",
        f"\nAdmission to {servers} servers at load {load:g}, bound {BOUND.wait:g} (mean service 1):\n",
        "| rule | rejected | expected | waited beyond the bound | longest wait |",
        "| --- | --- | --- | --- | --- |",
        _admission_row(f"by count, risk {BOUND.risk:g}", report.counted, f"{report.expected_loss:.4f} (M/M/c/K)"),
        _admission_row("by schedule", report.scheduled, ""),
        _admission_row("bound 0", report.zero_bound, f"{erlang_b(servers * load, servers):.4f} (Erlang B)"),
    ]
    return "\n".join(lines)


def _delay_row(exact: MMc, wait: Checked, share: Checked) -> str:
    return (
        f"| {exact.servers} | {exact.load:g} | {exact.wait_probability:.6f} | {100 * share.error:+.2f} % | "
        f"{exact.mean_wait:.6f} | {100 * wait.error:+.2f} % | {100 * wait.spread:.1f} % | {wait.seconds:.2f} |"
    )


def _admission_row(name: str, result: Admitted, expected: str) -> str:
    return f"| {name} | {result.lost:.4f} | {expected} | {100 * result.late:.2f} % | {result.longest:.2f} |"


def plot(report: Report, path: Path) -> None:
    """Draw the plot of this part."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5), layout="constrained")
    loads = np.linspace(0.05, 0.95, 19).tolist()
    axes.plot(loads, [1.0 / (1.0 - load) for load in loads], label="FCFS (formula)")
    axes.plot(loads, [srpt_mean_response(load, Exponential(1.0)) for load in loads], label="SRPT (formula)")
    points = {at: srpt_mean_response(at, Exponential(1.0)) * (1.0 + got.error) for at, got in report.shortest.items()}
    axes.plot(list(points), list(points.values()), "o", label="SRPT (simulated)")
    axes.set_xlabel("load of M/M/1")
    axes.set_ylabel("mean response / mean service")
    axes.set_yscale("log")
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(run_alone(PART, __doc__, run))
