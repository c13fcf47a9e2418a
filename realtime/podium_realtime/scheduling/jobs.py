"""Jobs, ready stages and batches: the immutable values that the dispatcher and the policies exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from podium_realtime.model.network import InferenceNetwork, Stage
from podium_realtime.model.task import PeriodicTask
from podium_realtime.scheduling.pool import StreamPriority

USABLE = 0.99  # part of the relative deadline that the stages share; the rest is for the host


class JobOutcome(Enum):
    """Outcome of a job. All but MET are misses. REJECTED, SHED and SKIPPED jobs used no device time."""

    MET = "met"
    LATE = "late"  # finished after its deadline
    SKIPPED = "skipped"  # the task's previous job was still running
    REJECTED = "rejected"  # by the policy's admission test
    SHED = "shed"  # dropped before its first stage, because it could no longer meet its deadline
    OPEN = "open"  # unfinished when the run ended


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """One release of a periodic task. Times are absolute, in seconds.

    `stage_deadlines`: virtual deadline of each stage.
    `context`: the context to which an admission test bound the job; -1 for none.
    """

    task: PeriodicTask
    number: int
    release: float
    deadline: float
    stage_deadlines: tuple[float, ...]
    context: int = -1

    @property
    def key(self) -> tuple[str, int]:
        """Identity of the job: name of the task and number of the release."""
        return (self.task.name, self.number)


@dataclass(frozen=True, slots=True)
class ReadyStage:
    """A stage of a job whose predecessors are done.

    `ready_at`: time at which the last predecessor was done.
    `late`: an earlier stage of the job missed its virtual deadline.
    """

    job: PeriodicJob
    index: int
    ready_at: float
    late: bool

    @property
    def stage(self) -> Stage:
        """The stage in the task's network."""
        return self.job.task.network.stages[self.index]

    @property
    def stages_after(self) -> int:
        """Number of stages on the longest path behind this one; 0 for a last stage."""
        return self.job.task.network.stages_after[self.index]

    @property
    def deadline(self) -> float:
        """Virtual deadline of the stage (absolute)."""
        return self.job.stage_deadlines[self.index]

    @property
    def batch_key(self) -> tuple[str, int]:
        """Stages with the same key can be launched as one batch."""
        return (self.job.task.network.name, self.index)


@dataclass(frozen=True, slots=True)
class StageBatch:
    """Stages launched together on one stream: one stage, or the same stage of several jobs.

    `committed`: time at which the dispatcher chose the batch.
    `expected_finish`: finish time according to the expected execution times.
    """

    number: int
    stages: tuple[ReadyStage, ...]
    context: int
    stream: int
    priority: StreamPriority
    committed: float
    expected_finish: float

    @property
    def size(self) -> int:
        """Number of frames."""
        return len(self.stages)


@dataclass(frozen=True, slots=True)
class JobResult:
    """A job and its outcome. `finished` is None for jobs that did not finish."""

    job: PeriodicJob
    outcome: JobOutcome
    finished: float | None

    @property
    def response_time(self) -> float | None:
        """Seconds from release to finish; None for a job that did not finish."""
        return None if self.finished is None else self.finished - self.job.release


def virtual_deadlines(network: InferenceNetwork, seconds: Sequence[float], deadline: float) -> tuple[float, ...]:
    """Return the virtual deadline of each stage, in seconds after the release.

    As in SGPRS, stages share 0.99 of the deadline in proportion to their execution time. The shares add up along the
    chain, or along the longest path of a graph, so a late job becomes visible before its last stage. O(stages + edges).

    `seconds`: occupied time of each stage in the reference context.
    `deadline`: relative deadline of the job.
    """
    ends: list[float] = []
    for stage, own in zip(network.stages, seconds, strict=True):
        ends.append(own + max((ends[before] for before in stage.after), default=0.0))
    longest = max(ends)
    return tuple(USABLE * deadline * end / longest for end in ends)
