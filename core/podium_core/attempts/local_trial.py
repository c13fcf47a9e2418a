"""Trials as this node sees them, as frozen values: the observer makes them, the local scheduler reads them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from podium_core.domain.snapshot import TrialKey
from podium_core.schema.gpunode import SlotState


class Gate(StrEnum):
    """State of the gate, the init container that waits for the trial's first time slice."""

    ABSENT = "Absent"  # not started yet (image pull, other init containers)
    WAITING = "Waiting"  # connected to the agent's socket
    SILENT = "Silent"  # not connected, and older than this agent: reconnecting, or opened by an agent that died
    PASSED = "Passed"  # opened by this agent, or ended successfully


class Work(StrEnum):
    """State of the trial's own containers."""

    NOT_STARTED = "NotStarted"
    THAWED = "Thawed"
    FROZEN = "Frozen"
    ENDED = "Ended"


class Acting(StrEnum):
    """Action that the executor performs on the trial now."""

    NOTHING = "Nothing"
    ADMITTING = "Admitting"  # at its gate: memory admission is being asked
    SUSPENDING = "Suspending"
    RESUMING = "Resuming"


@dataclass(frozen=True, slots=True)
class LocalTrial:
    """A trial on this node.

    `gpus` are uuids, sorted; empty means that the kubelet has not reported them yet. `hinted_gpus` are those that the
    previous agent reported. They decide nothing, but leaving the trial out of the status would report that it has
    gone.
    """

    key: TrialKey
    pod: str
    pod_uid: str
    gpus: tuple[str, ...]
    state: SlotState
    since: float
    gate: Gate = Gate.ABSENT
    work: Work = Work.NOT_STARTED
    deleting: bool = False
    handles_sigterm: bool = True  # a SIGTERM has an effect: pid 1 of its container handles it
    deadline: float | None = None  # when the kubelet kills a deleted pod
    grace: float = 30.0  # seconds of the grace period
    retry_at: float = 0.0  # no act before: the last one failed
    trouble: str = ""  # why the last act failed
    memory_shortage: str = ""  # the GPU memory that is missing: it claims no GPU until that could be free
    is_checkpointed: bool = False  # suspended, with its GPU memory in host memory: it needs GPU memory again to run
    admitting: bool = False  # it is about to be admitted
    memory: int = 0  # declared bytes of GPU memory
    moves_memory: bool = False  # its GPU memory is moved off the GPU when its time slice ends
    attempt: int = 0  # attempt of the pod
    method: str = "freeze"  # suspension method: the best that its job allows and this node has; empty: none
    partly_suspended: bool = False  # Running, but partly stopped: an agent died while it suspended or resumed the trial
    over_since: float | None = None  # its pod has ended or is gone according to the API, but its processes run
    hinted_gpus: tuple[str, ...] = ()

    @property
    def seen_on(self) -> tuple[str, ...]:
        """The GPUs that the trial is reported on."""
        return self.gpus or self.hinted_gpus

    @property
    def freezable(self) -> bool:
        """Whether a method can suspend the trial in place."""
        return bool(self.method)

    @property
    def occupies(self) -> bool:
        """Whether the trial runs on its GPUs, or may do so at any moment."""
        return self.state in OCCUPYING or self.admitting


OCCUPYING = frozenset({SlotState.STARTING, SlotState.RUNNING, SlotState.SUSPENDING, SlotState.RESUMING})
