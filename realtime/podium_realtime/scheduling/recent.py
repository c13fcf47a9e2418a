"""Expected times of stages: the profile's occupied time, or the maximum of the recent ones (DARIS' replacement for a
WCET: it forgets a rare long run and follows a slower device). Kept by the dispatcher, read by policies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from podium_realtime.model.profile import Profiles
from podium_realtime.model.task import PeriodicTask, Priority
from podium_realtime.scheduling.work import ReadyStage

WINDOW = 5  # executions
FALL = 0.001  # of the difference, when a job took less than the estimate of its span; a longer one is taken over whole
DOUBT = 0.01  # of the difference to the profile, when a job was dropped because of the estimate


class RecentMaximum:
    """`sms`: of each context. With `recent` False only the profile is asked."""

    def __init__(self, profiles: Profiles, sms: Sequence[int], recent: bool) -> None:
        self._recent = recent
        self._contexts = len(sms)
        self._times = {
            (network, index, context): profile.time(count)
            for network, stages in profiles.items()
            for index, profile in enumerate(stages)
            for context, count in enumerate(sms)
        }
        self._counts = {network: len(stages) for network, stages in profiles.items()}
        self._seen: dict[tuple[str, int, int], deque[float]] = {}
        self._whole: dict[tuple[str, int], float] = {}
        self._spans: dict[tuple[str, Priority], float] = {}

    def expected(self, ready: ReadyStage, context: int) -> float:
        """Seconds of this stage in this context."""
        return self._times[(ready.job.task.network.name, ready.index, context)]

    def network_time(self, task: PeriodicTask, context: int) -> float:
        """Seconds of all stages of the task's network, one after another."""
        key = (task.network.name, context)
        if key not in self._whole:
            name = task.network.name
            self._whole[key] = sum(self._times[(name, index, context)] for index in range(self._counts[name]))
        return self._whole[key]

    def saw(self, ready: ReadyStage, context: int, batch: int, seconds: float) -> None:
        """An execution took this long, from its launch on; of a batch each frame counts for its part."""
        if not self._recent:
            return
        key = (ready.job.task.network.name, ready.index, context)
        window = self._seen.setdefault(key, deque(maxlen=WINDOW))
        window.append(seconds / batch)
        self._times[key] = max(window)
        self._whole.pop((key[0], context), None)

    def span(self, task: PeriodicTask) -> float:
        """Seconds that the longest of the recent jobs of this network and priority took from their first launch to
        their end (a peak that decays slowly); before the first has ended `least`.
        """
        return self._spans.get(_class(task)) or self.least(task)

    def ended(self, task: PeriodicTask, seconds: float) -> None:
        """A job took this long from its first launch to its end."""
        before = self.span(task)
        self._spans[_class(task)] = seconds if seconds > before else before + FALL * (seconds - before)

    def shed(self, task: PeriodicTask) -> None:
        """A job was dropped because of the estimate, so nothing was learned of it: doubt the estimate a little, or one
        bad moment would shed all jobs for ever.
        """
        least = self.least(task)
        self._spans[_class(task)] = least + (1.0 - DOUBT) * (self.span(task) - least)

    def least(self, task: PeriodicTask) -> float:
        """Seconds of all stages in the fastest context."""
        return min(self.network_time(task, context) for context in range(self._contexts))


def _class(task: PeriodicTask) -> tuple[str, Priority]:
    """Jobs of low priority wait between their stages where those of high priority do not."""
    return (task.network.name, task.priority)
