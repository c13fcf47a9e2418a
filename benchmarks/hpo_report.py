"""The tables, the plot and the RESULT of bench_hpo, from its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from hpo_runs import Run, by_entrant, ratios

from podium_simulator.replay.metrics import Score, Uses
from podium_simulator.replay.statistics import Ratio, RunKey, by_task, geometric_mean, summary

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BASES = {"round_robin": "rr", "slaq": "slaq"}  # and what they are called where there is little room
# (d), GPU seconds until (b) by use
USES: Mapping[str, Callable[[Uses], float]] = {
    "trained": lambda u: u.best + u.completed + u.unfinished,
    "best": lambda u: u.best,
    "completed": lambda u: u.completed,
    "begun": lambda u: u.unfinished,
    "again": lambda u: u.repeated,
    "switches": lambda u: u.switches,
}
DIGITS = {"switch_share": 4, "used_switches": 4, "wait": 2, "wait_worst": 2}  # of the RESULT; 3 of all others
Measured = Mapping[str, Mapping[str, Mapping[str, float]]]  # family -> policy -> figure -> value
FAMILIES = {"taskset": "TaskSet", "algoperf": "AlgoPerf", "digits": "our own example"}


def scores(runs: Mapping[RunKey, Run]) -> dict[RunKey, Score]:
    return {key: run.score for key, run in runs.items()}


def ratio(found: Mapping[str, Mapping[RunKey, Run]], entrant: str, base: str, metric: str) -> Ratio | None:
    pairs = ratios(scores(found[entrant]), scores(found[base]), metric)
    return summary(pairs.values(), np.random.default_rng(0))


def measured(runs: Sequence[Run]) -> Measured:
    """family -> policy -> figure, as measured; ratios are base time over the policy's, against fifo where no rival is
    named.
    """
    table: dict[str, dict[str, dict[str, float]]] = {}
    for family in dict.fromkeys(run.family for run in runs):
        found = by_entrant(runs, family)
        table[family] = {name: _figures(found, name) for name in found if name != "fifo"}
        table[family]["fifo"] = _plain(found["fifo"].values())
    return table


def rounded(found: Measured) -> dict[str, dict[str, dict[str, float]]]:
    """What the RESULT shows of `measured`; nothing is judged by it."""
    return {
        family: {
            name: {key: round(value, DIGITS.get(key, 3)) for key, value in figures.items()}
            for name, figures in policies.items()
        }
        for family, policies in found.items()
    }


def _figures(found: Mapping[str, Mapping[RunKey, Run]], name: str) -> dict[str, float]:
    figures: dict[str, float] = {}
    for metric in ("a", "a1", "b", "c", "gpu"):
        value = ratio(found, name, "fifo", metric)
        if value is not None:
            plain = {metric: value.mean, f"{metric}_worst": value.worst}
            figures |= _shown(metric, value) if metric in "abc" else plain
    for base in BASES:
        for metric in "abc":
            value = ratio(found, name, base, metric) if base in found else None
            if value is not None:
                figures |= _shown(f"{metric}_{base}", value)
    tasks = by_task(ratios(scores(found[name]), scores(found["fifo"]), "a"))
    if tasks:
        figures["a_worst_task"] = min(tasks.values())
    return figures | _plain(found[name].values())


def _shown(key: str, value: Ratio) -> dict[str, float]:
    return {
        key: value.mean,
        f"{key}_worst": value.worst,
        f"{key}_low": value.low,
        f"{key}_high": value.high,
        f"{key}_slower": value.slower,
    }


def _plain(runs: Iterable[Run]) -> dict[str, float]:
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
        "plan": float(np.mean([run.score.plan_gpu_seconds / run.trained for run in mine])),
        "microseconds_a_decision": round(1e6 * sum(r.seconds for r in mine) / sum(r.decisions for r in mine)),
    }


def table(runs: Sequence[Run], family: str) -> str:
    """Markdown: one row a policy; geometric means against fifo with 95 % bootstrap intervals and (the worst run). Those
    of `BASES` that have not run are not told of.
    """
    found = by_entrant(runs, family)
    bases = [base for base in BASES if base in found]
    against = [f"b against {', '.join(BASES[base] for base in bases)}"] if bases else []
    head = ["policy", "a", "b", "c", "a1", *against, "GPU s to b", "plan", "switches", "wait in H"]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for name in found:
        plain = _plain(found[name].values())
        cells = [name]
        for metric in "abc":
            cells.append(_cell(ratio(found, name, "fifo", metric)))
        near = ratio(found, name, "fifo", "a1")
        cells.append(f"{near.mean:.2f} ({near.worst:.2f})" if near else "")
        if bases:
            values = [ratio(found, name, base, "b") for base in bases]
            cells.append(", ".join(f"{value.mean:.2f}" for value in values if value))
        spent = ratio(found, name, "fifo", "gpu")
        cells.append(f"{1 / spent.mean:.2f}" if spent else "")
        cells += [f"{plain['plan']:.2f}", f"{100 * plain['switch_share']:.1f} %", f"{plain['wait']:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(value: Ratio | None) -> str:
    if value is None:
        return ""
    return f"{value.mean:.2f} [{value.low:.2f}, {value.high:.2f}] ({value.worst:.2f})"


def against_table(runs: Sequence[Run], family: str, base: str) -> str:
    """Markdown: (a), (b) and (c) of every other policy against `base`, in the cells of `table`; empty where `base` has
    not run.
    """
    found = by_entrant(runs, family)
    if base not in found:
        return ""
    lines = [f"| against {base} | a | b | c |", "| --- " * 4 + "|"]
    for name in found:
        if name != base:
            cells = [_cell(ratio(found, name, base, metric)) for metric in "abc"]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def uses_table(runs: Sequence[Run], family: str) -> str:
    """Markdown: what the GPU seconds until (b) were used for, one row a policy; means of the runs' shares."""
    found = by_entrant(runs, family)
    head = ["(d)", "of fifo's", "trained", "best", "completed", "begun", "thrown away", "switches", "idle"]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for name in found:
        spent, plain = ratio(found, name, "fifo", "gpu"), _plain(found[name].values())
        shares = [plain[key] for key in (*(f"used_{use}" for use in USES), "idle")]
        cells = [name, f"{1 / spent.mean:.2f}" if spent else "", *(f"{100 * share:.1f} %" for share in shares)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def task_table(runs: Sequence[Run], family: str, names: Sequence[str], metric: str) -> str:
    """Markdown: geometric mean of each task, for a few policies."""
    found = by_entrant(runs, family)
    columns = {n: by_task(ratios(scores(found[n]), scores(found["fifo"]), metric)) for n in names if n in found}
    tasks = list(dict.fromkeys(task for column in columns.values() for task in column))
    lines = ["| task | " + " | ".join(columns) + " |", "| --- " * (len(columns) + 1) + "|"]
    for task in tasks:
        lines.append(f"| {task} | " + " | ".join(f"{columns[n].get(task, float('nan')):.2f}" for n in columns) + " |")
    return "\n".join(lines)


def plot(runs: Sequence[Run], title: str, path: Path) -> None:
    """Bars of (b) and (c) against fifo for each family, with bootstrap intervals and a dot for the worst run."""
    families = list(dict.fromkeys(run.family for run in runs))
    figure, axes = plt.subplots(1, len(families), figsize=(7 * len(families), 5), squeeze=False)
    for axis, family in zip(axes[0], families, strict=True):
        found = by_entrant(runs, family)
        names = [name for name in found if name != "fifo"]
        for shift, metric, colour in ((-0.2, "b", "#4477aa"), (0.2, "c", "#ccbb44")):
            values = [ratio(found, name, "fifo", metric) for name in names]
            places = np.arange(len(names)) + shift
            means = np.array([v.mean if v else np.nan for v in values])
            errors = np.array([[v.mean - v.low, v.high - v.mean] if v else [0, 0] for v in values]).T
            label = {"b": "(b) until the best has completed", "c": "(c) regret over time"}[metric]
            axis.bar(places, means, 0.38, yerr=errors, color=colour, label=label, capsize=2)
            axis.plot(places, [v.worst if v else np.nan for v in values], "k.", markersize=4)
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
    """What `name` loses in (b) against fifo when a switch costs more: 1 - ratio(long) / ratio(short)."""
    a, b = by_entrant(short, family), by_entrant(long, family)
    if name not in a or name not in b:
        return None
    near, far = ratio(a, name, "fifo", "b"), ratio(b, name, "fifo", "b")
    return 1.0 - far.mean / near.mean if near and far else None


def floor_cost(runs: Sequence[Run], family: str) -> float | None:
    """What the floor costs in (b): 1 - time without / time with, as a geometric mean over the runs."""
    found = by_entrant(runs, family)
    if "envelope" not in found or "envelope_no_floor" not in found:
        return None
    pairs = ratios(scores(found["envelope"]), scores(found["envelope_no_floor"]), "b")
    return 1.0 - geometric_mean(list(pairs.values()))


def floor_costs(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """By family, for the bars; a family without `envelope_no_floor` is not there."""
    found = {family: floor_cost(runs, family) for family in dict.fromkeys(run.family for run in runs)}
    return {family: {"lost_by_floor": cost} for family, cost in found.items() if cost is not None}
