"""True state of a simulated system: trials, pods, nodes and what the agents know.

Only the engine changes it. What the planner may know is `Trial.view` and `Gpu.view`, which lag behind.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from podium_core.domain.migration import IN_PROGRESS, NOT_RESUMABLE, MigrationPhase
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import (
    Attempts,
    GpuView,
    Intent,
    JobView,
    PodView,
    Point,
    Relocation,
    TrialKey,
    TrialView,
)
from podium_core.domain.switch_costs import SwitchTotals, mean_switch
from podium_core.policies.base import Policy
from podium_simulator.system.outcome import TRAINING
from podium_simulator.system.scenario import NodeSpec, SimJob
from podium_simulator.traces.trace import RecordedTrial


class PodStage(Enum):
    """State of a trial's pod, as its node knows it."""

    PLACING = auto()  # no node yet
    CREATING = auto()
    GATED = auto()
    STARTING = auto()  # its gate is open
    LOADING = auto()  # its agent has found its processes: it can be suspended from here on
    RUNNING = auto()
    CHECKPOINTING = auto()
    SUSPENDING = auto()
    SUSPENDED = auto()
    MAKING_IMAGE = auto()  # suspended, and written to an image from which it continues on another node
    RESTORING = auto()  # on the other node: its gate is open
    RESUMING = auto()
    ENDED = auto()  # its process has ended; its pod does not report it yet


OCCUPIES = frozenset(
    {
        *(PodStage.STARTING, PodStage.LOADING, PodStage.RUNNING, PodStage.CHECKPOINTING),
        *(PodStage.SUSPENDING, PodStage.RESTORING, PodStage.RESUMING),
    }
)
PHASES: Mapping[PodStage, TrialPhase] = {
    PodStage.PLACING: TrialPhase.PENDING,
    PodStage.CREATING: TrialPhase.PENDING,
    PodStage.GATED: TrialPhase.GATED,
    PodStage.STARTING: TrialPhase.RUNNING,
    PodStage.LOADING: TrialPhase.RUNNING,
    PodStage.RUNNING: TrialPhase.RUNNING,
    PodStage.CHECKPOINTING: TrialPhase.RUNNING,
    PodStage.SUSPENDING: TrialPhase.SUSPENDING,
    PodStage.SUSPENDED: TrialPhase.SUSPENDED,
    PodStage.MAKING_IMAGE: TrialPhase.SUSPENDED,
    PodStage.RESTORING: TrialPhase.RUNNING,
    PodStage.RESUMING: TrialPhase.RESUMING,
    PodStage.ENDED: TrialPhase.RUNNING,
}

# Use of the GPU in each state, for people.
USES: Mapping[PodStage, str] = {
    PodStage.STARTING: "starting",
    PodStage.LOADING: "loading",
    PodStage.RUNNING: TRAINING,
    PodStage.CHECKPOINTING: "saving",
    PodStage.SUSPENDING: "suspending",
    PodStage.RESTORING: "restoring",
    PodStage.RESUMING: "resuming",
}


_NO_INTENT, _SUSPENDED, _NOT_MIGRATED = Intent(), Intent(suspend=True), Relocation()


