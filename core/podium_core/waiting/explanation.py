"""Explanation of a search's wait: the values that the command line, the dashboard and programs show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["Ended", "Refused", "Suspended", "Blocked", "Waiting", "Running"]
GpuUse = Literal["free", "held", "full", "unusable"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason for which trials do not run, with its cure.

    `trials`: names of the trials that it keeps waiting; empty if it is about the whole job. `blocks`: nothing of them
    runs until a person removes the cause.
    """

    code: str
    message: str
    cure: str
    trials: tuple[str, ...] = ()
    blocks: bool = False


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU from the point of view of a job: what holds it, or why the job cannot use it.

    `by`: namespace/name of the holder or of the exclusive pod; empty if there is none. `job`: namespace/name of the
    holder's job; empty if it is not known. `since`: when it got the GPU. `message`: the same as a sentence.
    """

    name: str
    uuid: str
    product: str
    use: GpuUse
    code: str
    message: str
    by: str = ""
    job: str = ""
    since: float | None = None
    free_slots: int = 0


@dataclass(frozen=True, slots=True)
class QueuedTrial:
    """One waiting trial. `position`: 1 is the next one; positions count the waiting trials of all jobs."""

    position: int
    namespace: str
    trial: str
    job: str
    has_slot: bool  # it waits on a GPU; otherwise it waits for a slot
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Ahead:
    """What one other job has ahead of this one.

    `holds`: GPUs that its trials hold and this job could use. `waiting`: its trials before the first waiting one.
    """

    job: str
    holds: int
    waiting: int


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """Why a job runs or waits.

    `reasons`: the dominant one first. `queue`: all waiting trials of all jobs, in order. `position`: of this job's
    first waiting trial in it; None if none waits in the queue. `to_come`: number of trials that do not exist yet.
    """

    namespace: str
    job: str
    state: State
    summary: str
    running: int
    waiting: int
    to_come: int
    position: int | None
    reasons: tuple[Reason, ...]
    ahead: tuple[Ahead, ...]
    queue: tuple[QueuedTrial, ...]
    gpus: tuple[GpuState, ...]

    @property
    def blocked(self) -> bool:
        """Return whether nothing of the job can run until a person removes a cause."""
        return self.state in ("Ended", "Refused", "Suspended", "Blocked")
