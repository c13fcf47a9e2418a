"""Smallest time slice of a trial, from the measured cost of its own suspensions. Pure.

`planning.switching` and `starvation_guard` use it. A trial whose memory is moved at 5 GB/s and one that is only frozen
differ by three orders of magnitude. One mean over all trials would switch the first too often and the second too
rarely.
"""

from __future__ import annotations

MAX_SWITCH_SHARE = 0.03  # largest share of the time between two switches that the switches may take
MIN_JOB_TIME_SLICE = 30.0  # seconds: smallest time slice where several jobs share too few GPUs


def smallest_time_slice(switch: float | None, least: float) -> float:
    """Return the smallest number of seconds between two switches of a trial.

    `switch`: seconds of one suspension and resumption of the trial; None: not measured yet. `least`: what its policy
    asks for.
    """
    return least if switch is None else max(least, switch / MAX_SWITCH_SHARE)
