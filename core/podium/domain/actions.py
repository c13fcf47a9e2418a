"""What the planner decides, as values: the operator's actuator (or the simulated world) carries them out.

Every action says why, with a CamelCase reason and a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

from podium.domain.phase import TrialPhase
from podium.domain.snapshot import JobKey, TrialKey


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
    """

    trial: TrialKey
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
class Place:
    """One place in the order of a GPU."""

    trial: TrialKey
    rank: int  # 1 = best of its job
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Order:
    """The whole order of one node, written at once with a new epoch."""

    node: str
    epoch: int
    gpus: tuple[tuple[str, tuple[Place, ...]], ...]  # (uuid, places), sorted by uuid


@dataclass(frozen=True, slots=True)
class EndJob:
    job: JobKey
    succeeded: bool
    reason: str
    message: str


Action = CreateTrial | CreatePod | DeletePod | Requeue | EndTrial | Order | EndJob


@dataclass(frozen=True, slots=True)
class Plan:
    """All that one cycle decided, with each trial's rank and the reason for its place."""

    actions: tuple[Action, ...]
    ranks: tuple[Place, ...] = ()  # each unfinished trial, by job then rank
    wake_at: float | None = None  # when to plan again if nothing happens before: a turn, a back-off or a deadline ends
