"""Mean costs of suspensions and resumptions, from measurements. Pure; used by the operator and the simulator.

A trial that is suspended now has not been resumed yet, so each mean is over the switches that it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from podium_core.domain.snapshot import Costs


class SwitchTotals(NamedTuple):
    """Numbers and total seconds of suspensions and resumptions."""

    suspended: int = 0
    suspend_seconds: float = 0.0
    resumed: int = 0
    resume_seconds: float = 0.0


def mean_costs(trials: Iterable[SwitchTotals], requeue: float | None = None) -> Costs:
    """Return the mean costs over all trials; defaults replace what was not measured yet."""
    ways, usual = list(trials), Costs()
    out = _mean(sum([one.suspend_seconds for one in ways]), sum([one.suspended for one in ways]))
    back = _mean(sum([one.resume_seconds for one in ways]), sum([one.resumed for one in ways]))
    return Costs(
        usual.suspend if out is None else out,
        usual.resume if back is None else back,
        usual.requeue if requeue is None else requeue,
    )


def mean_switch(recent: Sequence[tuple[float, float | None]]) -> float | None:
    """Return the seconds of one suspension plus one resumption of a trial; None until it was resumed once.

    `recent` holds the last suspensions: seconds to suspend, and seconds to resume (None: not resumed yet).
    """
    back = [seconds for _, seconds in recent if seconds is not None]
    out, into = _mean(sum([seconds for seconds, _ in recent]), len(recent)), _mean(sum(back), len(back))
    return None if out is None or into is None else out + into


def _mean(seconds: float, count: int) -> float | None:
    return seconds / count if count > 0 else None
