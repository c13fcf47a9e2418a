"""What the planner sees: one frozen picture of all jobs, trials and GPUs, with the time at which it was taken.

Built by the operator from its watch caches and by the simulator from its world; what-if is `dataclasses.replace`.
Times are seconds since the epoch (or since the start of a simulation), memory is in bytes.
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
CheckpointScope = Literal["nowhere", "node", "anywhere"]  # where a later pod finds the saves of an earlier one


class JobKey(NamedTuple):
    """Keys are tuples, not dataclasses: a plan hashes and compares them by the thousand."""

    namespace: str
    name: str


class TrialKey(NamedTuple):
    """The uid is part of the key: a trial deleted and created again under the same name is another trial."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Point:
    step: float
    value: float
    time: float


@dataclass(frozen=True, slots=True)
class JobView:
    key: JobKey
    uid: str
    created: float
    policy: str
    settings: Mapping[str, Scalar]
    maximize: bool
    target: float | None
    max_trials: int
    parallel: int | None  # None = auto: as many as there are shares
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
    suspendable: bool = True  # a trial may be frozen where it is, to make room
    checkpointable: bool = False  # its trials save when their pod is told to go, so that another pod goes on
    checkpoint_scope: CheckpointScope = "nowhere"
    migratable: bool = False  # a trial may be carried to another node alive, where it would lose steps otherwise
    moves_memory: bool = False  # a suspended trial's memory is off its GPU
    learns: bool = False  # its searcher goes by what was tried: the later a trial is made, the better

    @property
    def reclaims_slots(self) -> bool:
        """Whether its trials give their places to each other: another pod goes on from the save on any node."""
        return self.gpus_per_trial > 0 and self.checkpointable and self.checkpoint_scope == "anywhere"


@dataclass(frozen=True, slots=True)
class TrialView:
    key: TrialKey
    job: JobKey
    number: int
    created: float
    phase: TrialPhase
    curve: tuple[Point, ...] = ()
    attempt: int = 0
    failures: int = 0
    pod: str | None = None  # the pod of this attempt, if it exists; of a finished trial only while it is not over
    node: str | None = None
    gpus: tuple[str, ...] = ()  # uuids that its pod has shares of
    gpu_seconds: float = 0.0
    retry_at: float = 0.0  # no new pod before this time (back-off)
    suspend: bool = False
    pinned: bool = False
    stopped: bool = False
    stuck: bool = False  # its pod has found no node or could not start for long
    waits_for_capacity: bool = False  # and that for want of room, which the end of another trial of its job would make
    terminating: bool = False  # its pod is being deleted: it may still save, and takes its share until it is gone
    termination_overdue: bool = False  # and should be gone for long: nobody knows when it will be
    pod_since: float = 0.0  # when that pod was created
    checkpoint_step: float | None = None  # step of its newest save; None: it has none
    switch_seconds: float | None = None  # measured seconds of its own suspension and resumption; None: not measured yet
    migration: MigrationPhase | None = (
        None  # how far its present pod, old or new, is with that; None: it is not carried
    )
    migrated: bool = False  # and its present pod is the new one
    migration_target: str | None = None  # the node that it goes to, or came to
    rebalance_count: int = 0  # times that it was moved to level the GPUs
    destination: str | None = None  # the node that it is on its way to, if Podium chose one
    finished_at: float | None = None  # when it was finished
    parameters: tuple[tuple[str, Scalar], ...] = ()  # what it tries

    @property
    def in_migration(self) -> bool:
        """To another node, alive: its new pod has no GPU there yet, or is not made yet."""
        return self.migration in IN_PROGRESS and self.migration_target is not None and not (self.migrated and self.gpus)


@dataclass(frozen=True, slots=True)
class GpuView:
    node: str
    uuid: str
    health: Literal["Healthy", "Unhealthy", "Unknown"]
    slots: int  # that trials can have: those of guests (pods that are no trials) are not among them
    holder: TrialKey | None = None
    holder_since: float | None = None
    trials: tuple[TrialKey, ...] = ()  # present on this GPU, any state
    run_queue: tuple[TrialKey, ...] = ()  # the order in force
    in_effect: bool = False  # its agent has carried that very order out
    no_preemption: bool = (
        False  # its agent knows that very order, which takes it from no trial that worked there before
    )
    free_slots: int = 0
    product: str = ""
    memory_total: int = 0
    memory_reserved: int = 0  # declared by all on it; of trials that are moved off it the largest only
    memory_movable: int = 0  # by that largest one
    draining: bool = False  # its node is to become empty
    exclusive_pod: str | None = None  # the urgent pod that has it, or is to have it, for itself; empty: not known yet
    reserved_for: str | None = (
        None  # the namespace whose trials alone may use it; empty: no lease holds it; None: owned
    )
    supports_migration: bool = False  # its node's agent carries live trials away, and takes them in

    @property
    def reservation_ended(self) -> bool:
        """No lease holds it: whoever has a share of it may not work."""
        return self.reserved_for == ""


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured seconds that one suspension and one resumption keep a GPU busy, and those that a trial loses by a
    requeue: save, end, start, load (defaults until something is measured).
    """

    suspend: float = 0.2
    resume: float = 0.2
    requeue: float = 20.0

    def of(self, job: JobView) -> Costs:
        """What it costs that a trial of this job gives its GPU away: where it only saves, a requeue."""
        return self if job.suspendable else Costs(self.requeue, 0.0, self.requeue)


@dataclass(frozen=True, slots=True)
class Snapshot:
    now: float
    jobs: tuple[JobView, ...] = ()
    trials: tuple[TrialView, ...] = ()
    gpus: tuple[GpuView, ...] = ()
    costs: Costs = field(default_factory=Costs)
    epochs: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))  # node -> epoch in force
    rebalancing: RebalancingRules | None = None  # None: no trial is moved to level the GPUs
    full_nodes: frozenset[tuple[JobKey, str]] = frozenset()  # nodes that were found to take no pod of the job for now
    _trials_by_job: dict[JobKey, list[TrialView]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def trials_by_job(self) -> Mapping[JobKey, Sequence[TrialView]]:
        """The trials of each job that has any, sorted by key: sorted once, for all who look at one job of many."""
        if not self._trials_by_job and self.trials:
            found: dict[JobKey, list[TrialView]] = {}
            last: JobKey | None = None
            mine: list[TrialView] = []
            for trial in sorted(self.trials, key=attrgetter("key")):
                if trial.job is not last:  # mostly the same object as the one before: it need not be hashed
                    last, mine = trial.job, found.setdefault(trial.job, [])
                mine.append(trial)
            self._trials_by_job.update(found)
        return self._trials_by_job
