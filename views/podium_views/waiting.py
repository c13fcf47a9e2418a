"""Explanation of a search's wait as text: expected times, and what other searches have ahead of it."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from podium_core.waiting.explanation import Ahead
from podium_simulator.expected.times import Interval
from podium_views import formatting


def ahead_text(one: Ahead) -> str:
    """Return what one other search has ahead of this one."""
    holds = f"{formatting.count(one.holds, 'GPU')} held" if one.holds else "no GPU held"
    return f"{one.job}: {holds}, {formatting.count(one.waiting, 'trial')} before the next one of this search"


def interval_text(interval: Interval, now: float) -> str:
    """Return an expected time with its interval, and the time of day."""
    low, middle, high = (_seconds(one) for one in (interval.low, interval.median, interval.high))
    at = datetime.fromtimestamp(now + interval.median, UTC)
    return f"in {middle} ({low} to {high}), about {at:%Y-%m-%d %H:%M} UTC"


def _seconds(seconds: float) -> str:
    return "never" if math.isinf(seconds) else formatting.duration(seconds)
