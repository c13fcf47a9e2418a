"""Expected execution times of stages and jobs, from profiles or from recent executions.

DARIS replaces the worst-case execution time by the maximum of the recent execution times: it follows a device that
becomes slower, and forgets a rare long execution.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from podium_realtime.model.profile import Profiles
from podium_realtime.model.task import PeriodicTask, Priority
from podium_realtime.scheduling.jobs import ReadyStage

WINDOW = 5  # executions of which the maximum counts
DECAY = 0.001  # part of the difference by which a shorter job lowers the estimate; a longer job replaces it
SHED_DECAY = 0.01  # part of the difference to the profile by which a shed job lowers the estimate


class ExecutionTimeEstimator:
    """Estimates of execution times, updated by the dispatcher and read by the policies.

    All times are in seconds.


    `sms`: SMs of each context.
    `use_recent`: use the maximum of recent executions for stages; otherwise the profile alone.
    """

    def __init__(self, profiles: Profiles, sms: Sequence[int], use_recent: bool) -> None:
        self._use_recent = use_recent
        self._contexts = len(sms)
        self._stage_times = {
            (network, index, context): profile.time(count)
            for network, stages in profiles.items()
            for index, profile in enumerate(stages)
            for context, count in enumerate(sms)
        }
        self._stage_counts = {network: len(stages) for network, stages in profiles.items()}
        self._recent: dict[tuple[str, int, int], deque[float]] = {}
        self._network_times: dict[tuple[str, int], float] = {}
        self._job_times: dict[tuple[str, Priority], float] = {}

    def stage_time(self, ready: ReadyStage, context: int) -> float:
        """Return the expected time of this stage in this context."""
        return self._stage_times[(ready.job.task.network.name, ready.index, context)]

    def network_time(self, task: PeriodicTask, context: int) -> float:
        """Return the sum of the expected times of all stages of the task's network in this context."""
        key = (task.network.name, context)
        if key not in self._network_times:
            name = task.network.name
            self._network_times[key] = sum(
                self._stage_times[(name, index, context)] for index in range(self._stage_counts[name])
            )
        return self._network_times[key]

    def min_job_time(self, task: PeriodicTask) -> float:
        """Return the expected time of all stages in the fastest context."""
        return min(self.network_time(task, context) for context in range(self._contexts))

    def job_time(self, task: PeriodicTask) -> float:
        """Return the expected time from the first launch to the end of a job.

        This is the longest of the recent jobs with this network and priority, as a peak that decays slowly. Before the
        first such job has ended it is `min_job_time`.
        """
        return self._job_times.get(_job_class(task)) or self.min_job_time(task)

    def record_execution(self, ready: ReadyStage, context: int, batch_size: int, seconds: float) -> None:
        """Record the time of a stage from its launch to its end; each frame of a batch counts for its part."""
        if not self._use_recent:
            return
        key = (ready.job.task.network.name, ready.index, context)
        window = self._recent.setdefault(key, deque(maxlen=WINDOW))
        window.append(seconds / batch_size)
        self._stage_times[key] = max(window)
        self._network_times.pop((key[0], context), None)

    def record_job(self, task: PeriodicTask, seconds: float) -> None:
        """Record the time of a job from its first launch to its end."""
        before = self.job_time(task)
        self._job_times[_job_class(task)] = seconds if seconds > before else before + DECAY * (seconds - before)

    def record_shed(self, task: PeriodicTask) -> None:
        """Lower the estimate a little, because a job was shed.

        A shed job yields no measurement. Without this step one slow moment could lead to shedding all later jobs.
        """
        lowest = self.min_job_time(task)
        self._job_times[_job_class(task)] = lowest + (1.0 - SHED_DECAY) * (self.job_time(task) - lowest)


def _job_class(task: PeriodicTask) -> tuple[str, Priority]:
    """Return the key under which job times are kept: low-priority jobs also wait between their stages."""
    return (task.network.name, task.priority)
