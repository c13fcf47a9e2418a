"""True state of a simulated system: trials, pods, nodes and what the agents know.

Only the engine changes it. What the planner may know is `Trial.view` and `Gpu.view`, which lag behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import TrialKey
from podium_core.domain.migration import IN_PROGRESS, NOT_RESUMABLE, MigrationPhase
from podium_core.domain.phase import TrialPhase
from podium_core.domain.pod_view import PodView, WorkerView
from podium_core.domain.snapshot import Attempts, Intent, JobView, Relocation, TrialResult, TrialUsage, TrialView
from podium_core.domain.tenure import Tenure
from podium_core.policies.base import Policy
from podium_simulator.system.inputs.scenario import NodeSpec, SimJob
from podium_simulator.system.stages import OCCUPIES, PodStage
from podium_simulator.system.trial_state import GpuTime, SimAttempts, SimMigration, Switches, Training, WrittenStatus

_NO_INTENT, _SUSPENDED, _NOT_MIGRATED, _NO_RESULT = Intent(), Intent(suspend=True), Relocation(), TrialResult()


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
    # trials that may run, as the agent knows them: not those on hold; None: the operator has not written a run queue
    run_queue: tuple[TrialKey, ...] | None = None
    newest_epoch: int = 0
    agent_epoch: int = 0
    effective_epoch: int = 0
    preempts: bool = False
    tenure: Tenure | None = None
    reported: GpuUse | None = None
    changed: float = 0.0

    @property
    def trials(self) -> list[Trial]:
        """Trials with a slot on it. O(trials on the node)."""
        return [trial for trial in self.node.trials if self in trial.pod.gpus]


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


@dataclass(slots=True, eq=False)
class SimPod:
    """Pod of a trial's present attempt; while its stage is None, the trial has no pod.

    It stands for the pods of all workers of the trial: they are placed together, and every switch is that of all.
    `node` is that of worker 0, and `nodes` are those of all workers, with the GPUs in this order.

    `version` counts changes of the stage: events of older ones are void. `since`: start of the stage. `load_left`:
    seconds until its first step. `asked_to_end`, `asked_to_migrate`: its node knows of the request; a pod that is asked
    to migrate gets no time slice.
    """

    stage: PodStage | None = None
    version: int = 0
    since: float = 0.0
    created: float = 0.0
    node: Node | None = None
    nodes: tuple[Node, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    load_left: float = 0.0
    terminating: bool = False
    asked_to_end: bool = False
    asked_to_migrate: bool = False
    stuck: bool = False

    @property
    def occupies(self) -> bool:
        """Return whether the trial's process uses the GPUs."""
        return self.stage in OCCUPIES

    @property
    def alive(self) -> bool:
        """Return whether the pod exists and its process has not ended."""
        return self.stage is not None and self.stage is not PodStage.ENDED

    def bind(self, gpus: tuple[Gpu, ...]) -> None:
        """Place the pod on these GPUs."""
        self.node, self.gpus = gpus[0].node, gpus
        self.nodes = (self.node,) if len(gpus) == 1 else tuple(dict.fromkeys(gpu.node for gpu in gpus))

    def release(self) -> None:
        """Release the GPUs: the pod is gone, and with it what it was asked."""
        self.node, self.nodes, self.gpus = None, (), ()
        self.terminating = self.asked_to_end = self.asked_to_migrate = self.stuck = False

    def view(self, name: str) -> PodView:
        """Return the pod as the planner sees it."""
        return PodView(
            name=name,
            node=None if self.node is None else self.node.spec.name,
            gpus=tuple([gpu.uuid for gpu in self.gpus]),
            since=self.created,
            terminating=self.terminating,
            stuck=self.stuck,
            waits_for_capacity=self.stuck,
            workers=() if len(self.nodes) < 2 else tuple(self._workers(name)),
        )

    def _workers(self, name: str) -> Iterator[WorkerView]:
        for rank, node in enumerate(self.nodes):
            mine = tuple([gpu.uuid for gpu in self.gpus if gpu.node is node])
            yield WorkerView(rank, f"{name}-w{rank}" if rank else name, node.spec.name, mine)


@dataclass(slots=True, eq=False)
class Trial:
    """One trial. `written_status`: its record in the API; `view`: what the planner knows of it."""

    key: TrialKey
    job: Job
    number: int
    view: TrialView
    training: Training
    pod: SimPod = field(default_factory=SimPod)
    gpu_time: GpuTime = field(default_factory=GpuTime)
    switches: Switches = field(default_factory=Switches)
    attempts: SimAttempts = field(default_factory=SimAttempts)
    migration: SimMigration | None = None
    written_status: WrittenStatus = field(default_factory=WrittenStatus)
    ended: float | None = None

    @property
    def freezes(self) -> bool:
        return self.job.view.abilities.suspendable

    @property
    def starts_from_image(self) -> bool:
        """Return whether the trial's pod starts from an image and has not reported progress yet."""
        migration = self.migration
        return migration is not None and migration.phase in IN_PROGRESS and self.attempts.number >= migration.attempt

    @property
    def in_image(self) -> bool:
        """Whether all of its training is in an image from which its next pod continues."""
        migration = self.migration
        return (
            migration is not None
            and migration.phase in NOT_RESUMABLE
            and migration.pushed
            and self.attempts.number < migration.attempt
        )

    def record(self, now: float) -> WrittenStatus:
        """Return what the trial's agent would write now."""
        known, points = self.written_status.curve, self.training.points
        return WrittenStatus(
            now,
            known if len(known) == len(points) else tuple(points),
            TrialUsage(self.gpu_time.charged(now, len(self.pod.gpus)), self.switches.mean_seconds),
            self.switches.totals,
        )

    def publish(self, phase: TrialPhase) -> None:
        """Publish the trial's state, without `dataclasses.replace`, which would dominate the run time."""
        old, status, attempts = self.view, self.written_status, self.attempts
        pod = None if self.pod.stage is None else self.pod.view(f"{self.key.name}-{attempts.number}")
        relocation = _NOT_MIGRATED if self.migration is None else self._relocation(self.migration)
        on_its_way = relocation.migration in NOT_RESUMABLE and not relocation.migrated
        self.view = TrialView(
            key=old.key,
            job=old.job,
            number=old.number,
            origin=old.origin,
            phase=phase,
            curve=status.curve,
            usage=status.usage,
            pod=pod,
            attempts=Attempts(attempts.number, attempts.failures, attempts.retry_at, self.training.checkpoint_step),
            intent=_SUSPENDED if on_its_way else _NO_INTENT,
            relocation=relocation,
            result=_NO_RESULT if self.ended is None else TrialResult(self.ended),
        )

    def _relocation(self, migration: SimMigration) -> Relocation:
        new = self.attempts.number >= migration.attempt
        over = self.pod.stage is None or (new and migration.phase is MigrationPhase.RESTORED)
        return Relocation(
            migration=None if over else migration.phase,
            migrated=new and not over,
            target=None if over else migration.target,
            destination=migration.target if migration.phase in IN_PROGRESS else None,
        )
