"""DARIS (arXiv 2504.08795): fixed priority levels, recent maximum times, admission of low-priority jobs, migration.

Eight levels from three questions: is the task of high priority, is this its last stage, was a stage before it late;
EDF within a level. A job runs in one context. High-priority tasks have a home context and are always admitted. A
low-priority job is admitted to its home if the context's utilisation stays within its streams, else it migrates to the
least used context where it fits, else it is refused. Execution times are the maximum of the recent ones, not WCETs.
Source: the paper's method as collected in the project's research notes; the code is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from podium_realtime.model.task import Priority
from podium_realtime.scheduling.base import Board, Key, PlainPolicy, Verdict
from podium_realtime.scheduling.work import Job, ReadyStage


@dataclass(frozen=True, slots=True)
class Daris(PlainPolicy):
    """`limit`: utilisation allowed per stream of a context."""

    limit: float = 1.0
    name: ClassVar[str] = "daris"
    recent: ClassVar[bool] = True

    def admit(self, job: Job, board: Board) -> Verdict:
        home = _home(job, board)
        if job.task.priority is Priority.HIGH:
            return Verdict(True, "HighPriority", "tasks of high priority are always admitted.", home)
        used = [self._used(number, board) for number in range(len(board.contexts))]
        adds = [board.network_time(job.task, number) * job.task.rate for number in range(len(used))]
        order = [home, *sorted((n for n in range(len(used)) if n != home), key=lambda n: (used[n], n))]
        for number in order:
            allowed = self.limit * board.contexts[number].spec.in_flight
            if used[number] + adds[number] <= allowed:
                code = "Admitted" if number == home else "Migrated"
                told = f"context {number} is used {used[number]:.3f} of {allowed:g}, the job adds {adds[number]:.3f}."
                return Verdict(True, code, told, number)
        least = min(range(len(used)), key=lambda n: (used[n], n))
        allowed = self.limit * board.contexts[least].spec.in_flight
        where = f"context {least}, the least used: {used[least]:.3f} of {allowed:g}"
        told = f"task {job.task.name} adds {adds[least]:.3f} to {where}."
        return Verdict(False, "Overloaded", told)

    def place(self, ready: ReadyStage, board: Board) -> int | None:
        return ready.job.home

    def key(self, ready: ReadyStage, now: float) -> Key:
        return (float(level(ready)), ready.deadline)

    def _used(self, context: int, board: Board) -> float:
        """Utilisation that is promised in a context: its high-priority tasks, and the low-priority jobs under way."""
        total = 0.0
        for number, task in enumerate(board.tasks):
            if task.priority is Priority.HIGH and number % len(board.contexts) == context:
                total += board.network_time(task, context) * task.rate
        for job in board.active.values():
            if job.task.priority is Priority.LOW and job.home == context:
                total += board.network_time(job.task, context) * job.task.rate
        return total


def level(ready: ReadyStage) -> int:
    """0 (first) to 7: high-priority task before low, last stage before others, late before in time."""
    low = ready.job.task.priority is Priority.LOW
    return 4 * low + 2 * (ready.place > 0) + (not ready.late)


def _home(job: Job, board: Board) -> int:
    """Tasks are dealt out to the contexts in turn."""
    return board.positions[job.task.name] % len(board.contexts)
