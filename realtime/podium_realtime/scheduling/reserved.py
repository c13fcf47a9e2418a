"""Keeps the promises of the admission test: each task in the context it was promised, EDF by the job's deadline.

Used with a pool of one stage in flight per context (`reserved_pool`); `admission.demand` proves the deadlines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from podium_realtime.scheduling.base import Board, Key, PlainPolicy
from podium_realtime.scheduling.pool import ContextSpec, context_pool
from podium_realtime.scheduling.work import ReadyStage


@dataclass(frozen=True, slots=True)
class Reserved(PlainPolicy):
    """`homes`: the context of each task, by name."""

    homes: Mapping[str, int]
    name: ClassVar[str] = "reserved"

    def place(self, ready: ReadyStage, board: Board) -> int | None:
        return self.homes[ready.job.task.name]

    def key(self, ready: ReadyStage, now: float) -> Key:
        return (ready.job.deadline,)


def reserved_pool(device_sms: int, contexts: int, oversubscription: float = 1.0) -> tuple[ContextSpec, ...]:
    """One stage in flight per context: a stage's worst time then depends on the other contexts alone."""
    return context_pool(device_sms, contexts, oversubscription, high=0, low=1, in_flight=1)
