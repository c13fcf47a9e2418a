"""Is it worth taking a GPU from its holder? One rule for every policy, answered with the numbers that decided.

Between trials of one job: the rival's gain (difference of scores) must beat the share of its remaining time that
the hand-over eats, plus the policy's hysteresis. Between jobs: the job that holds more GPUs gives one up, at most
once in JOB_TURN. A holder that cannot be frozen makes room by a requeue, which costs more and so happens more seldom;
one that cannot save either keeps its GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from podium_core.domain.snapshot import Costs, JobKey
from podium_core.planning.eta import remaining
from podium_core.planning.ranking import Standing
from podium_core.policies.base import STARVED
from podium_core.policies.min_time_slice import MIN_JOB_TIME_SLICE, smallest_time_slice


class Verdict(NamedTuple):
    """`say` makes the sentence: a plan compares many and shows few. A tuple, not a dataclass, for the same reason."""

    switch: bool
    reason: str
    say: Callable[[], str]
    protected: bool = False  # only the minimum run stands against the switch: look again when it is over

    @property
    def message(self) -> str:
        return self.say()


class CurrentHolder(NamedTuple):
    """Who has a GPU, by the order in force or in fact, and for how long (0 when it was only just ordered)."""

    standing: Standing
    held_for: float


def judge_switch(
    rival: Standing,
    incumbent: CurrentHolder,
    costs: Costs,
    held: Mapping[JobKey, int],
    pace: Callable[[], float | None],
) -> Verdict:
    """May `rival` take the GPU of `incumbent`? `pace`: the usual one of its job, where it has shown none. Constant time
    without that.
    """
    holder = incumbent.standing
    if not (holder.job.suspendable or holder.job.checkpointable):
        return Verdict(False, "HolderNotPreemptible", lambda: f"{holder.name} can neither be frozen nor save.")
    if rival.trial.pinned != holder.trial.pinned:
        if rival.trial.pinned:
            return Verdict(True, "Pinned", lambda: f"is pinned; {holder.name} is not.")
        return Verdict(False, "HolderPinned", lambda: f"{holder.name} is pinned.")
    if rival.job is not holder.job and rival.job.key != holder.job.key:
        return _between_jobs(rival, incumbent, costs, held)
    return _within_job(rival, incumbent, costs, pace)


def time_slice_of(incumbent: CurrentHolder, costs: Costs) -> float:
    """Seconds that it keeps its GPU before rivals of its job are looked at."""
    holder = incumbent.standing
    return _at_least(holder, holder.policy.time_slice(_own_cost(holder, costs)))


def job_time_slice(incumbent: CurrentHolder, costs: Costs) -> float:
    """The same for rivals of other jobs."""
    holder = incumbent.standing
    own = _own_cost(holder, costs)
    return _at_least(holder, max(MIN_JOB_TIME_SLICE, 10.0 * (own.suspend + own.resume)))


def _own_cost(holder: Standing, costs: Costs) -> Costs:
    """As `Costs.of`, from what was measured of this very trial if anything was."""
    if holder.job.suspendable and holder.trial.switch_seconds is not None:
        return Costs(holder.trial.switch_seconds, 0.0, costs.requeue)
    return costs.of(holder.job)


def _at_least(holder: Standing, floor: float) -> float:
    """One that makes room by a requeue is not suspended: what that took does not count."""
    return smallest_time_slice(holder.trial.switch_seconds, floor) if holder.job.suspendable else floor


def _between_jobs(rival: Standing, incumbent: CurrentHolder, costs: Costs, held: Mapping[JobKey, int]) -> Verdict:
    holder, turn = incumbent.standing, job_time_slice(incumbent, costs)
    theirs, ours = held.get(holder.job.key, 0), held.get(rival.job.key, 0)
    text = f"job {holder.job.key.name} holds {theirs} GPUs, job {rival.job.key.name} holds {ours}"
    if holder.ranked.level == STARVED:
        return Verdict(False, "StarvationGuard", lambda: f"{holder.name} keeps the GPU until its next value; {text}.")
    due = rival.ranked.level == STARVED  # what it takes so its job gives back
    if theirs <= ours and not due:
        return Verdict(False, "FairShareReached", lambda: f"{text}.")
    if incumbent.held_for < turn:
        return Verdict(False, "MinTimeSlice", lambda: f"{text}; a turn between jobs lasts at least {turn:g} s.", True)
    if due:
        return Verdict(True, rival.ranked.reason, lambda: f"{text}; it has waited longest for its next value.")
    return Verdict(True, "FairShare", lambda: f"{text}; after {turn:g} s one changes over.")


def _within_job(rival: Standing, incumbent: CurrentHolder, costs: Costs, pace: Callable[[], float | None]) -> Verdict:
    holder, theirs, ours = incumbent.standing, incumbent.standing.ranked, rival.ranked
    if ours.level > theirs.level:
        return Verdict(False, "RankedBehind", lambda: f"{holder.name} goes first ({theirs.reason}).")
    before, hysteresis, gain = ours.level < theirs.level, rival.policy.hysteresis, ours.score - theirs.score

    def share(left: float | None) -> float:
        """Of the rival's remaining time, that the hand-over eats."""
        dear = costs.of(holder.job)
        taken, span = dear.suspend + dear.resume, max(turn, left or 0.0)
        if span > 0.0:
            return taken / span
        return math.inf if taken > 0.0 else 0.0  # nothing is left, and no least turn stands in its place

    def text() -> str:
        if before:
            return f"{ours.reason} goes before {theirs.reason}"
        verb, cost = "beats" if enough else "does not beat", share(remaining(rival.job, rival.trial, pace))
        return f"gain {gain:.3f} {verb} cost {cost:.3f} + hysteresis {hysteresis:g}"

    turn = time_slice_of(incumbent, costs)
    enough = gain > hysteresis
    if enough and not (turn > 0.0 and gain > share(None) + hysteresis):  # what is left only makes the share smaller
        enough = gain > share(remaining(rival.job, rival.trial, pace)) + hysteresis
    if not (before or enough):
        return Verdict(False, "InsufficientGain", lambda: f"{text()}.")
    if incumbent.held_for < turn:
        return Verdict(
            False, "MinTimeSlice", lambda: f"{text()}, but a turn lasts at least {turn:g} s.", protected=True
        )
    return Verdict(True, ours.reason, lambda: f"{text()}.")
