"""Input of the planner: an immutable snapshot of all jobs, trials and GPUs, with the time at which it was taken.

The operator builds it from its watch caches, the simulator from its state. A what-if analysis changes it with
`dataclasses.replace`. Times are seconds since the Unix epoch (or since the start of a simulation); memory is in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType
from typing import Literal

from podium_core.domain.gpu_queue import QueueView
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.migration import IN_PROGRESS, MigrationPhase
from podium_core.domain.phase import TrialPhase
from podium_core.domain.pod_view import PodView
from podium_core.domain.population import Lineage, Population
from podium_core.domain.rebalancing import RebalancingRules

Scalar = str | bool | int | float
CheckpointScope = Literal["nowhere", "node", "anywhere"]  # where a later pod can read the checkpoint


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a learning curve."""

    step: float
    value: float
    time: float


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Limits of a job: the trials that it creates, runs and may lose, and its budget."""

    max_trials: int
    parallel: int | None  # None = auto: as many as there are slots
    max_failed: int
    retries: int
    budget_gpu_seconds: float | None = None
    deadline: float | None = None  # same clock as Snapshot.now


@dataclass(frozen=True, slots=True)
class GpuNeeds:
    """The GPUs that each trial of a job needs."""

    per_trial: int  # all GPUs of a trial, over all of its workers
    products: tuple[str, ...] = ()  # empty = any
    memory: int | None = None  # bytes that one trial uses on each of its GPUs
    queue: str = ""  # the job's queue: a GPUQueue, a LocalQueue of Kueue that admits its reservations, or both
    priority: int = 0  # within the queue: jobs of a higher one come first
    workers: int = 1  # pods of a trial, each on a node of its own

    @property
    def per_worker(self) -> int:
        """Return the number of GPUs of each worker, which must be on one node."""
        return self.per_trial // self.workers


@dataclass(frozen=True, slots=True)
class Abilities:
    """Actions that the trials of a job allow without losing work."""

    suspendable: bool = True  # they can be suspended where they are, so that another trial gets the GPU
    checkpointable: bool = False  # they checkpoint when their pod is deleted, so that another pod continues
    checkpoint_scope: CheckpointScope = "nowhere"
    migratable: bool = False  # they can be migrated to another node if they would lose steps otherwise
    moves_memory: bool = False  # the memory of a suspended one is off its GPU


@dataclass(frozen=True, slots=True)
class JobState:
    """State of a job: accepted, suspended or finished."""

    accepted: bool
    suspended: bool
    finished: bool = False


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
    max_steps: float | None
    limits: JobLimits
    gpus: GpuNeeds
    abilities: Abilities
    state: JobState
    learns: bool = False  # its searcher learns from earlier trials: the later a trial is created, the better
    population: Population | None = None  # settings of population-based training; None: another search
    directions: tuple[bool, ...] = ()  # whether each of several objectives is maximized; empty: it has one objective

    @property
    def reclaims_slots(self) -> bool:
        """Return whether the job's trials give up slots to each other.

        Another pod must be able to continue from the checkpoint on any node. Trials of several workers keep their
        slots: to get them again, they need slots on several nodes at a time.
        """
        able = self.abilities
        several = self.gpus.workers > 1
        return self.gpus.per_trial > 0 and not several and able.checkpointable and able.checkpoint_scope == "anywhere"


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts of a trial so far, and what the next one starts from."""

    number: int = 0  # of the present attempt
    failures: int = 0
    retry_at: float = 0.0  # no new pod before this time (back-off)
    checkpoint_step: float | None = None  # step of its newest checkpoint; None: it has none


@dataclass(frozen=True, slots=True)
class Intent:
    """Requests of the user for a trial; a migration that needs the trial suspended sets `suspend` too."""

    suspend: bool = False
    pinned: bool = False
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Relocation:
    """Moves of a trial to another node: its live migration, and the moves of rebalancing."""

    migration: MigrationPhase | None = (
        None  # phase of the migration of its present pod, old or new; None: there is none
    )
    migrated: bool = False  # its present pod is the new one
    target: str | None = None  # target node of the migration
    rebalance_count: int = 0  # how often it was moved by rebalancing
    destination: str | None = None  # node that Podium chose for its next pod, while it is on the way


@dataclass(frozen=True, slots=True)
class TrialOrigin:
    """When a trial was created, the values of its parameters, and the parent that it continues from."""

    created: float
    parameters: tuple[tuple[str, Scalar], ...] = ()
    lineage: Lineage | None = None  # of a child of population-based training


