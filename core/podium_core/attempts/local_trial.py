"""Trials as this node sees them, as frozen values: the observer makes them, the local scheduler reads them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from podium_core.domain.keys import TrialKey
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
class LocalPod:
    """The pod of a trial; `attempt`: number of the attempt that it makes."""

    name: str
    uid: str
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Termination:
    """The end of a trial's pod.

    `over_since`: since when its pod has ended or is gone according to the API, while its processes run. `denied`: it
    has ended because a restarted kubelet denied its admission; the kubelet leaves its processes their grace period.
    """

    deleting: bool = False
    handles_sigterm: bool = True  # a SIGTERM has an effect: pid 1 of its container handles it
    deadline: float | None = None  # when the kubelet kills a deleted pod
    grace: float = 30.0  # seconds of the grace period
    over_since: float | None = None
    denied: bool = False


@dataclass(frozen=True, slots=True)
class TrialMemory:
    """The GPU memory of a trial.

    `shortage`: the memory that is missing, as a sentence; the trial claims no GPU until that could be free.
    `is_checkpointed`: it is suspended with its GPU memory in host memory, and needs GPU memory again to run.
    """

    declared: int = 0  # bytes
    shortage: str = ""
    moves: bool = False  # it is moved off the GPU when the trial's time slice ends
    is_checkpointed: bool = False


@dataclass(frozen=True, slots=True)
class TrialSuspension:
    """How a trial is suspended and resumed.

    `method`: the best one that its job allows and this node has; empty: none. `partial`: the trial is Running, but
    partly stopped, because an agent died while it suspended or resumed the trial.
    """

    method: str = "freeze"
    partial: bool = False
    retry_at: float = 0.0  # no act before: the last one failed
    trouble: str = ""  # why the last act failed


@dataclass(frozen=True, slots=True)
class LocalTrial:
    """A trial on this node.

    `gpus` are uuids, sorted; empty means that the kubelet has not reported them yet. `hinted_gpus` are those that the
    previous agent reported. They decide nothing, but leaving the trial out of the status would report that it has
    gone.
    """

    key: TrialKey
    pod: LocalPod
    gpus: tuple[str, ...]
    state: SlotState
    since: float
    gate: Gate = Gate.ABSENT
    admitting: bool = False  # it is about to be admitted
    termination: Termination = Termination()
    memory: TrialMemory = TrialMemory()
    suspension: TrialSuspension = TrialSuspension()
    hinted_gpus: tuple[str, ...] = ()

    @property
    def seen_on(self) -> tuple[str, ...]:
        """The GPUs that the trial is reported on."""
        return self.gpus or self.hinted_gpus

    @property
    def freezable(self) -> bool:
        """Whether a method can suspend the trial in place."""
        return bool(self.suspension.method)

    @property
    def occupies(self) -> bool:
        """Whether the trial runs on its GPUs, or may do so at any moment."""
        return self.state in OCCUPYING or self.admitting


OCCUPYING = frozenset({SlotState.STARTING, SlotState.RUNNING, SlotState.SUSPENDING, SlotState.RESUMING})
