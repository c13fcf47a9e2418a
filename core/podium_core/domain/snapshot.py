"""Input of the planner: an immutable snapshot of all jobs, trials and GPUs, with the time at which it was taken.

The operator builds it from its watch caches, the simulator from its state. A what-if analysis changes it with
`dataclasses.replace`. Times are seconds since the Unix epoch (or since the start of a simulation); memory is in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType
from typing import Literal, NamedTuple

from podium_core.domain.migration import IN_PROGRESS, MigrationPhase
from podium_core.domain.phase import TrialPhase
from podium_core.domain.rebalancing import RebalancingRules

Scalar = str | bool | int | float
CheckpointScope = Literal["nowhere", "node", "anywhere"]  # where a later pod can read the checkpoint


class JobKey(NamedTuple):
    """Identity of a job. A tuple, not a dataclass: a plan hashes and compares thousands of keys."""

    namespace: str
    name: str


class TrialKey(NamedTuple):
    """Identity of a trial. It includes the uid.

    A trial created again under the same name is another trial.
    """

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a learning curve."""

    step: float
    value: float
    time: float


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as the planner sees it."""

    key: JobKey
    uid: str
    created: float
    policy: str
    settings: Mapping[str, Scalar]
    maximize: bool
    target: float | None
    max_trials: int
    parallel: int | None  # None = auto: as many as there are slots
    max_steps: float | None
    max_failed: int
    retries: int
    gpus_per_trial: int
    accepted: bool
    suspended: bool
    finished: bool = False
    budget_gpu_seconds: float | None = None
    deadline: float | None = None  # same clock as Snapshot.now
    products: tuple[str, ...] = ()  # empty = any
    memory: int | None = None  # bytes that one trial uses on each of its GPUs
    suspendable: bool = True  # its trials can be suspended where they are, so that another trial gets the GPU
    checkpointable: bool = False  # its trials checkpoint when their pod is deleted, so that another pod continues
    checkpoint_scope: CheckpointScope = "nowhere"
    migratable: bool = False  # its trials can be migrated to another node if they would lose steps otherwise
    moves_memory: bool = False  # the memory of a suspended trial is off its GPU
    learns: bool = False  # its searcher learns from earlier trials: the later a trial is created, the better

    @property
    def reclaims_slots(self) -> bool:
        """Return whether its trials give up slots to each other.

        Another pod must be able to continue from the checkpoint on any node.
        """
        return self.gpus_per_trial > 0 and self.checkpointable and self.checkpoint_scope == "anywhere"


@dataclass(frozen=True, slots=True)
class TrialView:
    """A trial as the planner sees it."""

    key: TrialKey
    job: JobKey
    number: int
    created: float
    phase: TrialPhase
    curve: tuple[Point, ...] = ()
    attempt: int = 0
    failures: int = 0
    pod: str | None = None  # pod of this attempt, if it exists; of a finished trial only until the pod has ended
    node: str | None = None
    gpus: tuple[str, ...] = ()  # UUIDs of the GPUs on which its pod has a slot
    gpu_seconds: float = 0.0
    retry_at: float = 0.0  # no new pod before this time (back-off)
    suspend: bool = False
    pinned: bool = False
    stopped: bool = False
    stuck: bool = False  # its pod has groups no node, or could not start, for a long time
    # it is stuck for lack of capacity, which the end of another trial of its job would free
    waits_for_capacity: bool = False
    terminating: bool = False  # its pod is being deleted: it may still checkpoint, and keeps its slot until it is gone
    termination_overdue: bool = False  # the pod should have been gone for a long time; it is unknown when it will be
    pod_since: float = 0.0  # when that pod was created
    checkpoint_step: float | None = None  # step of its newest checkpoint; None: it has none
    switch_seconds: float | None = None  # measured seconds of its own suspension and resumption; None: not measured yet
    migration: MigrationPhase | None = None  # migration phase of its present pod, old or new; None: it is not migrated
    migrated: bool = False  # its present pod is the new one
    migration_target: str | None = None  # target node of the migration
    rebalance_count: int = 0  # how often it was moved by rebalancing
    destination: str | None = None  # node that Podium chose for its next pod, while it is on the way
    finished_at: float | None = None  # when it ended
    parameters: tuple[tuple[str, Scalar], ...] = ()  # values of its parameters

    @property
    def in_migration(self) -> bool:
        """Return whether it is being migrated: its new pod has no GPU yet, or does not exist yet."""
        return self.migration in IN_PROGRESS and self.migration_target is not None and not (self.migrated and self.gpus)


@dataclass(frozen=True, slots=True)
class GpuView:
    """A GPU as the planner sees it."""

    node: str
    uuid: str
    health: Literal["Healthy", "Unhealthy", "Unknown"]
    slots: int  # slots for trials, without those that other pods occupy
    holder: TrialKey | None = None
    holder_since: float | None = None
    trials: tuple[TrialKey, ...] = ()  # trials with a slot on this GPU, in any state
    run_queue: tuple[TrialKey, ...] = ()  # the run queue as last written
    in_effect: bool = False  # the agent has carried out this run queue
    no_preemption: bool = False  # the agent knows this run queue, which takes the GPU from no trial that held it before
    free_slots: int = 0
    product: str = ""
    memory_total: int = 0
    memory_reserved: int = 0  # declared by all on it; of the trials that are moved off it only the largest counts
    memory_movable: int = 0  # declared by that largest one
    draining: bool = False  # its node is drained
    # exclusive pod that has or will have the whole GPU; empty: its name is not known yet
    exclusive_pod: str | None = None
    reserved_for: str | None = (
        None  # namespace whose trials may use the reserved GPU; empty: not reserved; None: dedicated to Podium
    )
    supports_migration: bool = False  # the agent of its node can migrate running trials in both directions

    @property
    def reservation_ended(self) -> bool:
        """Return whether no reservation holds the GPU: trials with a slot on it must not run."""
        return self.reserved_for == ""


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured seconds of one suspension and one resumption, and seconds that a trial loses by a requeue.

    A requeue consists of checkpoint, end, start and load. The defaults hold until something is measured.
    """

    suspend: float = 0.2
    resume: float = 0.2
    requeue: float = 20.0

    def of(self, job: JobView) -> Costs:
        """Return the costs of preempting a trial of this job: those of a requeue if it cannot be suspended."""
        return self if job.suspendable else Costs(self.requeue, 0.0, self.requeue)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of all jobs, trials and GPUs at time `now`."""

    now: float
    jobs: tuple[JobView, ...] = ()
    trials: tuple[TrialView, ...] = ()
    gpus: tuple[GpuView, ...] = ()
    costs: Costs = field(default_factory=Costs)
    epochs: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))  # node -> epoch in force
    rebalancing: RebalancingRules | None = None  # None: rebalancing is off
    full_nodes: frozenset[tuple[JobKey, str]] = frozenset()  # nodes that rejected pods of the job for now
    _trials_by_job: dict[JobKey, list[TrialView]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def trials_by_job(self) -> Mapping[JobKey, Sequence[TrialView]]:
        """Return the trials of each job that has any, sorted by key. They are sorted once, for all users."""
        if not self._trials_by_job and self.trials:
            groups: dict[JobKey, list[TrialView]] = {}
            last: JobKey | None = None
            group: list[TrialView] = []
            for trial in sorted(self.trials, key=attrgetter("key")):
                if trial.job is not last:  # mostly the same object as before: avoid hashing it
                    last, group = trial.job, groups.setdefault(trial.job, [])
                group.append(trial)
            self._trials_by_job.update(groups)
        return self._trials_by_job
