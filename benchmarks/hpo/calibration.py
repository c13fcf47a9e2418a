"""Calibration of the envelope's forecasts: coverage of its intervals and CRPS on recorded curves.

    python -m benchmarks.hpo.calibration [--curves PATH ...]         prints the report (seconds)
    python -m benchmarks.hpo.calibration --fit [--curves PATH ...]   prints TABLE of
    core/podium_core/curves/prediction/multiples.py

For each task, the table is fitted on all other tasks. The forecast of a trial's final value is asked at several shares
of its training, with none and with some of the other trials completed. A part of bench_hpo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.command_line import Parser
from benchmarks.hpo.questions import EDGES, KNOWN, Question, fit, questions
from benchmarks.inputs import CURVES, add_curves, curve_files, load_curves
from podium_core.curves.prediction.final_value import upper_bounds
from podium_core.curves.prediction.multiples import (
    DOUBLINGS_LEFT,
    LEVELS,
    TABLE,
    level_probabilities,
    mix_with_completed,
    table_quantiles,
)
from podium_core.curves.statistics import Floats
from podium_simulator.traces.trace import Trace, bundled_trace

INTERVALS = (0.5, 0.8, 0.95)  # the nominal coverage of each central interval
_AT_LEVELS, _SHARES = np.array(LEVELS), level_probabilities()
REPORTED = (0.05, 0.1, 0.25, 0.5)  # shares of training that have a row in the report
COMPLETED = (0, KNOWN)
FAR = 1e6  # spreads: a mean beyond it is that of one diverged trial
HEADS = [f"{100 * level:.0f} %" for level in INTERVALS]
LEGEND = f"""Coverage of the central intervals: the 80 % intervals should contain the final value in 80 % of the
questions. CRPS is given in units of the spread (quartile distance) of the task's final values; smaller is better. The
table has its median over the questions, and in parentheses its mean, which is the proper score. Beside it is the CRPS
of the point forecast 'stays as it is', which is its absolute error. With none and with {KNOWN} trials of the task
completed. `digits_example` is the example of this repository: it is in no fit and in no mean.
"""


def crps(quantiles: Floats, value: float) -> float:
    """Return the continuous ranked probability score of a forecast given by its quantiles at LEVELS.

    It is twice the integral over the levels of the pinball loss (Laio and Tamea 2007; Gneiting and Raftery 2007); each
    of LEVELS stands for the levels nearest to it. For a point forecast it is the absolute error. In units of the value.
    """
    off = value - quantiles
    with np.errstate(over="ignore"):
        pinball = np.maximum(_AT_LEVELS * off, (_AT_LEVELS - 1.0) * off)
        return 2.0 * float(np.sum(_SHARES * pinball))


def answer(question: Question, expected: Floats, known: int) -> Floats:
    """Return the quantiles at LEVELS of the multiple, as `final_value.quantiles` makes them.

    `expected`: the row of the table; `known`: how many peers have completed.
    """
    highest = upper_bounds(np.zeros(1), np.array([question.ceiling]), question.reached[:known])
    quantiles: Floats = np.minimum(mix_with_completed(expected[None], question.peers[:known]), highest)[0]
    return quantiles


def assess(asked: Sequence[Question], table: Floats, known: int) -> Mapping[str, float]:
    """Return the coverage of each of INTERVALS, and the CRPS of the forecast and of 'stays as it is'.

    CRPS is in units of the spread, as median over the questions and as mean. The mean is the proper score, but on a
    task with diverged trials it can exceed any bound.
    """
    inside = dict.fromkeys(INTERVALS, 0)
    scores: dict[str, list[float]] = {"crps": [], "crps_stays": []}
    expected = table_quantiles(np.array([question.doublings for question in asked]), table)
    for question, row in zip(asked, expected, strict=True):
        quantiles = answer(question, row, known)
        for level in INTERVALS:
            low, high = np.interp([(1 - level) / 2, (1 + level) / 2], LEVELS, quantiles)
            inside[level] += bool(low - 1e-9 <= question.multiple <= high + 1e-9)
        unit = question.scale / question.spread
        scores["crps"].append(crps(quantiles, question.multiple) * unit)
        scores["crps_stays"].append(abs(question.multiple) * unit)
    figures = {str(level): count / len(asked) for level, count in inside.items()}
    with np.errstate(over="ignore"):
        for name, each in scores.items():
            figures |= {name: float(np.median(each)), f"{name}_mean": float(np.mean(each))}
    return figures


@dataclass(frozen=True, slots=True)
class Calibration:
    """The figures of one task (`assess`) by completed trials.

    They are given over all of training, and by share of training.
    """

    task: str
    whole: Mapping[int, Mapping[str, float]]
    by_share: Mapping[tuple[float, int], Mapping[str, float]]


def calibration_report(traces: Iterable[Trace], outcome: dict[str, object]) -> str:
    """Return the calibration by task and by share of training as Markdown; add its figures to `outcome`.

    Each task is held out of the fit. The example is in no fit, and is measured in any case. With fewer than three
    traces there is nothing to fit: then only the example is measured, with the shipped table.
    """
    example = bundled_trace()
    given = {r.task: r for r in traces if r.task != example.task}
    asked = {task: questions(r) for task, r in given.items()} if len(given) >= 3 else {}
    tasks = []
    for task, mine in asked.items():
        table = fit([q for other, those in asked.items() if other != task for q in those])
        tasks.append(calibration(given[task], mine, table))
    everything = [q for those in asked.values() for q in those]
    own = calibration(example, questions(example), fit(everything) if everything else TABLE)
    outcome["calibration"] = {
        str(known) if known else "none": averages(tasks, known) | {example.task: rounded(own.whole[known])}
        for known in COMPLETED
    }
    heading = "## Calibration of the forecasts (each task held out of the fit)\n"
    return "\n".join([heading, LEGEND, by_task(tasks, own), by_share(tasks, own)])


def calibration(trace: Trace, asked: Sequence[Question], table: Floats) -> Calibration:
    """Return the calibration of one task with this table."""
    shared = questions(trace, shares=REPORTED)
    parts = {share: [q for q in shared if q.share == share] for share in REPORTED}
    return Calibration(
        trace.task,
        {known: assess(asked, table, known) for known in COMPLETED},
        {(share, known): assess(part, table, known) for share, part in parts.items() if part for known in COMPLETED},
    )


def averages(tasks: Sequence[Calibration], known: int) -> dict[str, object]:
    """Return the means over the tasks, and the lowest and highest coverage; empty without a task."""
    figures = [task.whole[known] for task in tasks]
    if not figures:
        return {}
    coverages = {str(level): [f[str(level)] for f in figures] for level in INTERVALS}
    return {
        **rounded({key: float(np.mean([f[key] for f in figures])) for key in figures[0]}),
        **{f"{key}_range": [round(min(each), 3), round(max(each), 3)] for key, each in coverages.items()},
    }


def rounded(figures: Mapping[str, float]) -> dict[str, float]:
    """Return the figures with three decimals; infinite ones, which JSON does not have, are left out."""
    return {key: round(value, 3) for key, value in figures.items() if np.isfinite(value) and value < FAR}


def by_task(tasks: Sequence[Calibration], own: Calibration) -> str:
    """Return a row for each task, and one for the example."""
    score = "CRPS: median (mean)"
    columns = ["task", *HEADS, score, "of 'stays as it is'", f"with {KNOWN} completed: {HEADS[0]}", *HEADS[1:], score]
    lines = table_head(columns)
    for one in (*tasks, own):
        alone, with_known = (one.whole[known] for known in COMPLETED)
        cells = [one.task, *coverage(alone), scored(alone, "crps"), scored(alone, "crps_stays")]
        lines.append(row([*cells, *coverage(with_known), scored(with_known, "crps")]))
    if tasks:
        means, known_means = (spans([one.whole[known] for one in tasks]) for known in COMPLETED)
        lines.append(row(["mean of the tasks (range)", *means, "", "", *known_means, ""]))
    return "\n".join([*lines, "", f"Worse than 'stays as it is': {losers((*tasks, own))}.\n"])


def losers(tasks: Sequence[Calibration]) -> str:
    """Return the tasks on which the forecast has a larger CRPS than 'stays as it is'."""
    parts = []
    for known in COMPLETED:
        for suffix, name in (("", "median"), ("_mean", "mean")):
            worse = [t.task for t in tasks if t.whole[known]["crps" + suffix] > t.whole[known]["crps_stays" + suffix]]
            parts.append(f"{known or 'none'} completed, {name}: {', '.join(worse) or 'nowhere'}")
    return "; ".join(parts)


def by_share(tasks: Sequence[Calibration], own: Calibration) -> str:
    """Return a row for each share of training: means over the tasks (lowest to highest), and the example."""
    means = [f"{head} mean (range)" for head in HEADS] if tasks else []
    lines = ["Coverage by share of training, over the tasks:\n"] if tasks else ["Coverage by share of training:\n"]
    lines += table_head(["trained", "completed", *means, f"`{own.task}`: {', '.join(HEADS)}"])
    for share, known in own.by_share:
        figures = [one.by_share[share, known] for one in tasks if (share, known) in one.by_share]
        means = spans(figures) if tasks else []
        mine = ", ".join(coverage(own.by_share[share, known]))
        lines.append(row([f"{100 * share:.0f} %", str(known or "none"), *means, mine]))
    return "\n".join([*lines, ""])


def table_head(columns: Sequence[str]) -> list[str]:
    """Return the first two lines of a Markdown table."""
    return [row(columns), "| --- " * len(columns) + "|"]


def row(cells: Sequence[str]) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def coverage(figures: Mapping[str, float]) -> list[str]:
    """Return the cells of the coverages."""
    return [f"{100 * figures[str(level)]:.0f} %" for level in INTERVALS]


def spans(figures: Sequence[Mapping[str, float]]) -> list[str]:
    """Return for each interval the mean coverage over the tasks, the lowest and the highest."""
    shares = [[100 * f[str(level)] for f in figures] for level in INTERVALS]
    return [f"{np.mean(each):.0f} % ({min(each):.0f} to {max(each):.0f})" for each in shares]


def scored(figures: Mapping[str, float], key: str) -> str:
    """Return the cell of a CRPS; a mean that one diverged trial dominates is not shown."""
    mean = figures[f"{key}_mean"]
    return f"{figures[key]:.3f} ({f'{mean:.3f}' if mean < FAR else 'beyond any'})"


def main() -> None:
    parser = Parser(__doc__)
    add_curves(parser, [CURVES], "benchmarks/data/curves")
    parser.add_argument("--fit", action="store_true", help="print the table that is fitted on these curves")
    options = parser.parse_args()
    traces = load_curves(curve_files(options.curves))
    if not options.fit:
        print(calibration_report(traces, {}))
        return
    asked = [question for trace in traces for question in questions(trace)]
    assert len(DOUBLINGS_LEFT) == len(EDGES) - 1
    for quantiles in fit(asked):
        print("        [" + ", ".join(f"{value:.2f}".rstrip("0").rstrip(".") for value in quantiles) + "],")


if __name__ == "__main__":
    main()
