"""Launch-ahead: our policy. Four ideas, each of which can be switched off (the ablation does so).

1. late binding: a stage waits in one queue for all contexts, so none idles while another has a backlog;
2. launch ahead: each stream holds the next stage while it runs one, so the host's launching hides behind the device's
   work (the pool's `depth` 2); few stages share the device at once, so they disturb one another little;
3. shed: a job that has not begun and cannot be in time any more is dropped, so an overload costs the jobs that do not
   fit and no others (EDF alone makes all of them late); what a job needs is estimated from the times that recent ones
   took from their first launch to their end. The estimate is of a crowded device, so where no more jobs wait than there
   are streams (the end of a burst, not an overload) a doubtful job runs, unless it would be late even alone;
4. batch: where more stages wait than streams are free, the same stage of several jobs is launched as one; it saves
   launches, so it pays where one process launches for all contexts.
Ideas 2 and 4 put more stages on the way at once (streams x depth x batch), and a begun job waits for them at each of
its stages: take one of them, and no more than it needs (Little's law).
Order: tasks of high priority first, which are never shed; then EDF by the job's deadline; then the later stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from podium_realtime.model.task import Priority
from podium_realtime.scheduling.base import Board, Key, PlainPolicy
from podium_realtime.scheduling.sgprs import Sgprs
from podium_realtime.scheduling.work import ReadyStage


@dataclass(frozen=True, slots=True)
class LaunchAhead(PlainPolicy):
    """`batch`: most frames in one launch (1: none); `shed`, `bind_late`: the ideas above; `hope`: doubtful jobs run at
    the end of a burst; launch-ahead itself is the pool's depth.
    """

    bind_late: bool = True
    shed: bool = True
    hope: bool = True
    batch: int = 1
    name: ClassVar[str] = "ahead"

    def place(self, ready: ReadyStage, board: Board) -> int | None:
        return None if self.bind_late else Sgprs().place(ready, board)

    def key(self, ready: ReadyStage, now: float) -> Key:
        return (float(ready.job.task.priority), ready.job.deadline, float(ready.place))

    def sheds(self, ready: ReadyStage, waiting: int, board: Board) -> bool:
        task, left = ready.job.task, ready.job.deadline - board.now
        if not self.shed or task.priority is Priority.HIGH or board.span(task) <= left:
            return False
        burst_ends = waiting <= sum(context.spec.in_flight for context in board.contexts)
        return board.least(task) > left or not (self.hope and burst_ends)

    def mates(self, head: ReadyStage, others: Sequence[ReadyStage], context: int, board: Board) -> Sequence[ReadyStage]:
        free = sum(one.spec.in_flight * one.spec.depth - one.committed for one in board.contexts)
        return others[: max(0, min(self.batch - 1, len(others) + 1 - free))]
