"""Do the envelope's forecasts hold? Coverage of its intervals and CRPS on recorded curves, with the task held out.

    python benchmarks/hpo_calibration.py [CURVES]           prints the report (seconds)
    python benchmarks/hpo_calibration.py --fit [CURVES]     prints TABLE of core/podium_core/curves/final_value.py anew

For each task the table is fitted on all the others. A trial is asked at several shares of training for its final value;
with none and with some of the other trials completed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hpo_questions import EDGES, KNOWN, Asked, fit, questions
from hpo_scores import INTERVALS, assess

from podium_core.curves.curve_table import Floats
from podium_core.curves.final_value import DOUBLINGS_LEFT, TABLE
from podium_simulator.traces.trace import Trace, bundled_trace, load_all

REPORTED = (0.05, 0.1, 0.25, 0.5)  # shares of training that the report has rows of
COMPLETED = (0, KNOWN)
FAR = 1e6  # spreads: a mean beyond it is one diverged trial's
HEADS = [f"{100 * level:.0f} %" for level in INTERVALS]
LEGEND = f"""Coverage of the central intervals: of the 80 % intervals 80 % ought to hold the final value. CRPS in
units of the spread (quartiles) of the task's final values, smaller is better: the median over the questions (their
mean, which is the proper score); beside it that of the point forecast 'stays as it is', whose CRPS is its absolute
error. With none and with {KNOWN} trials of the task completed. `digits_example` is our own example: in no fit and in no
mean.
"""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A task's figures (`hpo_scores.assess`) by completed trials: over all of training, and by share of it."""

    task: str
    whole: Mapping[int, Mapping[str, float]]
    by_share: Mapping[tuple[float, int], Mapping[str, float]]


def calibration_report(recordings: Iterable[Trace], outcome: dict[str, object]) -> str:
    """Markdown: by task and by share of training. Each task is held out of the fit; our own example is in no fit, and
    is measured whatever else is there. With fewer than three recordings there is nothing to fit, and it alone is
    measured with the shipped table.
    """
    own = bundled_trace()
    given = {r.task: r for r in recordings if r.task != own.task}
    asked = {task: questions(r) for task, r in given.items()} if len(given) >= 3 else {}
    tasks = []
    for task, mine in asked.items():
        table = fit([a for other, those in asked.items() if other != task for a in those])
        tasks.append(calibration(given[task], mine, table))
    everything = [a for those in asked.values() for a in those]
    example = calibration(own, questions(own), fit(everything) if everything else TABLE)
    outcome["calibration"] = {
        str(known) if known else "none": averages(tasks, known) | {own.task: rounded(example.whole[known])}
        for known in COMPLETED
    }
    heading = "## Calibration of the forecasts (each task held out of the fit)\n"
    return "\n".join([heading, LEGEND, by_task(tasks, example), by_share(tasks, example)])


def calibration(recording: Trace, asked: Sequence[Asked], table: Floats) -> Calibration:
    shared = questions(recording, shares=REPORTED)
    parts = {share: [a for a in shared if a.share == share] for share in REPORTED}
    return Calibration(
        recording.task,
        {known: assess(asked, table, known) for known in COMPLETED},
        {(share, known): assess(part, table, known) for share, part in parts.items() if part for known in COMPLETED},
    )


def averages(tasks: Sequence[Calibration], known: int) -> dict[str, object]:
    """Means over the tasks, and the lowest and highest coverage; without a task none."""
    figures = [task.whole[known] for task in tasks]
    if not figures:
        return {}
    coverages = {str(level): [f[str(level)] for f in figures] for level in INTERVALS}
    return {
        **rounded({key: float(np.mean([f[key] for f in figures])) for key in figures[0]}),
        **{f"{key}_range": [round(min(each), 3), round(max(each), 3)] for key, each in coverages.items()},
    }


def rounded(figures: Mapping[str, float]) -> dict[str, float]:
    """JSON knows no infinity."""
    return {key: round(value, 3) for key, value in figures.items() if np.isfinite(value) and value < FAR}


def by_task(tasks: Sequence[Calibration], own: Calibration) -> str:
    score = "CRPS: median (mean)"
    columns = ["task", *HEADS, score, "of 'stays as it is'", f"with {KNOWN} completed: {HEADS[0]}", *HEADS[1:], score]
    lines = table_head(columns)
    for one in (*tasks, own):
        alone, with_known = (one.whole[known] for known in COMPLETED)
        cells = [one.task, *coverage(alone), scored(alone, "crps"), scored(alone, "crps_stays")]
        lines.append(row([*cells, *coverage(with_known), scored(with_known, "crps")]))
    if tasks:
        alone, with_known = (spans([one.whole[known] for one in tasks]) for known in COMPLETED)
        lines.append(row(["mean of the tasks (range)", *alone, "", "", *with_known, ""]))
    return "\n".join([*lines, "", f"Worse than 'stays as it is': {losers((*tasks, own))}.\n"])


def losers(tasks: Sequence[Calibration]) -> str:
    """The tasks on which the forecast has the larger CRPS."""
    said = []
    for known in COMPLETED:
        for suffix, name in (("", "median"), ("_mean", "mean")):
            worse = [t.task for t in tasks if t.whole[known]["crps" + suffix] > t.whole[known]["crps_stays" + suffix]]
            said.append(f"{known or 'none'} completed, {name}: {', '.join(worse) or 'nowhere'}")
    return "; ".join(said)


def by_share(tasks: Sequence[Calibration], own: Calibration) -> str:
    """A row a share of training: means over the tasks (lowest to highest), and our own example."""
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
    return [row(columns), "| --- " * len(columns) + "|"]


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def coverage(figures: Mapping[str, float]) -> list[str]:
    return [f"{100 * figures[str(level)]:.0f} %" for level in INTERVALS]


def spans(figures: Sequence[Mapping[str, float]]) -> list[str]:
    """Of each interval's coverage the mean over the tasks, the lowest and the highest."""
    shares = [[100 * f[str(level)] for f in figures] for level in INTERVALS]
    return [f"{np.mean(each):.0f} % ({min(each):.0f} to {max(each):.0f})" for each in shares]


def scored(figures: Mapping[str, float], key: str) -> str:
    """A mean that one diverged trial has carried away says nothing."""
    mean = figures[f"{key}_mean"]
    return f"{figures[key]:.3f} ({f'{mean:.3f}' if mean < FAR else 'beyond any'})"


def main() -> None:
    fitting = sys.argv[1:2] == ["--fit"]
    paths = [Path(a) for a in sys.argv[1 + fitting :]] or [Path(__file__).parents[2] / "shared" / "curves"]
    if any(not path.exists() for path in paths):
        raise SystemExit(__doc__)
    if not fitting:
        print(calibration_report(load_all(paths), {}))
        return
    asked = [a for recording in load_all(paths) for a in questions(recording)]
    assert len(DOUBLINGS_LEFT) == len(EDGES) - 1
    for quantiles in fit(asked):
        print("        [" + ", ".join(f"{value:.2f}".rstrip("0").rstrip(".") for value in quantiles) + "],")


if __name__ == "__main__":
    main()
