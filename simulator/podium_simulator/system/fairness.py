"""How jobs that ran side by side shared the GPUs: GPU time by user, against an equal share, and Jain's index of it.

A user is a namespace. Pure; called by `arrivals`, definitions repeated in docs/reference/simulation-tables.md.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from podium_simulator.system.outcome import JobEnd, Outcome


@dataclass(frozen=True, slots=True)
class UserShare:
    """`share`: of the GPU time of all users. `of_equal`: GPU time that the user held while others had unfinished jobs,
    too, over an equal share of the cluster for that time (1 = just that); None: nobody else ever had.
    """

    user: str
    gpu_seconds: float
    share: float
    of_equal: float | None


def jain(values: Sequence[float]) -> float | None:
    """(sum x)^2 / (n * sum x^2): 1 = all the same, 1/n = one has everything. None: of nobody, or all have nothing."""
    squares = math.fsum(x * x for x in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares else None


def shares(outcome: Outcome) -> tuple[UserShare, ...]:
    """One a user, by name. O((spans + jobs) * log jobs + users * jobs)."""
    users = sorted({end.job.namespace for end in outcome.jobs})
    held, contested = dict.fromkeys(users, 0.0), dict.fromkeys(users, 0.0)
    rivalry = _Rivalry(outcome.jobs, len(outcome.gpus))
    for span in outcome.spans:
        held[span.trial.namespace] += span.seconds
        contested[span.trial.namespace] += rivalry.until(span.end) - rivalry.until(span.start)
    everything = math.fsum(held.values())
    return tuple(
        UserShare(
            user=user,
            gpu_seconds=held[user],
            share=held[user] / everything if everything else 0.0,
            of_equal=contested[user] / due if (due := rivalry.equal_share(user)) else None,
        )
        for user in users
    )


class _Rivalry:
    """When jobs of two users or more were unfinished at once, and the GPU seconds that an equal share then was."""

    def __init__(self, jobs: Sequence[JobEnd], gpus: int) -> None:
        self._times = sorted({time for end in jobs for time in (end.arrived, end.ended)})
        self._contested = [0.0]  # seconds until each of these times
        self._due: dict[str, float] = {}
        there: dict[str, int] = {}
        changes = sorted(
            [(e.arrived, 1, e.job.namespace) for e in jobs] + [(e.ended, -1, e.job.namespace) for e in jobs]
        )
        at = 0
        for time, after in zip(self._times, self._times[1:], strict=False):
            while at < len(changes) and changes[at][0] <= time:
                _, change, user = changes[at]
                there[user] = there.get(user, 0) + change
                at += 1
            rivals = [user for user, unfinished in there.items() if unfinished]
            lasts = after - time if len(rivals) > 1 else 0.0
            self._contested.append(self._contested[-1] + lasts)
            for user in rivals:
                self._due[user] = self._due.get(user, 0.0) + lasts * gpus / len(rivals)

    def until(self, time: float) -> float:
        """Contested seconds before this time."""
        place = bisect_right(self._times, time) - 1
        if place < 0:
            return 0.0
        if place == len(self._times) - 1:
            return self._contested[-1]
        rest = time - self._times[place] if self._contested[place + 1] > self._contested[place] else 0.0
        return self._contested[place] + rest

    def equal_share(self, user: str) -> float:
        """GPU seconds: the cluster divided by the users that were there at each contested moment."""
        return self._due.get(user, 0.0)
