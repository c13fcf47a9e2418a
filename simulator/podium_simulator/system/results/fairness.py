"""Fairness of jobs that shared GPUs: GPU time by user, and Jain's index. Pure.

A user is a namespace. `arrivals` calls it; docs/reference/simulation-tables.md repeats the definitions.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from podium_simulator.system.results.outcome import JobEnd, Outcome

_EQUAL: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class UserShare:
    """GPU time of one user.

    `share`: share of the GPU time of all users. `of_equal`: GPU time that the user held while other users had
    unfinished jobs, over an equal share of the cluster for that time (1 = exactly that); None: no other user ever had.
    For queues, the share is that of their weights.
    """

    user: str
    gpu_seconds: float
    share: float
    of_equal: float | None


def jain_index(values: Sequence[float]) -> float | None:
    """Return (sum x)^2 / (n * sum x^2): 1 = all equal, 1/n = one has everything.

    None for no values, or where all are 0.
    """
    squares = math.fsum(x * x for x in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares else None


def user_shares(outcome: Outcome, weights: Mapping[str, float] = _EQUAL) -> tuple[UserShare, ...]:
    """Return the share of each user, by name. O((spans + jobs) * log jobs + users * jobs).

    `weights`: of users, if they are queues; 1 for the others.
    """
    users = sorted({end.job.namespace for end in outcome.jobs})
    held, contested = dict.fromkeys(users, 0.0), dict.fromkeys(users, 0.0)
    rivalry = _Rivalry(outcome.jobs, len(outcome.gpus), weights)
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
    """Periods in which jobs of at least two users were unfinished, and the GPU-seconds of an equal share there."""

    def __init__(self, jobs: Sequence[JobEnd], gpus: int, weights: Mapping[str, float]) -> None:
        self._times = sorted({time for end in jobs for time in (end.arrived, end.ended)})
        self._contested = [0.0]  # seconds until each of these times
        self._due: dict[str, float] = {}
        scenario_of: dict[str, int] = {}
        changes = sorted(
            [(e.arrived, 1, e.job.namespace) for e in jobs] + [(e.ended, -1, e.job.namespace) for e in jobs]
        )
        at = 0
        for time, after in zip(self._times, self._times[1:], strict=False):
            while at < len(changes) and changes[at][0] <= time:
                _, change, user = changes[at]
                scenario_of[user] = scenario_of.get(user, 0) + change
                at += 1
            rivals = [user for user, unfinished in scenario_of.items() if unfinished]
            lasts = after - time if len(rivals) > 1 else 0.0
            self._contested.append(self._contested[-1] + lasts)
            everything = math.fsum(weights.get(user, 1.0) for user in rivals)
            for user in rivals:
                mine = weights.get(user, 1.0) / everything
                self._due[user] = self._due.get(user, 0.0) + lasts * gpus * mine

    def until(self, time: float) -> float:
        """Return the contested seconds before this time."""
        place = bisect_right(self._times, time) - 1
        if place < 0:
            return 0.0
        if place == len(self._times) - 1:
            return self._contested[-1]
        rest = time - self._times[place] if self._contested[place + 1] > self._contested[place] else 0.0
        return self._contested[place] + rest

    def equal_share(self, user: str) -> float:
        """Return the user's share: the cluster divided by the users present at each contested moment, by weight."""
        return self._due.get(user, 0.0)
