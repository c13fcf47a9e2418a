"""What the planner decides, as values: the operator's actuator (or the simulated world) carries them out.

Every action says why, with a CamelCase reason and a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import overload

from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import JobKey, TrialKey


@dataclass(frozen=True, slots=True)
class CreateTrial:
    """Ask the searcher for the parameters of trial `number` and create it."""

    job: JobKey
    number: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Start attempt `attempt` of a trial that has no pod."""

    trial: TrialKey
    attempt: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Remove the pod of a trial that must not go on (stopped, job suspended before its start, job finished)."""

    trial: TrialKey
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """Take the pod away with its own grace period, in which the trial saves; a new pod goes on from there, anywhere.

    `reason` is one of `phase.REQUEUES`: it is stamped on the pod, and the trial's phase Requeued keeps it.
    `target`: the node that the new pod prefers; None: none.
    """

    trial: TrialKey
    reason: str
    message: str
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Migrate:
    """Take the live trial to node `target` (`domain.carrying`): its pod stays until its image is made."""

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
    """One place in the order of a GPU."""

    trial: TrialKey
    rank: int  # 1 = best of its job
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class WriteRunQueues:
    """The whole order of one node, written at once with a new epoch."""

    node: str
    epoch: int
    gpus: tuple[tuple[str, tuple[TrialRank, ...]], ...]  # (uuid, places), sorted by uuid
    preempting: tuple[str, ...] = ()  # GPUs whose first trial is to take them from one that works there


@dataclass(frozen=True, slots=True)
class EndJob:
    job: JobKey
    succeeded: bool
    reason: str
    message: str


Action = CreateTrial | CreatePod | DeletePod | Requeue | Migrate | EndTrial | WriteRunQueues | EndJob


class LazyRanks(Sequence[TrialRank]):
    """Places that are made when somebody reads them: the simulator never does, and sentences are most of a plan."""

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
    """All that one cycle decided, with each trial's rank and the reason for its place."""

    actions: tuple[Action, ...]
    ranks: LazyRanks = field(default_factory=LazyRanks)  # each unfinished trial, by job then rank
    wake_at: float | None = None  # when to plan again if nothing happens before: a turn, a back-off or a deadline ends
