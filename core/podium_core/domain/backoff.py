"""Exponential back-off: the one formula for every pause that grows from attempt to attempt."""

from __future__ import annotations

_MOST_DOUBLINGS = 64  # 2.0 ** failures would overflow


def backoff_pause(failures: int, first: float, longest: float) -> float:
    """Return the pause after `failures` attempts: `first`, then twice the pause before, at most `longest`.

    It is always the same for the same arguments, so plans and simulations can be repeated. Callers that could act in
    step, such as the components of a cluster, add jitter (`podium_cluster.backoff`).
    """
    return min(longest, first * 2.0 ** min(max(0, failures - 1), _MOST_DOUBLINGS))
