"""What the observer remembers of one pod between two looks. Only it and the carrier write here."""

from __future__ import annotations

from dataclasses import dataclass, field

from podium_agent.observe.cgroups import Container, Freezer
from podium_agent.observe.pods import TrialPod
from podium_agent.observe.trials import Acting, Work
from podium_agent.report.lost_work import GateReport
from podium_core.domain.snapshot import TrialKey
from podium_core.schema.gpunode import TrialState


@dataclass(frozen=True, slots=True)
class Hint:
    """What an earlier agent of this node wrote of a pod in GPUNode.status."""

    key: TrialKey
    pod: str
    gpus: tuple[str, ...]


@dataclass(slots=True)
class PodRecord:
    """One pod. `over_since`: the API knows no such pod any more (`absent`), or says that it has ended."""

    pod: TrialPod
    absent: bool = False
    over_since: float | None = None
    ended: bool = False  # and the kernel says so as well
    started: bool = False  # its gate was passed
    gate_report: GateReport | None = None  # what the gate had said of its saves
    gpus: tuple[str, ...] = ()
    state: TrialState | None = None
    since: float = 0.0
    acting: Acting = Acting.NOTHING
    done: Acting = Acting.NOTHING  # the act that ended since the last look
    retry_at: float = 0.0
    trouble: str = ""
    memory_shortage: str = ""  # the GPU memory that it waits for, as a sentence with the numbers
    admitted: bool = False  # its memory was promised to it, and was not moved out since
    failed: set[str] = field(default_factory=set)  # methods that did not suspend it when they were tried
    method: str = ""  # by which it was suspended last; empty: not by this agent
    containers: dict[str, Container] = field(default_factory=dict)
    complete: bool = False  # all of its containers were found once: from then on it can be suspended
    gpu_state_noted: bool = False  # what it held on GPUs of the node that it came from is noted
    work: Work = Work.THAWED  # what the kernel said last
    image_complete: bool | None = None  # all that it did is in an image, from which it goes on; None: not known yet
    partly_suspended: bool = False  # some of it is stopped, some works
    searched_at: float = 0.0
    pidfds: dict[int, int] = field(default_factory=dict)  # pid > pidfd
    termination_seen_at: float | None = (
        None  # a SIGTERM, or the hook before it, was found waiting for it while it was frozen
    )
    _deletion: tuple[float, float] = (0.0, 0.0)

    @property
    def freezers(self) -> tuple[Freezer, ...]:
        return tuple(container.freezer for container in self.containers.values())

    def kill_at(self, now: float) -> float | None:
        """When its pod is killed, None if it is not being ended.

        The API server's clock may not be ours: at the latest its grace from now. A kubelet that ends pods of its own
        accord (node pressure, node shutdown, a critical pod) says so in the API only when all is over; who was told,
        by it or another, has its grace period to heed that.
        """
        deadline = self.pod.deadline
        if deadline is None:
            end = None if self.termination_seen_at is None else self.termination_seen_at + self.pod.grace
            return end if end is not None and now < end else None
        if self._deletion[0] != deadline:
            self._deletion = (deadline, min(deadline, now + self.pod.grace))
            self.retry_at = 0.0  # there is no time to wait for what failed before
        return self._deletion[1]

    def note_termination(self, now: float) -> None:
        """Its end was seen to begin on the node."""
        self.termination_seen_at, self.retry_at = now, 0.0


def orphan(uid: str, hint: Hint) -> PodRecord:
    """Of a pod of which the API knows nothing any more, and this agent only what an earlier one wrote."""
    pod = TrialPod(
        key=hint.key,
        name=hint.pod,
        uid=uid,
        containers=(),
        running=frozenset(),
        ended=True,
        gate_running=False,
        gate_passed=False,
        deadline=None,
        memory=0,
        reading=None,
    )
    return PodRecord(pod, absent=True, gpus=hint.gpus)
