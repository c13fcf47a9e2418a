"""Decisions of the planner, as values. The operator's actuator (or the simulator) carries them out.

Every action gives a CamelCase reason and a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import overload

from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.domain.population import Lineage


@dataclass(frozen=True, slots=True)
class CreateTrial:
    """Ask the searcher for the parameters of trial `number` and create it.

    `lineage`: the trial continues from another one, with perturbed parameters.
    """

    job: JobKey
    number: int
    reason: str
    message: str
    lineage: Lineage | None = None


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Start attempt `attempt` of a trial that has no pod."""

    trial: TrialKey
    attempt: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete the pod of a trial that must not continue.

    The trial is stopped, its job is suspended before its start, or its job is finished.
    """

    trial: TrialKey
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """Delete the pod within its grace period, in which the trial checkpoints.

    A new pod continues it on any node.

    `reason` is one of `phase.REQUEUES`. It is written on the pod, and the phase Requeued of the trial repeats it.
    `target` is the node that the new pod prefers, or None.
    """

    trial: TrialKey
    reason: str
    message: str
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Migrate:
    """Migrate the running trial to node `target` (`domain.migration`).

    Its pod remains until the image exists.
    """

    trial: TrialKey
    target: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class EndTrial:
    """Set a final phase."""

    trial: TrialKey
    phase: TrialPhase
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class TrialRank:
    """Rank of a trial in its job and, if it has a GPU, its position there, with the reason."""

    trial: TrialKey
    rank: int  # 1 = best of its job
    reason: str
    message: str
    gain: float | None = None  # if it takes its GPU from a trial of its job by its score: the difference of scores
    on_hold: bool = False  # it has several workers, and is not to hold the GPUs of all of them now


@dataclass(frozen=True, slots=True)
class WriteRunQueues:
    """Write the run queues of all GPUs of one node, at once and with a new epoch."""

    node: str
    epoch: int
    gpus: tuple[tuple[str, tuple[TrialRank, ...]], ...]  # (uuid, run queue), sorted by uuid
    preempting: tuple[str, ...] = ()  # GPUs whose first trial takes them from their holder


@dataclass(frozen=True, slots=True)
class EndJob:
    """Set the final phase of a job."""

    job: JobKey
    succeeded: bool
    reason: str
    message: str


Action = CreateTrial | CreatePod | DeletePod | Requeue | Migrate | EndTrial | WriteRunQueues | EndJob


class LazyRanks(Sequence[TrialRank]):
    """Ranks that are built when they are first read.

    The simulator never reads them, and sentences are most of the cost of a plan.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Iterable[TrialRank]] = tuple) -> None:
        self._make = make
        self._made: tuple[TrialRank, ...] | None = None

    @property
    def _all(self) -> tuple[TrialRank, ...]:
        if self._made is None:
            self._made = tuple(self._make())
        return self._made

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> TrialRank: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[TrialRank]: ...
    def __getitem__(self, index: int | slice) -> TrialRank | Sequence[TrialRank]:
        return self._all[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LazyRanks) and self._all == other._all

    def __hash__(self) -> int:
        return hash(self._all)

    def __repr__(self) -> str:
        return repr(self._all)


@dataclass(frozen=True, slots=True)
class Plan:
    """All that one planning cycle decided, with the rank of each trial."""

    actions: tuple[Action, ...]
    ranks: LazyRanks = field(default_factory=LazyRanks)  # each unfinished trial, by job then rank
    # when to plan again if nothing happens before: a time slice, a back-off or a deadline ends
    wake_at: float | None = None
