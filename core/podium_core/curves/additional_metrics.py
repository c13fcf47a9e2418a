"""What a job's additional metrics came to: the latest, the lowest and the highest value of each, with steps. Pure.

Called by `growing` for each value that a line held; agent and operator write the result as
`status.additional_metrics`, and
go on from what is written there. It takes the same room however long a trial prints. Whoever reads some lines again
arrives at the same: steps do not go back, and an equal value is no new extreme.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from podium_core.schema.trial import AdditionalMetric, NonFinite


@dataclass(frozen=True, slots=True)
class Extreme:
    """A finite value, and the first step at which it was printed."""

    step: float
    value: float


@dataclass(frozen=True, slots=True)
class Observed:
    """One additional metric. `latest` may be NaN or infinite; `low` and `high` never are, None: nothing finite came."""

    metric: str
    step: float
    latest: float
    low: Extreme | None = None
    high: Extreme | None = None


def observe(before: Observed | None, metric: str, step: float, value: float) -> Observed | None:
    """What is known of `metric` after this further value; None: still nothing. A step before the latest is one done
    again, after a requeue: it is left out, as it is from the curve. At the latest step itself the newest value counts:
    some scripts print several.
    """
    if not math.isfinite(step) or (before is not None and step < before.step):
        return before
    low, high = (None, None) if before is None else (before.low, before.high)
    if math.isfinite(value):
        if low is None or value < low.value:
            low = Extreme(step, value)
        if high is None or value > high.value:
            high = Extreme(step, value)
    return Observed(metric, step, value, low, high)


def to_status(observed: Iterable[Observed]) -> list[AdditionalMetric]:
    """As the trial's status has them."""
    return [
        AdditionalMetric(
            metric=one.metric,
            step=one.step,
            latest=one.latest if math.isfinite(one.latest) else _name(one.latest),
            min=None if one.low is None else one.low.value,
            min_step=None if one.low is None else one.low.step,
            max=None if one.high is None else one.high.value,
            max_step=None if one.high is None else one.high.step,
        )
        for one in observed
    ]


def from_status(stored: Iterable[AdditionalMetric]) -> tuple[Observed, ...]:
    """Where a reader goes on that starts anew."""
    return tuple(
        Observed(
            one.metric, one.step, float(one.latest), _extreme(one.min_step, one.min), _extreme(one.max_step, one.max)
        )
        for one in stored
    )


def _extreme(step: float | None, value: float | None) -> Extreme | None:
    return None if step is None or value is None else Extreme(step, value)


def _name(value: float) -> NonFinite:
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"
