"""Memory of the observer about one pod between two observations; only the observer and the executor write it."""

from __future__ import annotations

from dataclasses import dataclass, field

from podium_agent.observe.cgroups import Container, Freezer
from podium_agent.observe.pods import PodStatus, TrialPod
from podium_core.attempts.local_trial import Acting, Work
from podium_core.attempts.lost_work import GateReport
from podium_core.domain.keys import TrialKey
from podium_core.schema.gpunode import SlotState


@dataclass(frozen=True, slots=True)
class Hint:
    """Facts that an earlier agent of this node wrote about a pod in GPUNode.status."""

    key: TrialKey
    pod: str
    gpus: tuple[str, ...]


@dataclass(slots=True)
class PodEnd:
    """What is known of the end of a pod.

    `over_since`: since when the API does not know the pod (`absent`) or reports its end. `termination_seen_at`: when a
    pending SIGTERM, or the hook before it, was seen while the pod was frozen. `deletion`: the deadline of a deleted pod
    according to the API, and according to this node's clock.
    """

    absent: bool = False
    over_since: float | None = None
    ended: bool = False  # the kernel confirms it
    termination_seen_at: float | None = None
    deletion: tuple[float, float] = (0.0, 0.0)


@dataclass(slots=True)
class PodAct:
    """The act of the executor on a pod."""

    current: Acting = Acting.NOTHING
    done: Acting = Acting.NOTHING  # the act that ended since the last observation
    retry_at: float = 0.0
    trouble: str = ""


@dataclass(slots=True)
class PodMemory:
    """Admission of a pod by its GPU memory."""

    shortage: str = ""  # the GPU memory that it waits for, as a sentence with numbers
    admitted: bool = False  # its memory was promised, and not moved out since


@dataclass(slots=True)
class PodSuspension:
    """How a pod was suspended."""

    method: str = ""  # method of its last suspension; empty: not by this agent
    failed: set[str] = field(default_factory=set)  # methods that failed to suspend it
    partial: bool = False  # some of its processes are stopped, others run


@dataclass(slots=True)
class MigrationNotes:
    """What is known of a live migration from or to a pod."""

    image_complete: bool | None = None  # an image holds all that it did; None: not known yet
    gpu_state_noted: bool = False  # its GPU state from the source node is noted


@dataclass(slots=True)
class PodProcesses:
    """The processes of a pod, as the kernel shows them."""

    work: Work = Work.THAWED  # as last reported by the kernel
    containers: dict[str, Container] = field(default_factory=dict)
    complete: bool = False  # all of its containers were seen once: since then it can be suspended
    searched_at: float = 0.0
    pidfds: dict[int, int] = field(default_factory=dict)  # pid > pidfd

    @property
    def freezers(self) -> tuple[Freezer, ...]:
        """The freezers of its containers."""
        return tuple(container.freezer for container in self.containers.values())


@dataclass(slots=True)
class PodRecord:
    """State of one pod."""

    pod: TrialPod
    gpus: tuple[str, ...] = ()
    state: SlotState | None = None
    since: float = 0.0
    started: bool = False  # its gate was passed
    gate_report: GateReport | None = None  # what the gate reported of its checkpoints
    end: PodEnd = field(default_factory=PodEnd)
    act: PodAct = field(default_factory=PodAct)
    memory: PodMemory = field(default_factory=PodMemory)
    suspension: PodSuspension = field(default_factory=PodSuspension)
    migration: MigrationNotes = field(default_factory=MigrationNotes)
    processes: PodProcesses = field(default_factory=PodProcesses)

    def kill_at(self, now: float) -> float | None:
        """Return when the pod is killed; None if it is not being deleted.

        The API server's clock may differ from this node's, so the end is at most one grace period from now. A kubelet
        that ends pods by itself (node pressure, node shutdown, a critical pod) reports it to the API only afterwards.
        A trial that got a SIGTERM has its grace period in that case too.
        """
        api, end = self.pod.termination, self.end
        if api.deadline is None:
            seen_at = end.termination_seen_at
            killed_at = None if seen_at is None else seen_at + api.grace
            return killed_at if killed_at is not None and now < killed_at else None
        if end.deletion[0] != api.deadline:
            end.deletion = (api.deadline, min(api.deadline, now + api.grace))
            self.act.retry_at = 0.0  # no time is left for a pause after a failure
        return end.deletion[1]

    def note_termination(self, now: float) -> None:
        """Note that the pod's termination was seen on the node."""
        self.end.termination_seen_at, self.act.retry_at = now, 0.0


def orphan(uid: str, hint: Hint) -> PodRecord:
    """Return the record of a pod that the API no longer knows and only an earlier agent described."""
    pod = TrialPod(key=hint.key, name=hint.pod, uid=uid, status=PodStatus(ended=True))
    return PodRecord(pod, gpus=hint.gpus, end=PodEnd(absent=True))
