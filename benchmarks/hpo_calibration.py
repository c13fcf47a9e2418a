"""Do the envelope's forecasts hold? Coverage of its intervals and CRPS on recorded curves, with the task held out.

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
from numpy.typing import NDArray

from podium.curves.board import board
from podium.curves.equal_training import EqualTraining
from podium.curves.final_value import DOUBLINGS_LEFT, LEVELS, WEIGHT, multiples, scale
from podium.domain.phase import TrialPhase
from podium.domain.snapshot import Point
from podium.simulation.recorded import Recording, load_all
from podium.testing.builders import make_job, make_snapshot, make_trial

SHARES = (0.03, 0.04, 0.06, 0.09, 0.125, 0.18, 0.25, 0.35, 0.5, 0.6, 0.75, 0.9)
EDGES = (0.0, 0.38, 0.8, 1.2, 1.8, 2.3, 3.2, 4.2, 20.0)  # doublings left: one bin a row of the table
TRIALS, KNOWN, LEAST = 160, 16, 20
INTERVALS = (0.5, 0.8, 0.95)


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
    peers: NDArray[np.float64]


def questions(recording: Recording, seed: int = 0) -> list[Asked]:
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
    for share in SHARES:
        rung = int(np.argmin(np.abs(table.grid - share * horizon)))
        table.measure(rung)
        there = [
            row
            for row in range(len(seen))
            if table.best[row, rung] > -np.inf and seen.step[row] > table.grid[rung] * 1.001
        ]
        scales = np.array([scale(table, row, rung) for row in there])
        shown = np.array([seen.best[row] - table.best[row, rung] for row in there]) / np.maximum(scales, 1e-300)
        for i in range(len(there)):
            others = np.delete(np.arange(len(there)), i)
            peers = shown[random.permutation(others)[:KNOWN]]
            left = float(np.log2(horizon / table.grid[rung]))
            found.append(Asked(recording.family, recording.task, left, shown[i], scales[i], spread, peers))
    return found


def fit(asked: Sequence[Asked]) -> NDArray[np.float64]:
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
    """Markdown; coverage and CRPS (over the spread of the final values) by task, with the task held out of the fit."""
    asked = {r.task: questions(r) for r in recordings}
    if len(asked) < 3:
        return ""
    lines = ["## Calibration of the forecasts (each task held out of the fit)\n"]
    known_too = "with 16 completed: 50 % | 80 % | 95 % | CRPS |"
    lines.append(f"| task | 50 % | 80 % | 95 % | CRPS | of 'stays as it is' | {known_too}")
    lines.append("| --- " * 10 + "|")
    figures: dict[str, dict[str, float]] = {}
    for task, mine in asked.items():
        table = fit([a for other, those in asked.items() if other != task for a in those])
        alone, known = assess(mine, table, 0), assess(mine, table, KNOWN)
        figures[task] = known
        cells = [task, *(f"{100 * alone[str(level)]:.0f} %" for level in INTERVALS)]
        cells += [f"{alone['crps']:.3f}", f"{alone['crps_stays']:.3f}"]
        cells += [*(f"{100 * known[str(level)]:.0f} %" for level in INTERVALS), f"{known['crps']:.3f}"]
        lines.append("| " + " | ".join(cells) + " |")
    outcome["calibration"] = {
        key: round(float(np.mean([figure[key] for figure in figures.values()])), 3)
        for key in (*(str(level) for level in INTERVALS), "crps", "crps_stays")
    }
    return "\n".join(lines) + "\n"


def assess(asked: Sequence[Asked], table: NDArray[np.float64], known: int) -> Mapping[str, float]:
    """Coverage of the central intervals; CRPS as twice the mean pinball loss over LEVELS, in units of the spread."""
    levels = np.array(LEVELS)
    inside = dict.fromkeys(INTERVALS, 0)
    crps, stays = [], []
    for a in asked:
        expected = multiples(a.doublings, table)
        if known:
            peers = a.peers[:known]
            expected = (WEIGHT * expected + len(peers) * np.quantile(peers, LEVELS)) / (WEIGHT + len(peers))
        for level in INTERVALS:
            low, high = np.interp([(1 - level) / 2, (1 + level) / 2], levels, expected)
            inside[level] += low - 1e-9 <= a.multiple <= high + 1e-9
        off = a.multiple - expected
        unit = a.scale / a.spread
        crps.append(2 * float(np.mean(np.maximum(levels * off, (levels - 1) * off))) * unit)
        stays.append(abs(a.multiple) * unit)
    found = {str(level): count / len(asked) for level, count in inside.items()}
    # the median over questions: a diverging task's scale is beyond any mean
    return found | {"crps": float(np.median(crps)), "crps_stays": float(np.median(stays))}


def main() -> None:
    paths = [Path(a) for a in sys.argv[2:]] or [Path(__file__).parents[2] / "shared" / "curves"]
    if sys.argv[1:2] != ["--fit"]:
        raise SystemExit(__doc__)
    asked = [a for recording in load_all(paths) for a in questions(recording)]
    assert len(DOUBLINGS_LEFT) == len(EDGES) - 1
    for row in fit(asked):
        print("        [" + ", ".join(f"{value:.2f}".rstrip("0").rstrip(".") for value in row) + "],")


if __name__ == "__main__":
    main()
