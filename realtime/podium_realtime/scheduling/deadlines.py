"""Virtual deadlines: each stage gets a share of the job's time, so that lateness shows before the last stage.

SGPRS: the share of 0.99 x the deadline is proportional to the stage's occupied time in one reference context, and
shares add up along the chain. For a graph, time adds up along the longest path. Called by the dispatcher, once a task.
"""

from __future__ import annotations

from collections.abc import Sequence

from podium_realtime.model.network import Network

USABLE = 0.99  # of the relative deadline; the rest is for the host


def virtual_deadlines(network: Network, seconds: Sequence[float], deadline: float) -> tuple[float, ...]:
    """Relative virtual deadline of each stage, in seconds after the release.

    `seconds`: each stage's time in the reference context; `deadline`: relative, of the whole job. For every edge u -> v
    the deadline of u is before that of v by v's share; a stage on no longest path gets the early end of its slack.
    O(stages + edges).
    """
    ends: list[float] = []
    for stage, own in zip(network.stages, seconds, strict=True):
        ends.append(own + max((ends[before] for before in stage.after), default=0.0))
    longest = max(ends)
    return tuple(USABLE * deadline * end / longest for end in ends)
