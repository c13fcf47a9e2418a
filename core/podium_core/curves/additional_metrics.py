"""Summaries of a job's additional metrics: the latest, lowest and highest value of each. Pure.

`growing_curve` calls it for each value that a line holds. The agent and the operator write the result to the trial's
status (`additionalMetrics`) and continue from it after a restart. A summary has a fixed size, however much a trial
prints. A reader that reads some lines twice gets the same result: steps never decrease, and an equal value is not a new
extreme.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from podium_core.schema.trial import AdditionalMetric, NonFinite


@dataclass(frozen=True, slots=True)
class Extreme:
    """A finite value and the first step at which it was printed."""

    step: float
    value: float


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """Summary of one additional metric.

    `latest` may be NaN or infinite. `low` and `high` are always finite; None means that no finite value was printed.
    """

    metric: str
    step: float
    latest: float
    low: Extreme | None = None
    high: Extreme | None = None


def update_summary(before: MetricSummary | None, metric: str, step: float, value: float) -> MetricSummary | None:
    """Return the summary of `metric` after one more value; None while there is none.

    A step below the latest one is a step repeated after a requeue; it is ignored, as in the curve. At the latest step
    itself the newest value counts, because some scripts print several.
    """
    if not math.isfinite(step) or (before is not None and step < before.step):
        return before
    low, high = (None, None) if before is None else (before.low, before.high)
    if math.isfinite(value):
        if low is None or value < low.value:
            low = Extreme(step, value)
        if high is None or value > high.value:
            high = Extreme(step, value)
    return MetricSummary(metric, step, value, low, high)


def to_status(summaries: Iterable[MetricSummary]) -> list[AdditionalMetric]:
    """Return the summaries as the trial's status holds them."""
    return [
        AdditionalMetric(
            metric=summary.metric,
            step=summary.step,
            latest=summary.latest if math.isfinite(summary.latest) else _name(summary.latest),
            min=None if summary.low is None else summary.low.value,
            min_step=None if summary.low is None else summary.low.step,
            max=None if summary.high is None else summary.high.value,
            max_step=None if summary.high is None else summary.high.step,
        )
        for summary in summaries
    ]


def from_status(stored: Iterable[AdditionalMetric]) -> tuple[MetricSummary, ...]:
    """Return the summaries that a trial's status holds, for a reader that has restarted."""
    return tuple(
        MetricSummary(
            summary.metric,
            summary.step,
            float(summary.latest),
            _extreme(summary.min_step, summary.min),
            _extreme(summary.max_step, summary.max),
        )
        for summary in stored
    )


def _extreme(step: float | None, value: float | None) -> Extreme | None:
    return None if step is None or value is None else Extreme(step, value)


def _name(value: float) -> NonFinite:
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"
