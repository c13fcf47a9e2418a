"""Reasons and messages of the envelope policy.

The figures come first, because tables cut long messages. They are coarse, because each new text is a write of a trial's
status.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.statistics import Floats
from podium_core.policies.base import Explain

_REPORTED_PROBABILITIES = (0.9, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


def explanation(
    starved: Collection[int],
    in_warm_up: NDArray[np.bool_],
    started: NDArray[np.bool_],
    chance: Floats,
    trained: Floats,
    length: float,
) -> Explain:
    """Return the explanation by row.

    `trained`: steps that each trial has trained. `length`: steps of a whole trial.
    """

    def explain(row: int) -> tuple[str, str]:
        if row in starved:
            return "LongestWait", "longest wait for a next value; the starvation guard gives it a time slice."
        if in_warm_up[row]:
            return "WarmUp", "in its warm-up; judged afterwards."
        if not started[row]:
            return "Unstarted", "not started; valued by the results of the started trials, above all the similar ones."
        share = 5 * int(20.0 * trained[row] / length)
        return "Envelope", f"ends best with probability {rounded(float(chance[row]))}; trained {share} % or more."

    return explain


def with_interval(explain: Explain, passed: NDArray[np.intp]) -> Explain:
    """Return the explanation with the interval in which a member of a population trains.

    `passed`: complete intervals by row. Members of an earlier interval go first.
    """

    def explain_member(row: int) -> tuple[str, str]:
        reason, text = explain(row)
        return reason, f"{text.removesuffix('.')} (interval {passed[row] + 1} of its population)."

    return explain_member


def rounded(chance: float) -> str:
    """Return a probability as text, in a few steps so that the text rarely changes."""
    least = next((step for step in _REPORTED_PROBABILITIES if chance >= step), None)
    return f"below {_REPORTED_PROBABILITIES[-1]:g}" if least is None else f"{least:g} or more"
