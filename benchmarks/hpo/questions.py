"""Questions to the forecast of final values, from recorded curves, and the table that is fitted to them.

A question asks where a trial ends, after some share of its training. "Completed" trials are others of the same task
whose final values the running job would know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from podium_core.curves.aligned_curves import AlignedCurves
from podium_core.curves.curve_table import curves_of_job
from podium_core.curves.prediction.final_value import ceilings, scales
from podium_core.curves.prediction.multiples import LEVELS
from podium_core.curves.statistics import Floats
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Point
from podium_core.testing.builders import make_job, make_snapshot, make_trial
from podium_simulator.traces.trace import Trace

SHARES = (0.03, 0.04, 0.06, 0.09, 0.125, 0.18, 0.25, 0.35, 0.5, 0.6, 0.75, 0.9)  # of training
EDGES = (0.0, 0.38, 0.8, 1.2, 1.8, 2.3, 3.2, 4.2, 20.0)  # doublings left: one bin for each row of the table
TRIALS, KNOWN, LEAST = 160, 16, 20


@dataclass(frozen=True, slots=True)
class Question:
    """What a trial still gains until its end, as a multiple of its scale.

    `peers`: the multiples of the trials that count as completed; `reached`: the multiples at which this trial would be
    where these peers ended. `ceiling`: the multiple at which it would be at its ceiling. `share`: of training.
    `spread`: quartile distance of the task's final values, which makes CRPS comparable.
    """

    family: str
    task: str
    doublings: float
    multiple: float
    scale: float
    spread: float
    share: float
    ceiling: float
    peers: Floats
    reached: Floats


def questions(trace: Trace, seed: int = 0, shares: Sequence[float] = SHARES) -> list[Question]:
    """Return the questions that a trace asks at these shares of training."""
    random = np.random.default_rng(seed)
    chosen = random.permutation(len(trace.trials))[:TRIALS]
    trials = [trace.trials[i] for i in chosen]
    horizon = max(trial.length for trial in trials)
    job = make_job(maximize=trace.maximize, max_steps=horizon, max_trials=len(trials))
    views = []
    for number, trial in enumerate(trials):
        curve = tuple(Point(s, v, s) for s, v in zip(trial.seconds, trial.values, strict=True))
        views.append(make_trial(number, curve=curve, phase=TrialPhase.RUNNING, gpus=["gpu"]))
    seen = curves_of_job(job, views, make_snapshot(jobs=[job], trials=views))
    table = AlignedCurves(len(seen), horizon)
    table.refresh(seen)
    finals = seen.best[np.isfinite(seen.best)]
    spread = float(np.quantile(finals, 0.75) - np.quantile(finals, 0.25)) or 1.0
    asked: list[Question] = []
    for share in shares:
        rung = int(np.argmin(np.abs(table.grid - share * horizon)))
        table.measure(np.arange(len(table.grid)) == rung)
        there = [
            row
            for row in range(len(seen))
            if table.best[row, rung] > -np.inf and seen.step[row] > table.grid[rung] * 1.001
        ]
        left = float(np.log2(horizon / table.grid[rung]))
        rows = np.array(there, dtype=np.intp)
        here = np.full(len(rows), rung)
        units, highest = scales(table, rows, here), ceilings(table, rows, here)
        gained = (seen.best[rows] - table.best[rows, rung]) / units
        for i, row in enumerate(there):
            peers = random.permutation(np.delete(np.arange(len(there)), i))[:KNOWN]
            with np.errstate(over="ignore"):
                ceiling, *reached = (np.array([highest[i], *seen.best[rows[peers]]]) - table.best[row, rung]) / units[i]
            values = (left, gained[i], units[i], spread, share, ceiling, gained[peers], np.array(reached))
            asked.append(Question(trace.family, trace.task, *values))
    return asked


def fit(asked: Sequence[Question]) -> Floats:
    """Return the quantiles of the multiples by doublings left, with equal weights for families."""
    rows = []
    for low, high in pairwise(EDGES):
        parts = []
        for family in sorted({question.family for question in asked}):
            mine = [q.multiple for q in asked if q.family == family and low <= q.doublings < high]
            if len(mine) > LEAST:
                parts.append(np.quantile(mine, (np.arange(400) + 0.5) / 400))
        rows.append(np.quantile(np.concatenate(parts), LEVELS))
    return np.array(rows)
