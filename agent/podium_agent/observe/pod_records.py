"""Memory of the observer about one pod between two observations; only the observer and the executor write it."""

from __future__ import annotations

from dataclasses import dataclass, field

from podium_agent.observe.cgroups import Container, Freezer
from podium_agent.observe.pods import PodStatus, TrialPod
from podium_core.attempts.local_trial import Acting, Work
from podium_core.attempts.lost_work import GateReport
from podium_core.domain.snapshot import TrialKey
from podium_core.schema.gpunode import SlotState


@dataclass(frozen=True, slots=True)
class Hint:
    """Facts that an earlier agent of this node wrote about a pod in GPUNode.status."""

    key: TrialKey
    pod: str
    gpus: tuple[str, ...]


@dataclass(slots=True)
class PodRecord:
    """State of one pod.

    `over_since`: since when the API does not know the pod (`absent`) or reports its end.
    """

    pod: TrialPod
    absent: bool = False
    over_since: float | None = None
    ended: bool = False  # the kernel confirms it
    started: bool = False  # its gate was passed
    gate_report: GateReport | None = None  # what the gate reported of its checkpoints
    gpus: tuple[str, ...] = ()
    state: SlotState | None = None
    since: float = 0.0
    acting: Acting = Acting.NOTHING
    done: Acting = Acting.NOTHING  # the act that ended since the last observation
    retry_at: float = 0.0
    trouble: str = ""
    memory_shortage: str = ""  # the GPU memory that it waits for, as a sentence with numbers
    admitted: bool = False  # its memory was promised, and not moved out since
    failed: set[str] = field(default_factory=set)  # methods that failed to suspend it
    method: str = ""  # method of its last suspension; empty: not by this agent
    containers: dict[str, Container] = field(default_factory=dict)
    complete: bool = False  # all of its containers were seen once: since then it can be suspended
    gpu_state_noted: bool = False  # its GPU state from the source node is noted
    work: Work = Work.THAWED  # as last reported by the kernel
    image_complete: bool | None = None  # an image holds all that it did; None: not known yet
    partly_suspended: bool = False  # some of its processes are stopped, others run
    searched_at: float = 0.0
    pidfds: dict[int, int] = field(default_factory=dict)  # pid > pidfd
    termination_seen_at: float | None = (
        None  # when a pending SIGTERM, or the hook before it, was seen while it was frozen
    )
    _deletion: tuple[float, float] = (0.0, 0.0)

    @property
    def freezers(self) -> tuple[Freezer, ...]:
        """The freezers of its containers."""
        return tuple(container.freezer for container in self.containers.values())

    def kill_at(self, now: float) -> float | None:
        """Return when the pod is killed; None if it is not being deleted.

        The API server's clock may differ from this node's, so the end is at most one grace period from now. A kubelet
        that ends pods by itself (node pressure, node shutdown, a critical pod) reports it to the API only afterwards.
        A trial that got a SIGTERM has its grace period in that case too.
        """
        deadline = self.pod.termination.deadline
        if deadline is None:
            end = None if self.termination_seen_at is None else self.termination_seen_at + self.pod.termination.grace
            return end if end is not None and now < end else None
        if self._deletion[0] != deadline:
            self._deletion = (deadline, min(deadline, now + self.pod.termination.grace))
            self.retry_at = 0.0  # no time is left for a pause after a failure
        return self._deletion[1]

    def note_termination(self, now: float) -> None:
        """Note that the pod's termination was seen on the node."""
        self.termination_seen_at, self.retry_at = now, 0.0


def orphan(uid: str, hint: Hint) -> PodRecord:
    """Return the record of a pod that the API no longer knows and only an earlier agent described."""
    pod = TrialPod(key=hint.key, name=hint.pod, uid=uid, status=PodStatus(ended=True))
    return PodRecord(pod, absent=True, gpus=hint.gpus)
