"""Limits of preemption: pending responses, trials that started recently, and a maximum of preemptions per minute.

A response without victims makes kube-scheduler wait until any pod is deleted, for up to five minutes. Therefore only
two limits lead to such a response. One holds while the pod's own victims are still terminating, the other when the
maximum of the last minute is reached. The end of those trials, or the back-off queue, triggers the retry. The state is
kept in memory, so a restarted extender knows no preemptions. All functions are pure; the caller passes the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from podium_core.placement.victims import Eviction, Occupant
from podium_core.placement.views import CLOCK_SKEW, NodeRefusal

MINUTE = 60.0
MAX_GRACE_SECONDS = 3600.0  # a victim that takes longer to end is not waited for
OVERDUE_SECONDS = 60.0  # a pod that still exists this long after its grace period is on a lost node
DELETION_SECONDS = 5.0  # from a response until kube-scheduler must have deleted the victims


@dataclass(frozen=True, slots=True)
class PreemptionLimits:
    """Limits of the extender's settings.

    `per_minute` is the maximum of trials preempted in any 60 s. A trial that started less than `minimum_run` seconds
    ago is preempted only if no other trial can be.
    """

    per_minute: int = 60
    minimum_run: float = 60.0


@dataclass(frozen=True, slots=True)
class PreemptionAnswer:
    """A response: the victims (uids) on one node for one preemptor."""

    at: float
    node: str
    victims: tuple[str, ...]
    violations: int = 0  # of PodDisruptionBudgets


@dataclass(frozen=True, slots=True)
class PreemptionHistory:
    """The responses and evictions that influence later responses.

    `answers`: the last relevant response to each preemptor (by uid). `evictions`: time and number of victims of each
    response in the last minute.
    """

    answers: Mapping[str, PreemptionAnswer] = field(default_factory=dict)
    evictions: tuple[tuple[float, int], ...] = ()


@dataclass(slots=True)
class PreemptionState:
    """The limits of one extender and the history of its responses."""

    limits: PreemptionLimits = field(default_factory=PreemptionLimits)
    history: PreemptionHistory = field(default_factory=PreemptionHistory)


def mark_just_started(occupant: Occupant, now: float, limits: PreemptionLimits) -> Occupant:
    """Mark the occupant if it started recently.

    A trial that waits at its gate has not started and loses nothing.
    """
    began = occupant.pod.started_at
    young = began is not None and -CLOCK_SKEW <= now - began < limits.minimum_run
    return replace(occupant, just_started=young) if young else occupant


def pending_answer(
    history: PreemptionHistory, preemptor: str, on_node: Callable[[str], Mapping[str, Occupant]], now: float
) -> PreemptionAnswer | None:
    """Return the earlier response to this pod with its remaining victims, if it still applies.

    None means that the pod may get another response. If kube-scheduler did not delete the victims in time, it did not
    use the response. Victims that still exist after their grace period do not free capacity either.
    """
    answer = history.answers.get(preemptor)
    if answer is None:
        return None
    known = on_node(answer.node)
    remaining = tuple(uid for uid in answer.victims if uid in known)
    terminating = any(_terminating(known[uid], now) for uid in remaining)
    if not remaining or not (terminating or now - answer.at < DELETION_SECONDS):
        return None
    return replace(answer, victims=remaining)


def _terminating(victim: Occupant, now: float) -> bool:
    pod = victim.pod
    return pod.terminating and (pod.deletion_deadline is None or now < pod.deletion_deadline + OVERDUE_SECONDS)


def limit_refusal(
    history: PreemptionHistory, eviction: Eviction, now: float, limits: PreemptionLimits
) -> NodeRefusal | None:
    """Return why the maximum per minute forbids the eviction; None if it is allowed.

    A set of victims that is larger than the maximum is allowed if there were no victims in the last minute.
    """
    wanted = len(eviction.victims)
    allowed_at = limit_allows_at(history, wanted, now, limits)
    if allowed_at <= now:
        return None
    used = sum(count for at, count in history.evictions if now - at < MINUTE)
    return NodeRefusal(
        "EvictionLimitReached",
        f"{used} trials were preempted in the last minute, and {wanted} more would exceed the limit of "
        f"{limits.per_minute} (PODIUM_EVICTIONS_PER_MINUTE); retry in {allowed_at - now:.0f} s.",
    )


def limit_allows_at(history: PreemptionHistory, wanted: int, now: float, limits: PreemptionLimits) -> float:
    """Return when `wanted` victims are allowed if there are no others until then, at least `now`."""
    recent = [(at, count) for at, count in history.evictions if now - at < MINUTE]
    used, allowed_at = sum(count for _, count in recent), now
    for at, count in recent:
        if used > 0 and used + wanted > limits.per_minute:
            used, allowed_at = used - count, at + MINUTE
    return allowed_at


def record_answer(history: PreemptionHistory, preemptor: str, eviction: Eviction, now: float) -> PreemptionHistory:
    """Return the history with this response, without entries that are no longer relevant."""
    answers = {uid: one for uid, one in history.answers.items() if now - one.at < MAX_GRACE_SECONDS}
    victims = tuple(victim.pod.uid for victim in eviction.victims)
    answers[preemptor] = PreemptionAnswer(now, eviction.node, victims, eviction.violations)
    recent = ((at, count) for at, count in history.evictions if now - at < MINUTE)
    return PreemptionHistory(answers, (*recent, (now, len(eviction.victims))))
