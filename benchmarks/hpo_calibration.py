"""Do the envelope's forecasts hold? Coverage of its intervals and CRPS on recorded curves, with the task held out.

    python benchmarks/hpo_calibration.py [CURVES]           prints the report (seconds)
    python benchmarks/hpo_calibration.py --fit [CURVES]     prints TABLE of core/podium/curves/final_value.py anew

For each task the table is fitted on all the others. A trial is asked at several shares of training for its final value;
the figures are taken with none and with 16 completed trials of the same task known.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from podium.curves.board import Floats, board
from podium.curves.equal_training import EqualTraining
from podium.curves.final_value import (
    DOUBLINGS_LEFT,
    LEVELS,
    TABLE,
    ceilings,
    informed,
    multiples,
    scale,
    shares_of_levels,
)
from podium.domain.phase import TrialPhase
from podium.domain.snapshot import Point
from podium.simulation.recorded import Recording, bundled, load_all
from podium.testing.builders import make_job, make_snapshot, make_trial

REPORTED = (0.05, 0.1, 0.25, 0.5)  # shares of training that the report has rows of
SHARES = (0.03, 0.04, 0.06, 0.09, 0.125, 0.18, 0.25, 0.35, 0.5, 0.6, 0.75, 0.9)
EDGES = (0.0, 0.38, 0.8, 1.2, 1.8, 2.3, 3.2, 4.2, 20.0)  # doublings left: one bin a row of the table
TRIALS, KNOWN, LEAST = 160, 16, 20
INTERVALS = (0.5, 0.8, 0.95)
FAR = 1e6  # spreads: a mean beyond it is one diverged trial's


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: what is still to come of a trial, as a multiple of its scale. `peers`: the multiples of the trials
    that are taken as completed.
    """

    family: str
    task: str
    doublings: float
    multiple: float
    scale: float
    spread: float  # of the final values of the task, to make CRPS comparable
    share: float  # of training
    room: float  # the multiple at which it is at its ceiling
    peers: Floats
    reached: Floats  # the multiples at which it is where these peers ended


def questions(recording: Recording, seed: int = 0, shares: Sequence[float] = SHARES) -> list[Asked]:
    random = np.random.default_rng(seed)
    chosen = random.permutation(len(recording.trials))[:TRIALS]
    trials = [recording.trials[i] for i in chosen]
    horizon = max(trial.length for trial in trials)
    job = make_job(maximize=recording.maximize, max_steps=horizon, max_trials=len(trials))
    views = []
    for number, trial in enumerate(trials):
        curve = tuple(Point(s, v, s) for s, v in zip(trial.seconds, trial.values, strict=True))
        views.append(make_trial(number, curve=curve, phase=TrialPhase.RUNNING, gpus=["gpu"]))
    seen = board(job, views, make_snapshot(jobs=[job], trials=views))
    table = EqualTraining(len(seen), horizon)
    table.refresh(seen)
    finals = seen.best[np.isfinite(seen.best)]
    spread = float(np.quantile(finals, 0.75) - np.quantile(finals, 0.25)) or 1.0
    found: list[Asked] = []
    for share in shares:
        rung = int(np.argmin(np.abs(table.grid - share * horizon)))
        table.measure(rung)
        there = [
            row
            for row in range(len(seen))
            if table.best[row, rung] > -np.inf and seen.step[row] > table.grid[rung] * 1.001
        ]
        scales = np.array([scale(table, row, rung) for row in there])
        shown = np.array([seen.best[row] - table.best[row, rung] for row in there]) / np.maximum(scales, 1e-300)
        left = float(np.log2(horizon / table.grid[rung]))
        rows = np.array(there, dtype=np.intp)
        highest = ceilings(table, rows, np.full(len(rows), rung))
        for i, row in enumerate(there):
            peers = random.permutation(np.delete(np.arange(len(there)), i))[:KNOWN]
            with np.errstate(over="ignore"):
                room, *reached = (np.array([highest[i], *seen.best[rows[peers]]]) - table.best[row, rung]) / scales[i]
            one = (left, shown[i], scales[i], spread, share, room, shown[peers], np.array(reached))
            found.append(Asked(recording.family, recording.task, *one))
    return found


