"""SGPRS (Babaei and Chantem, arXiv 2406.09425): stages go to the context that still meets their virtual deadline.

Context rule: (a) the first idle context that meets the stage's deadline; else (b) the idle context with the earliest
finish; else (c) the earliest finish over all, where finish = now + the occupied times of what it has and of the stage.
Order in a context: high (the last two stages of a network), medium (a predecessor was late), low; then EDF by virtual
deadline. The promotion line is in the paper and disabled in the authors' code; `promote` has both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from podium_realtime.scheduling.base import Board, ContextState, Key, PlainPolicy
from podium_realtime.scheduling.pool import StreamPriority
from podium_realtime.scheduling.work import ReadyStage

HIGH, MEDIUM, LOW = 0.0, 1.0, 2.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A context as the rule sees it."""

    number: int
    idle: bool
    finish: float


def choose_context(candidates: Sequence[Candidate], deadline: float) -> tuple[int, str]:
    """The context's number and which of the rules (a, b, c) chose it. Ties go to the first. O(contexts)."""
    idle = [candidate for candidate in candidates if candidate.idle]
    for candidate in idle:
        if candidate.finish <= deadline:
            return candidate.number, "a"
    best = min(idle or candidates, key=lambda candidate: candidate.finish)
    return best.number, "b" if idle else "c"


def backlog(context: ContextState, board: Board) -> float:
    """Seconds of occupied time that are committed to or queued for a context."""
    queued = sum(board.expected(ready, context.spec.number) for ready in context.queued)
    return queued + sum(max(0.0, work.expected - board.now) for work in context.works())


@dataclass(frozen=True, slots=True)
class Sgprs(PlainPolicy):
    """`high_stages`: how many stages at the end of a network go to high-priority streams."""

    promote: bool = True
    high_stages: int = 2
    name: ClassVar[str] = "sgprs"

    def place(self, ready: ReadyStage, board: Board) -> int | None:
        candidates = []
        for context in board.contexts:
            own, idle = board.expected(ready, context.spec.number), context.is_idle(self.stream(ready))
            wait = 0.0 if idle else backlog(context, board)
            candidates.append(Candidate(context.spec.number, idle, board.now + wait + own))
        return choose_context(candidates, ready.deadline)[0]

    def key(self, ready: ReadyStage, now: float) -> Key:
        if self.stream(ready) is StreamPriority.HIGH:
            level = HIGH
        else:
            level = MEDIUM if self.promote and (ready.late or now > ready.deadline) else LOW
        return (level, ready.deadline)

    def stream(self, ready: ReadyStage) -> StreamPriority:
        return StreamPriority.HIGH if ready.place < self.high_stages else StreamPriority.LOW
