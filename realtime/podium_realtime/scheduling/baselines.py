"""What SGPRS and DARIS are compared with: naive contexts, one stream, batching. All see a network as one stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from podium_realtime.scheduling.base import Board, Key, PlainPolicy
from podium_realtime.scheduling.pool import ContextSpec, StreamPriority
from podium_realtime.scheduling.work import ReadyStage


@dataclass(frozen=True, slots=True)
class Naive(PlainPolicy):
    """Contexts of the whole device, tasks pinned to them in turn, each with a stream of its own. Nobody waits for
    anybody: all that is released runs at once. The SGPRS repository's baseline, but for its odd tasks, which are in
    high streams there; here all are alike.
    """

    name: ClassVar[str] = "naive"
    staged: ClassVar[bool] = False

    def place(self, ready: ReadyStage, board: Board) -> int | None:
        return board.positions[ready.job.task.name] % len(board.contexts)

    def key(self, ready: ReadyStage, now: float) -> Key:
        return (ready.ready,)


def naive_pool(device_sms: int, contexts: int, tasks: int) -> tuple[ContextSpec, ...]:
    """`contexts` of the whole device, with as many streams as tasks can be there."""
    streams = (StreamPriority.LOW,) * -(-tasks // contexts)
    return tuple(ContextSpec(number, device_sms, streams, len(streams)) for number in range(contexts))


@dataclass(frozen=True, slots=True)
class SingleStream(PlainPolicy):
    """One net after another on the whole device, EDF."""

    name: ClassVar[str] = "single"
    staged: ClassVar[bool] = False

    def place(self, ready: ReadyStage, board: Board) -> int | None:
        return 0

    def key(self, ready: ReadyStage, now: float) -> Key:
        return (ready.job.deadline,)


@dataclass(frozen=True, slots=True)
class Batching(SingleStream):
    """As SingleStream, but what waits for the same network goes along, up to `most` frames."""

    most: int = 10
    name: ClassVar[str] = "batching"

    def mates(self, head: ReadyStage, others: Sequence[ReadyStage], context: int, board: Board) -> Sequence[ReadyStage]:
        return others[: self.most - 1]


def single_pool(device_sms: int, depth: int) -> tuple[ContextSpec, ...]:
    """One context, one stream. depth 1: a synchronisation after each frame; 2: the next is launched meanwhile."""
    return (ContextSpec(0, device_sms, (StreamPriority.LOW,), 1, depth),)
