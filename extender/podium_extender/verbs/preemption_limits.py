"""What keeps preemption from becoming a storm: an answer stands until its room is made, trials that have only just
begun go last, and so many trials a minute and no more. Pure; `preempt` asks it, with the time.

A "no" here parks the pod until some pod of the cluster is deleted (shared extender-proof, d), so there are only two:
one while the pod's own victims are still leaving, one when as many trials as are allowed in a minute were told to go.
The end of those trials wakes it, or `parked` does. Kept in memory: an extender that starts anew has evicted nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from podium_core.placement.victims import Eviction, Occupant
from podium_core.placement.views import CLOCK_SKEW, NodeRefusal

MINUTE = 60.0
LONGEST_GRACE = 3600.0  # who takes longer to end is not waited for
OVERDUE_SECONDS = 60.0  # a pod that is still there so long after its grace period is on a node that is lost
TAKEN_UP_SECONDS = 5.0  # from our answer until kube-scheduler must have told the victims to go


@dataclass(frozen=True, slots=True)
class Limits:
    """`per_minute`: trials that are told to go in any 60 s. `minimum_run`: seconds for which a trial that has begun is
    spared while anybody else can go instead.
    """

    per_minute: int = 60
    minimum_run: float = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """That these pods of this node go, for one preemptor."""

    at: float
    node: str
    victims: tuple[str, ...]
    violations: int = 0  # of PodDisruptionBudgets


@dataclass(frozen=True, slots=True)
class History:
    """The last answer to each preemptor (by uid) that still matters, and when how many were told to go."""

    answers: Mapping[str, Answer] = field(default_factory=dict)
    told: tuple[tuple[float, int], ...] = ()


@dataclass(slots=True)
class Guard:
    """The limits of one extender, and what it has answered."""

    limits: Limits = field(default_factory=Limits)
    history: History = field(default_factory=History)


def spare(occupant: Occupant, now: float, limits: Limits) -> Occupant:
    """Marked as young if it has only just begun; one that waits at its gate has not, and loses nothing."""
    began = occupant.pod.started_at
    young = began is not None and -CLOCK_SKEW <= now - began < limits.minimum_run
    return replace(occupant, just_started=young) if young else occupant


def standing(
    history: History, preemptor: str, on_node: Callable[[str], Mapping[str, Occupant]], now: float
) -> Answer | None:
    """The answer that this pod was given before, with the victims that are still there; None: it may be given another.

    Victims that were not told to go in time will not be: the scheduler did not take the answer up. Those that were told
    and do not end when their time is over make no room either.
    """
    answer = history.answers.get(preemptor)
    if answer is None:
        return None
    known = on_node(answer.node)
    there = tuple(uid for uid in answer.victims if uid in known)
    going = any(_going(known[uid], now) for uid in there)
    if not there or not (going or now - answer.at < TAKEN_UP_SECONDS):
        return None
    return replace(answer, victims=there)


def _going(victim: Occupant, now: float) -> bool:
    pod = victim.pod
    return pod.terminating and (pod.deletion_deadline is None or now < pod.deletion_deadline + OVERDUE_SECONDS)


def over_budget(history: History, eviction: Eviction, now: float, limits: Limits) -> NodeRefusal | None:
    """A set that is larger than the limit may go when nobody went in the last minute."""
    wanted = len(eviction.victims)
    free_at = budget_free_at(history, wanted, now, limits)
    if free_at <= now:
        return None
    used = sum(count for at, count in history.told if now - at < MINUTE)
    return NodeRefusal(
        "EvictionLimitReached",
        f"{used} trials were told to go in the last minute, and {wanted} more would be over the limit of "
        f"{limits.per_minute} (PODIUM_EVICTIONS_PER_MINUTE); again in {free_at - now:.0f} s.",
    )


def budget_free_at(history: History, wanted: int, now: float, limits: Limits) -> float:
    """When so many may go, if nobody else does until then; `now` where they may."""
    recent = [(at, count) for at, count in history.told if now - at < MINUTE]
    left, free_at = sum(count for _, count in recent), now
    for at, count in recent:
        if left > 0 and left + wanted > limits.per_minute:
            left, free_at = left - count, at + MINUTE
    return free_at


def remember(history: History, preemptor: str, eviction: Eviction, now: float) -> History:
    """With this answer; what is over is forgotten: answers of which nothing can be there still, minutes that passed."""
    answers = {uid: one for uid, one in history.answers.items() if now - one.at < LONGEST_GRACE}
    answers[preemptor] = Answer(now, eviction.node, tuple(one.pod.uid for one in eviction.victims), eviction.violations)
    told = (*((at, count) for at, count in history.told if now - at < MINUTE), (now, len(eviction.victims)))
    return History(answers, told)
