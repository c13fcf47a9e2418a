"""Online rules on (m, k) machines: their ratio to a certified bound, on random streams, traps and an adversary.

    python -m benchmarks.theory.bench_online [--out FOLDER]

A part of `make bench-theory`. A schedule that is impossible or exceeds a proven ratio ends it with an AssertionError.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.theory.part import page_path, run_alone, write
from podium_optimisers.online.adaptive import MachineChange, run_adaptive
from podium_optimisers.online.adversary import HARD_STREAMS, adaptive_adversary, random_stream
from podium_optimisers.online.rules import RULES, run_rule
from podium_optimisers.online.schedule import OnlineSchedule, violations
from podium_optimisers.online.stream import Stream

PART = "online"
MACHINES = ((1, 1), (16, 2), (64, 4), (8, 8), (4, 16))
TASKS, SEEDS = 100, 40
LOST = ((16, 2), (64, 4))  # machines that lose a GPU
PER_CPU, PER_GPU = 0.018, 0.089  # tasks per second of one machine, for the generator's tasks
LOADS = (math.inf, 2.0, 0.7)  # arrivals as a multiple of what the machines can do; infinite: all at once
ADAPTIVE = 4.0 * (1.0 + 1e-6)
STEPS = 8  # of the adversary
VARIANTS = {  # they separate the effect of the order from the effect of reallocation
    "sides kept, in order of arrival": {"reallocate": False, "longest_first": False},
    "sides kept, longest first": {"reallocate": False, "longest_first": True},
    "reallocated, longest first": {"reallocate": True, "longest_first": True},
}


def streams(cpus: int, gpus: int) -> Iterator[Stream]:
    """Yield the seeded streams of tasks at each load."""
    for load in LOADS:
        for seed in range(SEEDS):
            rng = np.random.default_rng([seed, cpus, gpus])
            yield random_stream(rng, TASKS, cpus, gpus, load * (PER_CPU * cpus + PER_GPU * gpus))


def checked(schedule: OnlineSchedule, proven: float) -> float:
    """Return the schedule's ratio.

    Raises AssertionError if the schedule is impossible or exceeds the proven ratio.
    """
    for fault in violations(schedule):
        raise AssertionError(fault)
    if schedule.ratio > proven * (1.0 + 1e-9):
        raise AssertionError(f"ratio {schedule.ratio:g} exceeds the proven {proven:g}")
    return schedule.ratio


def ratios(cpus: int, gpus: int) -> dict[str, dict[str, float]]:
    """Return the ratios of each rule.

    They are: random streams (mean, largest), traps, adversary, and the proven ratio.
    """
    known = list(streams(cpus, gpus))
    traps = [trap(cpus, gpus) for trap in HARD_STREAMS.values()]
    by_rule: dict[str, dict[str, float]] = {}
    for name, rule in RULES.items():
        random = [checked(run_rule(stream, rule), rule.competitive_ratio(stream)) for stream in known]
        hard = [checked(run_rule(stream, rule), rule.competitive_ratio(stream)) for stream in traps]
        hurt = adaptive_adversary(rule, cpus, gpus, STEPS, np.random.default_rng(0))
        by_rule[name] = {
            "mean": float(np.mean(random)),
            "max": max(random),
            "traps": max(hard),
            "adversary": checked(run_rule(hurt, rule), rule.competitive_ratio(hurt)),
            "proven": rule.competitive_ratio(known[0]) if name != "graham" else math.inf,
        }
    random = [checked(run_adaptive(stream).schedule, ADAPTIVE) for stream in known]
    hard = [checked(run_adaptive(stream).schedule, ADAPTIVE) for stream in traps]
    by_rule["adaptive"] = {"mean": float(np.mean(random)), "max": max(random), "traps": max(hard), "proven": 4.0}
    return by_rule


def with_a_lost_gpu(cpus: int, gpus: int) -> list[float]:
    """Return the mean makespan over the bound when one GPU is lost, for each of VARIANTS.

    The bound is that of the whole cluster.
    The GPU is lost after a fifth of the bound. It returns after four times the bound, so that every task can end.
    """
    by_stream = []
    for stream in streams(cpus, gpus):
        bound = run_rule(stream, RULES["qa"]).lower_bound
        changes = [MachineChange(when * bound, cpus, up) for when, up in ((0.2, False), (4.0, True))]
        by_stream.append([run_adaptive(stream, changes, **how).schedule.ratio for how in VARIANTS.values()])
    means: list[float] = np.mean(by_stream, axis=0).tolist()
    return means


@dataclass(frozen=True, slots=True)
class Report:
    """Ratios by machines and rule, and with a lost GPU in the order of VARIANTS."""

    by_machines: dict[tuple[int, int], dict[str, dict[str, float]]]
    lost: dict[tuple[int, int], list[float]]


def run(out: Path) -> dict[str, Any]:
    """Measure, write tables and plot into `out`, and return this part's keys of RESULT."""
    report = measure()
    figures = summary(report)
    path = page_path(out, PART)
    write(path, "online", tables(report), "ratios", figures)
    plot(report, path.with_suffix(".png"))
    return figures


