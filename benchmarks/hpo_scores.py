"""How good the answers to `hpo_questions` are: coverage of the central intervals, and CRPS. Called by the calibration
report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from hpo_questions import Asked

from podium_core.curves.curve_table import Floats
from podium_core.curves.final_value import (
    LEVELS,
    level_probabilities,
    mix_with_completed,
    table_quantiles,
    upper_bounds,
)

INTERVALS = (0.5, 0.8, 0.95)  # the probability that each ought to hold the final value
_AT_LEVELS, _SHARES = np.array(LEVELS), level_probabilities()


def crps(quantiles: Floats, value: float) -> float:
    """The continuous ranked probability score of a forecast that is known by its quantiles at LEVELS: twice the
    integral over the levels of the pinball loss (Laio and Tamea 2007; Gneiting and Raftery 2007), each of LEVELS taken
    for those nearest to it. Of a point forecast it is the absolute error. In units of the value.
    """
    off = value - quantiles
    with np.errstate(over="ignore"):
        pinball = np.maximum(_AT_LEVELS * off, (_AT_LEVELS - 1.0) * off)
        return 2.0 * float(np.sum(_SHARES * pinball))


def answer(asked: Asked, expected: Floats, known: int) -> Floats:
    """The forecast's quantiles at LEVELS of the multiple, as `final_value.quantiles` makes them: `expected` is what the
    table says, and the first `known` peers have completed.
    """
    highest = upper_bounds(np.zeros(1), np.array([asked.room]), asked.reached[:known])
    found: Floats = np.minimum(mix_with_completed(expected[None], asked.peers[:known]), highest)[0]
    return found


def assess(asked: Sequence[Asked], table: Floats, known: int) -> Mapping[str, float]:
    """Coverage of each of INTERVALS; CRPS in units of the spread, and that of the point forecast 'stays as it is':
    median over the questions and mean. A diverging task's scale is beyond any mean; the mean is the proper score.
    """
    inside = dict.fromkeys(INTERVALS, 0)
    scores: dict[str, list[float]] = {"crps": [], "crps_stays": []}
    expected = table_quantiles(np.array([a.doublings for a in asked]), table)
    for a, row in zip(asked, expected, strict=True):
        found = answer(a, row, known)
        for level in INTERVALS:
            low, high = np.interp([(1 - level) / 2, (1 + level) / 2], LEVELS, found)
            inside[level] += bool(low - 1e-9 <= a.multiple <= high + 1e-9)
        unit = a.scale / a.spread
        scores["crps"].append(crps(found, a.multiple) * unit)
        scores["crps_stays"].append(abs(a.multiple) * unit)
    figures = {str(level): count / len(asked) for level, count in inside.items()}
    with np.errstate(over="ignore"):
        for name, each in scores.items():
            figures |= {name: float(np.median(each)), f"{name}_mean": float(np.mean(each))}
    return figures
