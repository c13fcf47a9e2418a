"""What the schedulers handle: a job (one release of a task), a stage of it that is ready, a work (stages committed to a
stream), and how a job ended. All frozen: who keeps them is the dispatcher.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from podium_realtime.model.network import Stage
from podium_realtime.model.task import PeriodicTask
from podium_realtime.scheduling.pool import StreamPriority


class Outcome(Enum):
    """How a release ended. All but MET are misses; REFUSED, SHED and SKIPPED cost no time on the device."""

    MET = "met"
    LATE = "late"  # finished after its deadline
    SKIPPED = "skipped"  # the job before it was still under way
    REFUSED = "refused"  # by the policy's admission test
    SHED = "shed"  # dropped before its first stage, when it could not be in time any more
    OPEN = "open"  # not finished when the run ended


@dataclass(frozen=True, slots=True)
class Job:
    """Absolute times in seconds. `deadlines` are the virtual ones of its stages; `home` is the context that an
    admission test bound it to, -1 for none.
    """

    task: PeriodicTask
    number: int
    release: float
    deadline: float
    deadlines: tuple[float, ...]
    home: int = -1

    @property
    def key(self) -> tuple[str, int]:
        return (self.task.name, self.number)


@dataclass(frozen=True, slots=True)
class ReadyStage:
    """A stage whose predecessors are done. `late`: one of them missed its virtual deadline; `place`: how many stages of
    the chain come after it at least (0 for a last one).
    """

    job: Job
    index: int
    ready: float
    late: bool
    place: int

    @property
    def stage(self) -> Stage:
        return self.job.task.network.stages[self.index]

    @property
    def deadline(self) -> float:
        """The stage's own virtual deadline, absolute."""
        return self.job.deadlines[self.index]

    @property
    def kind(self) -> tuple[str, int]:
        """Stages of one kind can be run as one batch."""
        return (self.job.task.network.name, self.index)


@dataclass(frozen=True, slots=True)
class Work:
    """What is launched in one go: one stage, or the same stage of several jobs as a batch."""

    number: int
    stages: tuple[ReadyStage, ...]
    context: int
    stream: int
    priority: StreamPriority
    committed: float
    expected: float  # when the profile says that it will be done

    @property
    def batch(self) -> int:
        return len(self.stages)


@dataclass(frozen=True, slots=True)
class JobEnd:
    """One release and what came of it; `finished` is None where it never ran to its end."""

    job: Job
    outcome: Outcome
    finished: float | None

    @property
    def response(self) -> float | None:
        return None if self.finished is None else self.finished - self.job.release