@dataclass(frozen=True, slots=True)
class TrialUsage:
    """GPU time of a trial."""

    gpu_seconds: float = 0.0
    switch_seconds: float | None = None  # measured seconds of its own suspension and resumption; None: not measured yet


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The end of a trial, and its values of several objectives so far."""

    finished_at: float | None = None
    objective_values: tuple[float, ...] = ()  # value of each of several objectives; NaN: not known


# shared by most trials
_FIRST_ATTEMPT = Attempts()
_NO_INTENT = Intent()
_NO_RELOCATION = Relocation()
_NO_USAGE = TrialUsage()
_NO_RESULT = TrialResult()


@dataclass(frozen=True, slots=True)
class TrialView:
    """A trial as the planner sees it."""

    key: TrialKey
    job: JobKey
    number: int
    origin: TrialOrigin
    phase: TrialPhase
    curve: Sequence[Point] = ()
    usage: TrialUsage = _NO_USAGE
    pod: PodView | None = None  # pod of this attempt, if it exists and has not ended
    ended_pod: PodView | None = None  # its ended pod, while it is not gone: the agent may still report its slots
    attempts: Attempts = _FIRST_ATTEMPT
    intent: Intent = _NO_INTENT
    relocation: Relocation = _NO_RELOCATION
    result: TrialResult = _NO_RESULT

    @property
    def first_step(self) -> float:
        """Return the step from which it trains: for a child, that at which its parent was chosen."""
        lineage = self.origin.lineage
        return 0.0 if lineage is None else lineage.step

    @property
    def reached_step(self) -> float:
        """Return the step of its last value; a child stands at least where it begins."""
        return max(self.first_step, self.curve[-1].step if self.curve else 0.0)

    @property
    def node(self) -> str | None:
        """Return the node of its pod."""
        pod = self.pod or self.ended_pod
        return None if pod is None else pod.node

    @property
    def gpus(self) -> tuple[str, ...]:
        """Return the UUIDs of the GPUs on which its pod has a slot."""
        pod = self.pod or self.ended_pod
        return () if pod is None else pod.gpus

    @property
    def pod_since(self) -> float:
        """Return when the trial's pod was created; 0 without a pod."""
        return 0.0 if self.pod is None else self.pod.since

    @property
    def terminating(self) -> bool:
        """Return whether the trial's pod is being deleted."""
        pod = self.pod or self.ended_pod
        return pod is not None and pod.terminating

    @property
    def ends_soon(self) -> bool:
        """Return whether the trial's pod is being deleted and will be gone soon."""
        pod = self.pod or self.ended_pod
        return pod is not None and pod.ends_soon

    @property
    def termination_overdue(self) -> bool:
        """Return whether the trial's pod should have been gone for a long time."""
        pod = self.pod or self.ended_pod
        return pod is not None and pod.termination_overdue

    @property
    def in_migration(self) -> bool:
        """Return whether the trial is being migrated: its new pod has no GPU yet, or does not exist yet."""
        move = self.relocation
        return move.migration in IN_PROGRESS and move.target is not None and not (move.migrated and self.gpus)


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
        return self if job.abilities.suspendable else Costs(self.requeue, 0.0, self.requeue)


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
    queues: tuple[QueueView, ...] = ()  # empty: jobs share the GPUs without queues
    reserves_gpus: bool = False  # GPUs are held by reservation pods, so a job's queue may be one of Kueue
    _trials_by_job: dict[JobKey, list[TrialView]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _gpus_by_trial: dict[TrialKey, list[str]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _holders: dict[TrialKey, TrialView] = field(default_factory=dict, init=False, repr=False, compare=False)

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

    @property
    def holders(self) -> Mapping[TrialKey, TrialView]:
        """Return the trials that hold a GPU, by key. They are collected once, for all users."""
        if not self._holders:
            held = {gpu.holder for gpu in self.gpus}
            self._holders.update((trial.key, trial) for trial in self.trials if trial.key in held)
        return self._holders

    @property
    def gpus_by_trial(self) -> Mapping[TrialKey, Sequence[str]]:
        """Return the UUIDs of the GPUs that report each trial. They are collected once, for all users."""
        if not self._gpus_by_trial:
            for gpu in self.gpus:
                for key in gpu.trials:
                    self._gpus_by_trial.setdefault(key, []).append(gpu.uuid)
        return self._gpus_by_trial
