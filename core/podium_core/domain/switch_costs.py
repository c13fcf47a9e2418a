"""What suspensions and resumptions take, as means of what was measured. Pure; called by the operator and the simulator.

Who is suspended now has not come back yet: each way's mean is over those that went it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from podium_core.domain.snapshot import Costs


class SwitchTotals(NamedTuple):
    """How often, and how many seconds in all: out, and in again."""

    suspended: int = 0
    suspend_seconds: float = 0.0
    resumed: int = 0
    resume_seconds: float = 0.0


def mean_costs(trials: Iterable[SwitchTotals], requeue: float | None = None) -> Costs:
    """Of all trials. The default stands for what was not measured yet; `requeue`: None: that was not."""
    ways, usual = list(trials), Costs()
    out = _mean(sum([one.suspend_seconds for one in ways]), sum([one.suspended for one in ways]))
    back = _mean(sum([one.resume_seconds for one in ways]), sum([one.resumed for one in ways]))
    return Costs(
        usual.suspend if out is None else out,
        usual.resume if back is None else back,
        usual.requeue if requeue is None else requeue,
    )


def mean_switch(recent: Sequence[tuple[float, float | None]]) -> float | None:
    """Seconds out and in again of one trial, from those of its last suspensions (in: None: it is not back); None until
    it came back once.
    """
    back = [seconds for _, seconds in recent if seconds is not None]
    out, into = _mean(sum([seconds for seconds, _ in recent]), len(recent)), _mean(sum(back), len(back))
    return None if out is None or into is None else out + into


def _mean(seconds: float, count: int) -> float | None:
    return seconds / count if count > 0 else None
