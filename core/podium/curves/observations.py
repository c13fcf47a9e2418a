"""What a job's additional metrics came to: the latest, the lowest and the highest value of each, with steps. Pure.

Called by `growing` for each value that a line held; agent and operator write the result as `status.observations`, and
go on from what is written there. It takes the same room however long a trial prints. Whoever reads some lines again
arrives at the same: steps do not go back, and an equal value is no new extreme.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from podium.schema.trial import NonFinite, Observation


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


def observe(known: Mapping[str, Observed], metric: str, step: float, value: float) -> dict[str, Observed]:
    """`known` with this further value. A step before the latest is one done again, after a requeue: it is left out, as
    it is from the curve. At the latest step itself the newest value counts: some scripts print several.
    """
    before = known.get(metric, Observed(metric, step, value))
    if not math.isfinite(step) or step < before.step:
        return dict(known)
    now = replace(before, step=step, latest=value)
    if math.isfinite(value):
        here = Extreme(step, value)
        if now.low is None or value < now.low.value:
            now = replace(now, low=here)
        if now.high is None or value > now.high.value:
            now = replace(now, high=here)
    return {**known, metric: now}


def to_status(observed: Iterable[Observed]) -> list[Observation]:
    """As the trial's status has them."""
    return [
        Observation(
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


def from_status(stored: Iterable[Observation]) -> tuple[Observed, ...]:
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
