"""Times of log lines. The container runtime writes them by the wall clock of the node, which may be wrong or be set.

A curve needs times that agree with those of other nodes and never decrease. Pure; the trial writer uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from podium_agent.observe.logs.cri import LogLine

TOLERANCE = 2.0  # seconds by which the node's clock may differ from the API server's before its times are corrected


def bounded(lines: Sequence[LogLine], previous: float, now: float, ahead: float) -> tuple[LogLine, ...]:
    """Return the lines with times that never decrease, from `previous` on, and are never after `now`.

    `previous`: the time of the line before. `ahead`: seconds by which the node's clock is ahead of the API server's, to
    which `previous` and `now` belong.
    """
    correction = ahead if abs(ahead) > TOLERANCE else 0.0
    result, last = [], min(previous, now)
    for line in lines:
        last = min(max(line.time - correction, last), now)
        result.append(line if line.time == last else replace(line, time=last))
    return tuple(result)