def fit(asked: Sequence[Asked]) -> Floats:
    """The table: quantiles of the multiples by doublings left, each family with the same weight."""
    rows = []
    for low, high in pairwise(EDGES):
        parts = []
        for family in sorted({a.family for a in asked}):
            mine = [a.multiple for a in asked if a.family == family and low <= a.doublings < high]
            if len(mine) > LEAST:
                parts.append(np.quantile(mine, (np.arange(400) + 0.5) / 400))
        rows.append(np.quantile(np.concatenate(parts), LEVELS))
    return np.array(rows)


def calibration_report(recordings: Iterable[Recording], outcome: dict[str, object]) -> str:
    """Markdown: coverage and CRPS (over the spread of the final values), by task and by share of training. Each task is
    held out of the fit; our own example is in no fit, and is measured whatever else is there. With fewer than three
    recordings there is nothing to fit, and it alone is measured with the shipped table.
    """
    given = {r.task: r for r in recordings}
    own = bundled()
    fitted = {task: questions(r) for task, r in given.items() if task != own.task}
    if len(fitted) < 3:
        fitted = {}
    measured: list[Calibration] = []
    for recording in (*(given[task] for task in fitted), own):
        others = [a for task, asked in fitted.items() if task != recording.task for a in asked]
        table = fit(others) if others else TABLE
        mine = fitted.get(recording.task) or questions(recording)
        measured.append(Calibration(recording.task, mine, questions(recording, shares=REPORTED), table))
    tasks = [one for one in measured if one.task != own.task]
    outcome["calibration"] = {
        name: {**averages(tasks, known), own.task: rounded(measured[-1].figures(known))}
        for name, known in (("none", 0), (str(KNOWN), KNOWN))
    }
    parts = ["## Calibration of the forecasts (each task held out of the fit)\n", LEGEND, by_task(tasks, measured[-1])]
    return "\n".join([*parts, by_share(tasks, measured[-1])])


LEGEND = f"""Coverage of the central intervals: of the 80 % intervals 80 % ought to hold the final value. CRPS in units of
the spread of the task's final values, smaller is better: the median over the questions (their mean), and beside it that
of the point forecast 'stays as it is', whose CRPS is its absolute error. With none and with {KNOWN} trials of the task
completed. `digits_example` is our own example: in no fit, and in no mean.
"""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A task's questions, over all of training (`asked`) and at the shares REPORTED, and the table that answers."""

    task: str
    asked: Sequence[Asked]
    shared: Sequence[Asked]
    table: Floats

    def figures(self, known: int, share: float | None = None) -> Mapping[str, float]:
        asked = self.asked if share is None else [a for a in self.shared if a.share == share]
        return assess(asked, self.table, known) if asked else {}


def averages(tasks: Sequence[Calibration], known: int) -> dict[str, float]:
    """Means over the tasks; without a task none."""
    figures = [task.figures(known) for task in tasks]
    return rounded({key: float(np.mean([f[key] for f in figures])) for key in (figures or [{}])[0]})


def rounded(figures: Mapping[str, float]) -> dict[str, float]:
    """JSON knows no infinity."""
    return {key: round(value, 3) for key, value in figures.items() if np.isfinite(value) and value < FAR}


def by_task(tasks: Sequence[Calibration], own: Calibration) -> str:
    heads = [f"{100 * level:.0f} %" for level in INTERVALS]
    crps = "CRPS: median (mean)"
    columns = ["task", *heads, crps, "of 'stays as it is'", f"with {KNOWN} completed: {heads[0]}", *heads[1:], crps]
    lines = ["| " + " | ".join(columns) + " |", "| --- " * len(columns) + "|"]
    pairs = {one.task: (one.figures(0), one.figures(KNOWN)) for one in (*tasks, own)}
    for task, (alone, known) in pairs.items():
        cells = [task, *(f"{100 * alone[str(level)]:.0f} %" for level in INTERVALS)]
        cells += [scored(alone, "crps"), scored(alone, "crps_stays")]
        cells += [*(f"{100 * known[str(level)]:.0f} %" for level in INTERVALS), scored(known, "crps")]
        lines.append("| " + " | ".join(cells) + " |")
    if tasks:
        both = [[pairs[one.task][i] for one in tasks] for i in (0, 1)]
        alone_, known_ = ([spanned([f[str(level)] for f in figures]) for level in INTERVALS] for figures in both)
        lines.append("| mean of the tasks (range) | " + " | ".join([*alone_, "", "", *known_, ""]) + " |")
    worse = []
    for name, place in (("none", 0), (str(KNOWN), 1)):
        for statistic, said in (("", "median"), ("_mean", "mean")):
            losers = [t for t, f in pairs.items() if f[place]["crps" + statistic] > f[place]["crps_stays" + statistic]]
            worse.append(f"{name} completed, {said}: {', '.join(losers) or 'nowhere'}")
    return "\n".join([*lines, "", "Worse than 'stays as it is': " + "; ".join(worse) + ".\n"])


