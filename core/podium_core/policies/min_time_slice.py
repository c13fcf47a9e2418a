"""How long a trial keeps its GPU at the least, from what its own suspensions were measured to cost. Pure; used by
`planning.switching` and by `floor`.

A trial whose memory is moved at 5 GB/s and one that is only frozen are three orders of magnitude apart: one mean over
all would let the one switch too often and the other too seldom.
"""

from __future__ import annotations

OVERHEAD = 0.03  # of the time between two switches may go into them
JOB_TURN = 30.0  # seconds: jobs that share too few GPUs take turns this long at least


def shortest_run(switch: float | None, floor: float) -> float:
    """Seconds between two switches of a trial. `switch`: seconds that one suspension and resumption of it take, None:
    not measured yet; `floor`: what its policy asks for anyway.
    """
    return floor if switch is None else max(floor, switch / OVERHEAD)
