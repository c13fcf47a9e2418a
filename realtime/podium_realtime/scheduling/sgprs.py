"""SGPRS (Babaei and Chantem, arXiv 2406.09425): stages go to a context that meets their virtual deadline.

Choice of the context:
(a) the first idle context in which the stage meets its virtual deadline;
(b) otherwise the idle context with the earliest finish;
(c) otherwise the context with the earliest finish. The finish is now + the occupied times of the context's backlog and
    of the stage.

Order within a context: high level (the last two stages of a network), medium (an earlier stage was late), low; EDF by
virtual deadline within a level. The paper promotes late stages to the medium level, the authors' code does not;
`promote` selects either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from podium_realtime.scheduling.jobs import ReadyStage
from podium_realtime.scheduling.policy import BasePolicy, ContextState, PriorityKey, SchedulerState
from podium_realtime.scheduling.pool import StreamPriority

HIGH, MEDIUM, LOW = 0.0, 1.0, 2.0


@dataclass(frozen=True, slots=True)
class ContextCandidate:
    """A context that may run the stage, and when the stage would finish there."""

    number: int
    idle: bool
    finish: float


def choose_context(candidates: Sequence[ContextCandidate], deadline: float) -> tuple[int, str]:
    """Return the number of the chosen context and the rule (a, b or c) that chose it.

    Ties go to the first candidate. O(contexts).
    """
    idle = [candidate for candidate in candidates if candidate.idle]
    for candidate in idle:
        if candidate.finish <= deadline:
            return candidate.number, "a"
    best = min(idle or candidates, key=lambda candidate: candidate.finish)
    return best.number, "b" if idle else "c"


def backlog(context: ContextState, state: SchedulerState) -> float:
    """Return the seconds of occupied time that are committed to or queued for a context."""
    queued = sum(state.times.stage_time(ready, context.spec.number) for ready in context.queued)
    return queued + sum(max(0.0, batch.expected_finish - state.now) for batch in context.batches())


@dataclass(frozen=True, slots=True)
class Sgprs(BasePolicy):
    """The SGPRS policy.

    `high_stages`: number of stages at the end of a network that use high-priority streams.
    """

    promote: bool = True
    high_stages: int = 2
    name: ClassVar[str] = "sgprs"

    def assign_context(self, ready: ReadyStage, state: SchedulerState) -> int | None:
        """Return the context that rules (a) to (c) choose."""
        candidates = []
        for context in state.contexts:
            own = state.times.stage_time(ready, context.spec.number)
            idle = context.is_idle(self.stream_priority(ready))
            wait = 0.0 if idle else backlog(context, state)
            candidates.append(ContextCandidate(context.spec.number, idle, state.now + wait + own))
        return choose_context(candidates, ready.deadline)[0]

    def priority_key(self, ready: ReadyStage, now: float) -> PriorityKey:
        """Order by level, then by virtual deadline (EDF)."""
        if self.stream_priority(ready) is StreamPriority.HIGH:
            level = HIGH
        else:
            level = MEDIUM if self.promote and (ready.late or now > ready.deadline) else LOW
        return (level, ready.deadline)

    def stream_priority(self, ready: ReadyStage) -> StreamPriority:
        """Return the high priority for the last stages of a network."""
        return StreamPriority.HIGH if ready.stages_after < self.high_stages else StreamPriority.LOW