@dataclass(slots=True, eq=False)
class Job:
    spec: SimJob
    view: JobView
    policy: Policy
    ended: float | None = None
    succeeded: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Load (percent) and memory (bytes) of a GPU."""

    load: float = 0.0
    memory: int = 0


@dataclass(slots=True, eq=False)
class Gpu:
    """One GPU.

    Epochs of run queues: `newest_epoch` is the newest, `agent_epoch` the one that the agent follows, `effective_epoch`
    the one in effect. `preempts`: the newest run queue preempts the holder. `reported`: its use as of the agent's last
    report; None: its present use. `changed`: time of the last change of its use.
    """

    uuid: str
    node: Node
    view: GpuView
    run_queue: tuple[TrialKey, ...] | None = None  # as the agent knows it; None: the operator has not written one
    newest_epoch: int = 0
    agent_epoch: int = 0
    effective_epoch: int = 0
    preempts: bool = False
    reported: GpuUse | None = None
    changed: float = 0.0

    @property
    def trials(self) -> list[Trial]:
        """Trials with a slot on it. O(trials on the node)."""
        return [trial for trial in self.node.trials if self in trial.gpus]


@dataclass(slots=True, eq=False)
class Node:
    """One node.

    `version` counts changes of its agent. `silent`: the agent does nothing. `unheard`: for so long that the operator
    does not trust it; `stale`: neither does placement. `draining`: it accepts no trials.
    """

    spec: NodeSpec
    version: int = 0
    up: bool = True
    silent: bool = False
    unheard: bool = False
    stale: bool = False
    draining: bool = False
    gpus: list[Gpu] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)  # with a slot of a GPU here


@dataclass(frozen=True, slots=True)
class WrittenStatus:
    """A trial's record in the API, as its agent wrote it at `at`.

    `totals`: what all its suspensions took. `switch_seconds`: mean of the newest suspensions and resumptions; None:
    unknown.
    """

    at: float = -math.inf
    curve: tuple[Point, ...] = ()
    gpu_seconds: float = 0.0
    totals: SwitchTotals = field(default_factory=SwitchTotals)
    switch_seconds: float | None = None


@dataclass(slots=True, eq=False)
class SimMigration:
    """Live migration from `node` to `target`.

    `attempt`: attempt of its pod there. `since`: start of the phase. `known_values`: number of values reported when
    that pod was created. `pushed`: its image is in the registry, with all of its training.
    """

    node: str
    target: str
    reason: str
    attempt: int
    since: float
    phase: MigrationPhase = MigrationPhase.REQUESTED
    code: str = ""
    known_values: int = 0
    pushed: bool = False


@dataclass(slots=True, eq=False)
class Trial:
    key: TrialKey
    job: Job
    number: int
    curve: RecordedTrial
    steps: Sequence[float]  # of each evaluation
    view: TrialView
    state: PodStage | None = None  # None: it has no pod
    version: int = 0  # counts changes of state: events of older states are void
    node: Node | None = None
    gpus: tuple[Gpu, ...] = ()
    attempt: int = 0
    since: float = 0.0  # start of the state
    pod_since: float = 0.0
    held_since: float | None = None
    load_left: float = 0.0  # seconds until its first step
    trained: float = 0.0  # seconds until `trains_from`
    trains_from: float = 0.0
    evaluations: int = 0
    points: list[Point] = field(default_factory=list)
    written_status: WrittenStatus = field(default_factory=WrittenStatus)
    checkpoint_seconds: float | None = None  # seconds of training that a later pod finds in the checkpoint
    terminating: bool = False
    asked_to_end: bool = False  # its node knows that it is asked to end
    asked_to_migrate: bool = False  # its node knows that it is asked to migrate: it gets no time slice
    migration: SimMigration | None = None
    stuck: bool = False
    failures: int = 0
    # consecutive losses without a step, and the step known at the last one
    disruption: tuple[int, float | None] | None = None
    retry_at: float = 0.0
    gpu_seconds: float = 0.0
    lost_seconds: float = 0.0  # of training that is repeated
    first_held: float | None = None
    ended: float | None = None
    suspensions: int = 0  # completed
    resumptions: int = 0
    checkpoints: int = 0  # for another trial or for its node; each is followed by a new pod
    migrations: int = 0  # live migrations to another node
    suspend_seconds: float = 0.0  # seconds that they took
    resume_seconds: float = 0.0
    # Seconds of suspension and, once it was resumed, of resumption: as many as the agent keeps in the trial's status.
    recent: deque[tuple[float, float | None]] = field(default_factory=lambda: deque(maxlen=32))

    @property
    def occupies(self) -> bool:
        return self.state in OCCUPIES

    @property
    def freezes(self) -> bool:
        return self.job.view.abilities.suspendable

    @property
    def switch_seconds(self) -> float | None:
        """Mean seconds of its suspension and resumption so far, as the operator reads them; None: unknown."""
        return mean_switch(self.recent)

    @property
    def starts_from_image(self) -> bool:
        """Return whether the trial's pod starts from an image and has not reported progress yet."""
        migration = self.migration
        return migration is not None and migration.phase in IN_PROGRESS and self.attempt >= migration.attempt

    @property
    def in_image(self) -> bool:
        """Whether all of its training is in an image from which its next pod continues."""
        migration = self.migration
        return (
            migration is not None
            and migration.phase in NOT_RESUMABLE
            and migration.pushed
            and self.attempt < migration.attempt
        )

    def charged(self, now: float) -> float:
        """Return the GPU-seconds until now."""
        held = 0.0 if self.held_since is None else (now - self.held_since) * len(self.gpus)
        return self.gpu_seconds + held

    def record(self, now: float) -> WrittenStatus:
        """Return what the trial's agent would write now."""
        points = self.written_status.curve if len(self.written_status.curve) == len(self.points) else tuple(self.points)
        totals = SwitchTotals(self.suspensions, self.suspend_seconds, self.resumptions, self.resume_seconds)
        return WrittenStatus(now, points, self.charged(now), totals, self.switch_seconds)

    def publish(self, phase: TrialPhase) -> None:
        """Publish the trial's state, without `dataclasses.replace`, which would dominate the run time."""
        old, status = self.view, self.written_status
        pod = self._pod_view() if self.state is not None else None
        relocation = _NOT_MIGRATED if self.migration is None else self._relocation(self.migration)
        on_its_way = relocation.migration in NOT_RESUMABLE and not relocation.migrated
        self.view = TrialView(
            key=old.key,
            job=old.job,
            number=old.number,
            created=old.created,
            phase=phase,
            curve=status.curve,
            gpu_seconds=status.gpu_seconds,
            switch_seconds=status.switch_seconds,
            parameters=old.parameters,
            pod=pod,
            attempts=Attempts(self.attempt, self.failures, self.retry_at, self._checkpoint_step()),
            intent=_SUSPENDED if on_its_way else _NO_INTENT,
            relocation=relocation,
            finished_at=self.ended,
        )

    def _pod_view(self) -> PodView:
        return PodView(
            name=f"{self.key.name}-{self.attempt}",
            node=None if self.node is None else self.node.spec.name,
            gpus=tuple([gpu.uuid for gpu in self.gpus]),
            since=self.pod_since,
            terminating=self.terminating,
            stuck=self.stuck,
            waits_for_capacity=self.stuck,
        )

    def _checkpoint_step(self) -> float | None:
        saved = self.checkpoint_seconds
        if saved is None:
            return None
        return max((s for s, t in zip(self.steps, self.curve.seconds, strict=True) if t <= saved), default=0.0)

    def _relocation(self, migration: SimMigration) -> Relocation:
        new = self.attempt >= migration.attempt
        over = self.state is None or (new and migration.phase is MigrationPhase.RESTORED)
        return Relocation(
            migration=None if over else migration.phase,
            migrated=new and not over,
            target=None if over else migration.target,
            destination=migration.target if migration.phase in IN_PROGRESS else None,
        )
