"""A trial as this node sees it, as frozen values: made by the observer, judged by the arbiter."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from podium_core.domain.snapshot import TrialKey
from podium_core.schema.gpunode import TrialState


class Gate(StrEnum):
    """Where the init container that waits for the trial's turn stands."""

    ABSENT = "Absent"  # not started yet (image pull, other init containers)
    WAITING = "Waiting"  # connected to our socket
    SILENT = "Silent"  # not connected, and older than this agent: reconnecting, or let through by one that then died
    PASSED = "Passed"  # we let it through, or it has ended well


class Work(StrEnum):
    """Where the trial's own containers stand."""

    NOT_STARTED = "NotStarted"
    THAWED = "Thawed"
    FROZEN = "Frozen"
    ENDED = "Ended"


class Acting(StrEnum):
    """What the carrier is doing to the trial at this moment."""

    NOTHING = "Nothing"
    ADMITTING = "Admitting"  # at its gate: whether its memory is free is being asked
    SUSPENDING = "Suspending"
    RESUMING = "Resuming"


@dataclass(frozen=True, slots=True)
class LocalTrial:
    """`gpus` are uuids, sorted; an empty tuple means that the kubelet has not told us yet. `told`: those that the agent
    before this one told of then. Nothing is done by them, but to leave the trial out would tell that it has gone.
    """

    key: TrialKey
    pod: str
    pod_uid: str
    gpus: tuple[str, ...]
    state: TrialState
    since: float
    gate: Gate = Gate.ABSENT
    work: Work = Work.NOT_STARTED
    deleting: bool = False
    handles_sigterm: bool = True  # a thawed SIGTERM would do something: pid 1 of its container handles it
    deadline: float | None = None  # when the kubelet kills a deleted pod
    grace: float = 30.0  # seconds that it gave the pod until then
    retry_at: float = 0.0  # nothing is done to it before: the last attempt failed
    trouble: str = ""  # why that failed
    memory_shortage: str = ""  # the GPU memory that is missing for it: it claims no GPU until it could have that
    moved_off: bool = False  # suspended, and its GPU memory is in host memory: to work it takes that of the GPU anew
    admitting: bool = False  # it is about to be let in
    memory: int = 0  # bytes of GPU memory that it declared
    moves_memory: bool = False  # and these are moved off the GPU when its turn is over
    attempt: int = 0  # of its pod
    method: str = "freeze"  # to suspend it by: the best that its job allows and this node has; empty: none
    partly_suspended: bool = (
        False  # Running, but a part of it is stopped: an agent died while it suspended or resumed it
    )
    over_since: float | None = None  # its pod has ended or is gone, says the API; the kernel says that it works on
    hinted_gpus: tuple[str, ...] = ()

    @property
    def seen_on(self) -> tuple[str, ...]:
        """Where it is, for others to read."""
        return self.gpus or self.hinted_gpus

    @property
    def freezable(self) -> bool:
        """There is a way to suspend it in place."""
        return bool(self.method)

    @property
    def occupies(self) -> bool:
        """It works on its GPUs, or may do so at any moment."""
        return self.state in OCCUPYING or self.admitting


OCCUPYING = frozenset({TrialState.STARTING, TrialState.RUNNING, TrialState.SUSPENDING, TrialState.RESUMING})
