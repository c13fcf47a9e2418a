"""Rule for taking a GPU from its holder: the same for all policies, with the numbers that decide.

Within a job, the rival's gain (difference of scores) must exceed the fraction of its remaining time that the switch
costs, plus the policy's hysteresis. Between jobs of different priority, the lower one gives its GPU up. Between others,
the job that holds more GPUs gives one up, at most once in a time slice; in a queue, that is the namespace with more
GPUs. A holder that cannot be suspended is requeued, which costs more and so happens less often. One that cannot
checkpoint either keeps its GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from podium_core.domain.snapshot import Costs
from podium_core.planning.eta import remaining
from podium_core.planning.held_gpus import HeldGpus
from podium_core.planning.ranking import Standing
from podium_core.policies.base import STARVED
from podium_core.policies.min_time_slice import MIN_JOB_TIME_SLICE, smallest_time_slice


class Verdict(NamedTuple):
    """Decision about a switch.

    `say` builds the sentence: a plan compares many trials and shows few. A tuple for the same reason.
    """

    switch: bool
    reason: str
    say: Callable[[], str]
    protected: bool = False  # only the minimum time slice prevents the switch: decide again when it is over
    gain: float | None = None  # difference of scores, if a finite one is the reason for the switch

    @property
    def message(self) -> str:
        """Return the sentence."""
        return self.say()


class CurrentHolder(NamedTuple):
    """The trial that has a GPU, by its run queue or in fact.

    `held_for`: seconds, 0 if it was only just decided. `held_by_job`: seconds of its job's tenure, at least as
    long. Time slices between jobs and queues count these.
    """

    standing: Standing
    held_for: float
    held_by_job: float


def judge_switch(
    rival: Standing,
    current: CurrentHolder,
    costs: Costs,
    held: HeldGpus,
    pace: Callable[[], float | None],
) -> Verdict:
    """Decide whether `rival` may take the GPU of `current`. Constant time without `pace`.

    `pace`: returns the typical pace of the rival's job, used if the rival has none.
    """
    holder = current.standing
    if not (holder.job.abilities.suspendable or holder.job.abilities.checkpointable):
        return Verdict(False, "HolderNotPreemptible", lambda: f"{holder.name} can neither be suspended nor checkpoint.")
    if rival.trial.intent.pinned != holder.trial.intent.pinned:
        if rival.trial.intent.pinned:
            return Verdict(True, "Pinned", lambda: f"is pinned; {holder.name} is not.")
        return Verdict(False, "HolderPinned", lambda: f"{holder.name} is pinned.")
    if rival.job.gpus.priority != holder.job.gpus.priority:
        return _between_priorities(rival, current, costs)
    if rival.job is not holder.job and rival.job.key != holder.job.key:
        return _between_jobs(rival, current, costs, held)
    return _within_job(rival, current, costs, pace)


def time_slice_of(current: CurrentHolder, costs: Costs) -> float:
    """Return the seconds for which the holder keeps its GPU against rivals of its job."""
    holder = current.standing
    return _at_least(holder, holder.policy.time_slice(_own_cost(holder, costs)))


def job_time_slice(current: CurrentHolder, costs: Costs) -> float:
    """Return the seconds for which the holder keeps its GPU against rivals of other jobs."""
    holder = current.standing
    own = _own_cost(holder, costs)
    return _at_least(holder, max(MIN_JOB_TIME_SLICE, 10.0 * (own.suspend + own.resume)))


def _own_cost(holder: Standing, costs: Costs) -> Costs:
    """Return `Costs.of`, with the measured switch time of this trial if there is one."""
    if holder.job.abilities.suspendable and holder.trial.usage.switch_seconds is not None:
        return Costs(holder.trial.usage.switch_seconds, 0.0, costs.requeue)
    return costs.of(holder.job)


def _at_least(holder: Standing, floor: float) -> float:
    """Return the minimum time slice.

    A trial that is requeued is not suspended, so its switch time does not count.
    """
    return smallest_time_slice(holder.trial.usage.switch_seconds, floor) if holder.job.abilities.suspendable else floor


def _between_jobs(rival: Standing, current: CurrentHolder, costs: Costs, held: HeldGpus) -> Verdict:
    holder, time_slice = current.standing, job_time_slice(current, costs)
    holder_side, rival_side = held.parties(holder.job.key, rival.job.key)
    text = f"{holder_side.name} holds {holder_side.gpus} GPUs, {rival_side.name} holds {rival_side.gpus}"
    if holder.ranked.level == STARVED:
        return Verdict(False, "StarvationGuard", lambda: f"{holder.name} keeps the GPU until its next value; {text}.")
    waits_longest = rival.ranked.level == STARVED  # its job gives back what it takes this way
    if holder_side.gpus <= rival_side.gpus and not waits_longest:
        return Verdict(False, "FairShareReached", lambda: f"{text}.")
    if current.held_by_job < time_slice:
        return Verdict(
            False, "MinTimeSlice", lambda: f"{text}; a time slice between jobs lasts at least {time_slice:g} s.", True
        )
    if waits_longest:
        return Verdict(True, rival.ranked.reason, lambda: f"{text}; it has waited longest for its next value.")
    return Verdict(True, "FairShare", lambda: f"{text}; after {time_slice:g} s one GPU changes hands.")


def _between_priorities(rival: Standing, current: CurrentHolder, costs: Costs) -> Verdict:
    holder, time_slice = current.standing, job_time_slice(current, costs)
    holder_side, rival_side = holder.job.gpus.priority, rival.job.gpus.priority
    text = f"job {holder.job.key.name} has priority {holder_side}, job {rival.job.key.name} has {rival_side}"
    if rival_side < holder_side:
        return Verdict(False, "PriorityTooLow", lambda: f"{text}.")
    if current.held_by_job < time_slice:
        return Verdict(
            False, "MinTimeSlice", lambda: f"{text}; a time slice between jobs lasts at least {time_slice:g} s.", True
        )
    return Verdict(True, "HigherPriority", lambda: f"{text}.")


def _within_job(rival: Standing, current: CurrentHolder, costs: Costs, pace: Callable[[], float | None]) -> Verdict:
    holder, holder_side, rival_side = current.standing, current.standing.ranked, rival.ranked
    if rival_side.level > holder_side.level:
        return Verdict(False, "RankedBehind", lambda: f"{holder.name} goes first ({holder_side.reason}).")
    before, hysteresis, gain = (
        rival_side.level < holder_side.level,
        rival.policy.hysteresis,
        rival_side.score - holder_side.score,
    )

    def cost_fraction(left: float | None) -> float:
        """Return the fraction of the rival's remaining time that the switch costs."""
        switch = costs.of(holder.job)
        spent, span = switch.suspend + switch.resume, max(time_slice, left or 0.0)
        if span > 0.0:
            return spent / span
        return math.inf if spent > 0.0 else 0.0  # no time is left, and there is no minimum time slice

    def text() -> str:
        if before:
            return f"{rival_side.reason} goes before {holder_side.reason}"
        verb, cost = "beats" if enough else "does not beat", cost_fraction(remaining(rival.job, rival.trial, pace))
        return f"gain {gain:.3f} {verb} cost {cost:.3f} + hysteresis {hysteresis:g}"

    time_slice = time_slice_of(current, costs)
    enough = gain > hysteresis
    if enough and not (
        time_slice > 0.0 and gain > cost_fraction(None) + hysteresis
    ):  # remaining time only reduces the fraction
        enough = gain > cost_fraction(remaining(rival.job, rival.trial, pace)) + hysteresis
    if not (before or enough):
        return Verdict(False, "InsufficientGain", lambda: f"{text()}.")
    if current.held_for < time_slice:
        return Verdict(
            False,
            "MinTimeSlice",
            lambda: f"{text()}, but a time slice lasts at least {time_slice:g} s.",
            protected=True,
        )
    shown = None if before or math.isinf(gain) else round(gain, 4)
    return Verdict(True, rival_side.reason, lambda: f"{text()}.", gain=shown)
