"""Tables, plot and RESULT of bench_hpo, from its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np

from benchmarks.hpo.runs import MAIN_METRICS, Run, by_entrant
from podium_simulator.replay.metrics import Score, Uses
from podium_simulator.replay.statistics import Ratio, RunKey, by_task, geometric_mean, ratios, summary

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BASES = ("round_robin", "slaq")  # rivals that the others are also compared with
OTHER_METRICS = ("time_to_near_best", "gpu_seconds_to_best")  # without intervals
# GPU seconds until the best trial has completed, by use
USES: Mapping[str, Callable[[Uses], float]] = {
    "trained": lambda u: u.best + u.completed + u.unfinished,
    "best": lambda u: u.best,
    "completed": lambda u: u.completed,
    "started": lambda u: u.unfinished,
    "discarded": lambda u: u.repeated,
    "switches": lambda u: u.switches,
}
DIGITS = {"switch_share": 4, "used_switches": 4, "wait": 2, "wait_worst": 2}  # of the RESULT; 3 of all others
Measured = Mapping[str, Mapping[str, Mapping[str, float]]]  # family -> policy -> figure -> value
FAMILIES = {"taskset": "TaskSet", "algoperf": "AlgoPerf", "digits": "the example"}
RunsByEntrant = Mapping[str, Mapping[RunKey, Run]]


def scores(runs: Mapping[RunKey, Run]) -> dict[RunKey, Score]:
    """Return the score of each run."""
    return {key: run.score for key, run in runs.items()}


def metric_ratios(runs: RunsByEntrant, entrant: str, base: str, metric: str) -> dict[RunKey, float]:
    """Return base over entrant for each run that has this metric (a field of Score)."""
    return ratios(scores(runs[entrant]), scores(runs[base]), metric)


def ratio(runs: RunsByEntrant, entrant: str, base: str, metric: str) -> Ratio | None:
    """Return base over entrant as geometric mean with its 95 % bootstrap interval.

    The result is None where no run has the metric.
    """
    return summary(metric_ratios(runs, entrant, base, metric).values(), np.random.default_rng(0))


def measured(runs: Sequence[Run]) -> Measured:
    """Return family -> policy -> figure, unrounded.

    Ratios are the base's time over the policy's time. The base is fifo unless the figure's name says `_vs_BASE`.
    """
    table: dict[str, dict[str, dict[str, float]]] = {}
    for family in dict.fromkeys(run.family for run in runs):
        entrants = by_entrant(runs, family)
        table[family] = {name: _figures(entrants, name) for name in entrants if name != "fifo"}
        table[family]["fifo"] = _shares(entrants["fifo"].values())
    return table


def rounded(figures: Measured) -> dict[str, dict[str, dict[str, float]]]:
    """Return `figures` rounded for the RESULT line; nothing is judged by rounded figures."""
    return {
        family: {
            name: {key: round(value, DIGITS.get(key, 3)) for key, value in metrics.items()}
            for name, metrics in policies.items()
        }
        for family, policies in figures.items()
    }


def _figures(runs: RunsByEntrant, name: str) -> dict[str, float]:
    figures: dict[str, float] = {}
    for base, end in (("fifo", ""), *((base, f"_vs_{base}") for base in BASES if base in runs)):
        for metric in (*MAIN_METRICS, *OTHER_METRICS):
            value = ratio(runs, name, base, metric)
            if value is None:
                continue
            key = f"{metric}{end}"
            mean_and_worst = {key: value.mean, f"{key}_worst": value.worst}
            figures |= ratio_figures(key, value) if metric in MAIN_METRICS else mean_and_worst
    tasks = by_task(metric_ratios(runs, name, "fifo", "time_to_target"))
    if tasks:
        figures["time_to_target_worst_task"] = min(tasks.values())
    return figures | _shares(runs[name].values())


def ratio_figures(key: str, value: Ratio) -> dict[str, float]:
    """Return the figures of one ratio by their keys in RESULT."""
    return {
        key: value.mean,
        f"{key}_worst": value.worst,
        f"{key}_low": value.low,
        f"{key}_high": value.high,
        f"{key}_slower": value.slower,
    }


def _shares(runs: Iterable[Run]) -> dict[str, float]:
    """Return the figures of one policy that are not ratios to another policy."""
    mine = list(runs)
    return {
        "switch_share": float(np.mean([run.score.switch_share for run in mine])),
        **{
            f"used_{name}": float(np.mean([use(r.score.uses) / r.score.gpu_seconds_to_best for r in mine]))
            for name, use in USES.items()
        },
        "idle": float(
            np.mean([1.0 - run.score.gpu_seconds_to_best / (run.gpus * run.score.time_to_best) for run in mine])
        ),
        "wait": float(np.mean([run.score.longest_wait for run in mine])),
        "wait_worst": max(run.score.longest_wait for run in mine),
        "planned": float(np.mean([run.score.plan_gpu_seconds / run.trained for run in mine])),
        "microseconds_per_decision": round(1e6 * sum(r.seconds for r in mine) / sum(r.decisions for r in mine)),
    }


def cell(value: Ratio | None) -> str:
    """Return a table cell: geometric mean, 95 % bootstrap interval, worst run.

    The cell is empty where nothing was measured.
    """
    if value is None:
        return ""
    return f"{value.mean:.2f} [{value.low:.2f}, {value.high:.2f}] ({value.worst:.2f})"


def table(runs: Sequence[Run], family: str) -> str:
    """Return one Markdown row for each policy: its metrics against fifo, and its shares of GPU time.

    Bases (`BASES`) that have not run have no column.
    """
    entrants = by_entrant(runs, family)
    bases = [base for base in BASES if base in entrants]
    against = [f"time_to_best against {', '.join(bases)}"] if bases else []
    head = ["policy", *MAIN_METRICS, "time_to_near_best", *against, "GPU s to best", "planned", "switches", "wait in H"]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for name in entrants:
        shares = _shares(entrants[name].values())
        cells = [name, *(cell(ratio(entrants, name, "fifo", metric)) for metric in MAIN_METRICS)]
        near = ratio(entrants, name, "fifo", "time_to_near_best")
        cells.append(f"{near.mean:.2f} ({near.worst:.2f})" if near else "")
        if bases:
            values = [ratio(entrants, name, base, "time_to_best") for base in bases]
            cells.append(", ".join(f"{value.mean:.2f}" for value in values if value))
        spent = ratio(entrants, name, "fifo", "gpu_seconds_to_best")
        cells.append(f"{1 / spent.mean:.2f}" if spent else "")
        cells += [f"{shares['planned']:.2f}", f"{100 * shares['switch_share']:.1f} %", f"{shares['wait']:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def against_table(runs: Sequence[Run], family: str, base: str) -> str:
    """Return the main metrics of every other policy against `base` as Markdown.

    The text is empty where `base` has not run.
    """
    entrants = by_entrant(runs, family)
    if base not in entrants:
        return ""
    lines = [f"| against {base} | {' | '.join(MAIN_METRICS)} |", "| --- " * 4 + "|"]
    for name in entrants:
        if name != base:
            cells = [cell(ratio(entrants, name, base, metric)) for metric in MAIN_METRICS]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def uses_table(runs: Sequence[Run], family: str) -> str:
    """Return the use of the GPU seconds until the best trial as Markdown: means of the runs' shares."""
    entrants = by_entrant(runs, family)
    head = ["GPU s to best", "of fifo's", "trained", "best", "completed", "started", "discarded", "switches", "idle"]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for name in entrants:
        spent, figures = ratio(entrants, name, "fifo", "gpu_seconds_to_best"), _shares(entrants[name].values())
        shares = [figures[key] for key in (*(f"used_{use}" for use in USES), "idle")]
        cells = [name, f"{1 / spent.mean:.2f}" if spent else "", *(f"{100 * share:.1f} %" for share in shares)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def task_table(runs: Sequence[Run], family: str, names: Sequence[str], metric: str) -> str:
    """Return the geometric mean of each task for some policies, as Markdown."""
    entrants = by_entrant(runs, family)
    columns = {name: by_task(metric_ratios(entrants, name, "fifo", metric)) for name in names if name in entrants}
    tasks = list(dict.fromkeys(task for column in columns.values() for task in column))
    lines = ["| task | " + " | ".join(columns) + " |", "| --- " * (len(columns) + 1) + "|"]
    for task in tasks:
        lines.append(f"| {task} | " + " | ".join(f"{columns[n].get(task, float('nan')):.2f}" for n in columns) + " |")
    return "\n".join(lines)


def plot(runs: Sequence[Run], title: str, path: Path) -> None:
    """Draw time_to_best and mean_regret against fifo for each family.

    Bars have intervals, and a dot for the worst run.
    """
    families = list(dict.fromkeys(run.family for run in runs))
    figure, axes = plt.subplots(1, len(families), figsize=(7 * len(families), 5), squeeze=False)
    for axis, family in zip(axes[0], families, strict=True):
        entrants = by_entrant(runs, family)
        names = [name for name in entrants if name != "fifo"]
        for shift, metric, colour in ((-0.2, "time_to_best", "#4477aa"), (0.2, "mean_regret", "#ccbb44")):
            values = [ratio(entrants, name, "fifo", metric) for name in names]
            positions = np.arange(len(names)) + shift
            means = np.array([v.mean if v else np.nan for v in values])
            errors = np.array([[v.mean - v.low, v.high - v.mean] if v else [0, 0] for v in values]).T
            axis.bar(positions, means, 0.38, yerr=errors, color=colour, label=metric, capsize=2)
            axis.plot(positions, [v.worst if v else np.nan for v in values], "k.", markersize=4)
        axis.axhline(1.0, color="black", linewidth=0.8)
        axis.set_yscale("log")
        axis.set_xticks(np.arange(len(names)), names, rotation=60, ha="right")
        axis.set_title(FAMILIES.get(family, family))
        axis.set_ylabel("times as fast as fifo (dot: worst run)")
    axes[0][0].legend()
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def slowdown(short: Sequence[Run], long: Sequence[Run], family: str, name: str) -> float | None:
    """Return what `name` loses in time_to_best against fifo when a switch takes longer.

    It is 1 - ratio(long) / ratio(short).
    """
    with_short, with_long = by_entrant(short, family), by_entrant(long, family)
    if name not in with_short or name not in with_long:
        return None
    near, far = (ratio(runs, name, "fifo", "time_to_best") for runs in (with_short, with_long))
    return 1.0 - far.mean / near.mean if near and far else None


def guard_cost(runs: Sequence[Run], family: str) -> float | None:
    """Return what the starvation guard costs in time_to_best.

    It is 1 - time without / time with, as the geometric mean of the runs.
    """
    entrants = by_entrant(runs, family)
    if "envelope" not in entrants or "envelope_no_guard" not in entrants:
        return None
    pairs = metric_ratios(entrants, "envelope", "envelope_no_guard", "time_to_best")
    return 1.0 - geometric_mean(list(pairs.values()))


def guard_costs(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Return the cost of the starvation guard by family.

    Families without `envelope_no_guard` are left out.
    """
    costs = {family: guard_cost(runs, family) for family in dict.fromkeys(run.family for run in runs)}
    return {family: {"lost_by_guard": cost} for family, cost in costs.items() if cost is not None}
