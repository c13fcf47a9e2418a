"""DARIS (arXiv 2504.08795): fixed priority levels, admission of low-priority jobs, migration between contexts.

- Each task has a home context (round-robin). A job runs in one context.
- High-priority jobs are always admitted to their home context.
- A low-priority job is admitted to its home context if the context's utilisation stays within its streams. Otherwise it
  migrates to the least used context where it fits, and is rejected if it fits nowhere.
- Execution times are maxima of recent executions, not worst-case times.
- Three questions give eight priority levels: is the task of high priority, is this its last stage, was an earlier stage
  late. Within a level: EDF by virtual deadline.

This is an implementation of the method in the paper; it contains no code of the DARIS repository.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from podium_realtime.model.task import Priority
from podium_realtime.scheduling.jobs import PeriodicJob, ReadyStage
from podium_realtime.scheduling.policy import BasePolicy, JobAdmission, PriorityKey, SchedulerState


@dataclass(frozen=True, slots=True)
class Daris(BasePolicy):
    """The DARIS policy.

    `limit`: utilisation allowed for each stream of a context.
    """

    limit: float = 1.0
    name: ClassVar[str] = "daris"
    uses_recent_times: ClassVar[bool] = True

    def admit(self, job: PeriodicJob, state: SchedulerState) -> JobAdmission:
        """Admit the job to its home context, to another context, or reject it."""
        home = _home_context(job, state)
        if job.task.priority is Priority.HIGH:
            return JobAdmission(True, "HighPriority", "high-priority jobs are always admitted.", home)
        used = [_utilisation(number, state) for number in range(len(state.contexts))]
        added = [state.times.network_time(job.task, number) * job.task.rate for number in range(len(used))]
        order = [home, *sorted((n for n in range(len(used)) if n != home), key=lambda n: (used[n], n))]
        for number in order:
            allowed = self.limit * state.contexts[number].spec.in_flight
            if used[number] + added[number] <= allowed:
                code = "Admitted" if number == home else "Migrated"
                message = (
                    f"context {number} has utilisation {used[number]:.3f} of {allowed:g}, "
                    f"and the job adds {added[number]:.3f}."
                )
                return JobAdmission(True, code, message, number)
        least = min(range(len(used)), key=lambda n: (used[n], n))
        allowed = self.limit * state.contexts[least].spec.in_flight
        message = (
            f"task {job.task.name} would add {added[least]:.3f} to the utilisation of context {least}, "
            f"the least used one ({used[least]:.3f} of {allowed:g})."
        )
        return JobAdmission(False, "Overloaded", message)

    def assign_context(self, ready: ReadyStage, state: SchedulerState) -> int | None:
        """Return the context to which the job was admitted."""
        return ready.job.context

    def priority_key(self, ready: ReadyStage, now: float) -> PriorityKey:
        """Order by level, then by virtual deadline (EDF)."""
        return (float(priority_level(ready)), ready.deadline)


def priority_level(ready: ReadyStage) -> int:
    """Return the level from 0 (first) to 7.

    High-priority tasks come before low ones, then last stages before others, then late jobs before others.
    """
    low = ready.job.task.priority is Priority.LOW
    return 4 * low + 2 * (ready.stages_after > 0) + (not ready.late)


def _utilisation(context: int, state: SchedulerState) -> float:
    """Return the utilisation of a context by its high-priority tasks and its active low-priority jobs."""
    total = 0.0
    for number, task in enumerate(state.tasks):
        if task.priority is Priority.HIGH and number % len(state.contexts) == context:
            total += state.times.network_time(task, context) * task.rate
    for job in state.active_jobs.values():
        if job.task.priority is Priority.LOW and job.context == context:
            total += state.times.network_time(job.task, context) * job.task.rate
    return total


def _home_context(job: PeriodicJob, state: SchedulerState) -> int:
    """Return the home context of the job's task (round-robin)."""
    return state.task_indices[job.task.name] % len(state.contexts)