def by_share(tasks: Sequence[Calibration], own: Calibration) -> str:
    """A row a share of training: means over the tasks (lowest to highest), and our own example."""
    heads = [f"{100 * level:.0f} %" for level in INTERVALS]
    named = [*(heads if tasks else []), f"`{own.task}`"]
    lines = [f"Coverage by share of training{', mean of the tasks (range)' if tasks else ''}; `{own.task}` of "]
    lines[0] += f"{', '.join(heads[:-1])} and {heads[-1]} intervals:\n"
    columns = ["trained", "completed", *named]
    lines += ["| " + " | ".join(columns) + " |", "| --- " * len(columns) + "|"]
    for share in REPORTED:
        for known in (0, KNOWN):
            figures = [found for task in tasks if (found := task.figures(known, share))]
            cells = [spanned([f[str(level)] for f in figures]) for level in INTERVALS if figures]
            mine = own.figures(known, share)
            cells.append(" / ".join(f"{100 * mine[str(level)]:.0f}" for level in INTERVALS))
            lines.append(f"| {100 * share:.0f} % | {known or 'none'} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def spanned(shares: Sequence[float]) -> str:
    return f"{100 * float(np.mean(shares)):.0f} % ({100 * min(shares):.0f} to {100 * max(shares):.0f})"


def scored(figures: Mapping[str, float], key: str) -> str:
    """A mean that one diverged trial has carried away says nothing."""
    mean = figures[f"{key}_mean"]
    return f"{figures[key]:.3f} ({f'{mean:.3f}' if mean < FAR else 'beyond any'})"


def crps(quantiles: Floats, value: float) -> float:
    """The continuous ranked probability score of a forecast that is known by its quantiles at LEVELS: twice the
    integral over the levels of the pinball loss (Laio and Tamea 2007; Gneiting and Raftery 2007), each of LEVELS taken
    for those nearest to it. Of a point forecast it is the absolute error. In units of the value.
    """
    levels = np.array(LEVELS)
    off = value - quantiles
    with np.errstate(over="ignore"):
        return 2.0 * float(np.sum(shares_of_levels() * np.maximum(levels * off, (levels - 1.0) * off)))


def answer(asked: Asked, expected: Floats, known: int) -> Floats:
    """The forecast's quantiles at LEVELS of the multiple, as `final_value.quantiles` makes them: `expected` is what the
    table says, and the first `known` peers have completed.
    """
    peers = asked.peers[:known]
    room = max(asked.room, float(np.max(asked.reached[:known], initial=-np.inf)), 0.0)
    found: Floats = np.minimum(informed(expected[None], peers)[0], room)
    return found


def assess(asked: Sequence[Asked], table: Floats, known: int) -> Mapping[str, float]:
    """Coverage of the central intervals; CRPS in units of the spread: its median over the questions, for a diverging
    task's scale is beyond any mean, and its mean.
    """
    inside = dict.fromkeys(INTERVALS, 0)
    scores, stays = [], []
    expected = multiples(np.array([a.doublings for a in asked]), table)
    for a, row in zip(asked, expected, strict=True):
        found = answer(a, row, known)
        for level in INTERVALS:
            low, high = np.interp([(1 - level) / 2, (1 + level) / 2], LEVELS, found)
            inside[level] += bool(low - 1e-9 <= a.multiple <= high + 1e-9)
        unit = a.scale / a.spread
        scores.append(crps(found, a.multiple) * unit)
        stays.append(abs(a.multiple) * unit)
    found_ = {str(level): count / len(asked) for level, count in inside.items()}
    with np.errstate(over="ignore"):
        for name, each in (("crps", scores), ("crps_stays", stays)):
            found_ |= {name: float(np.median(each)), f"{name}_mean": float(np.mean(each))}
    return found_


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
    for row in fit(asked):
        print("        [" + ", ".join(f"{value:.2f}".rstrip("0").rstrip(".") for value in row) + "],")


if __name__ == "__main__":
    main()