def measure() -> Report:
    """Measure all machines."""
    by_machines = {}
    for machines in MACHINES:
        by_machines[machines] = ratios(*machines)
        print(machines, {name: round(one["mean"], 3) for name, one in by_machines[machines].items()}, flush=True)
    return Report(by_machines, {machines: with_a_lost_gpu(*machines) for machines in LOST})


def summary(report: Report) -> dict[str, Any]:
    """Return the figures for RESULT."""
    every = [one for rules in report.by_machines.values() for one in rules.values()]
    return {
        "streams": len(MACHINES) * (len(LOADS) * SEEDS + len(HARD_STREAMS) + 1),
        "largest_part_of_a_proven_ratio": round(
            max(max(one["max"], one["traps"], one.get("adversary", 0.0)) / one["proven"] for one in every), 3
        ),
        "mean_ratio": {
            name: round(float(np.mean([rules[name]["mean"] for rules in report.by_machines.values()])), 3)
            for name in (*RULES, "adaptive")
        },
        "lost_gpu": {
            f"{m},{k}": dict(zip(VARIANTS, (round(ratio, 3) for ratio in ratios_of_variants), strict=True))
            for (m, k), ratios_of_variants in report.lost.items()
        },
    }


def tables(report: Report) -> str:
    """Return the tables of the page."""
    lines = [
        f"Makespan over the certified bound. Random: {SEEDS} seeded streams of {TASKS} tasks at each of three loads",
        "(all at once; 2 and 0.7 times the capacity of the machines). No stream exceeded a proven ratio; `graham` has",
        "none that depends on m and k alone.\n",
        "| m, k | rule | proven | random, mean | random, largest | traps, largest | adversary |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {cpus}, {gpus} | {name} | {_number(one['proven'])} | {one['mean']:.3f} | {one['max']:.3f} | "
            f"{_number(one['traps'])} | {_number(one.get('adversary'))} |"
            for (cpus, gpus), rules in report.by_machines.items()
            for name, one in rules.items()
        ),
        "\nOne GPU is lost after a fifth of the bound, the same streams, mean makespan over the bound:\n",
        f"| m, k | {' | '.join(VARIANTS)} |",
        "| --- |" + " --- |" * len(VARIANTS),
        *(f"| {m}, {k} | {' | '.join(f'{ratio:.3f}' for ratio in lost)} |" for (m, k), lost in report.lost.items()),
    ]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if math.isfinite(value) else "none"


def plot(report: Report, path: Path) -> None:
    """Draw the plot of this part."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5), layout="constrained")
    for index, name in enumerate((*RULES, "adaptive")):
        at = [number + 0.16 * (index - 2) for number in range(len(MACHINES))]
        axes.bar(at, [rules[name]["mean"] for rules in report.by_machines.values()], 0.15, label=name)
    axes.set_xticks(range(len(MACHINES)), [f"{cpus}, {gpus}" for cpus, gpus in MACHINES])
    axes.set_xlabel("CPUs, GPUs")
    axes.set_ylabel("mean makespan / certified bound")
    axes.set_ylim(bottom=1.0)
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(run_alone(PART, __doc__, run))
