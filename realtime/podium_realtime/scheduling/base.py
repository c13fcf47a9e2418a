"""What a real-time policy is, and what it may look at. The dispatcher asks; policies answer and keep no state.

The same policies drive the simulated GPU and the runtime on real cores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from podium_realtime.model.task import PeriodicTask
from podium_realtime.scheduling.pool import ContextSpec, StreamPriority
from podium_realtime.scheduling.work import Job, ReadyStage, Work

Key = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """May this job run? `home`: the context that it is bound to, -1 for any."""

    accepted: bool
    code: str
    message: str
    home: int = -1


@dataclass(slots=True)
class ContextState:
    """One context: what waits for it, what is on it."""

    spec: ContextSpec
    queued: list[ReadyStage] = field(default_factory=list)
    streams: list[list[Work]] = field(default_factory=list)

    @property
    def heads(self) -> int:
        """Works that are on the device or on their way to it: one a stream."""
        return sum(map(bool, self.streams))

    @property
    def committed(self) -> int:
        return sum(map(len, self.streams))

    @property
    def has_room(self) -> bool:
        """One more stage can be on the device at once."""
        return self.heads < self.spec.in_flight

    def is_idle(self, priority: StreamPriority) -> bool:
        """SGPRS' "idle": a stage for a stream of this priority that is put here starts at once."""
        own = (works for found, works in zip(self.spec.streams, self.streams, strict=True) if found is priority)
        return self.has_room and not self.queued and not all(own)

    def works(self) -> list[Work]:
        return [work for stream in self.streams for work in stream]


@dataclass(slots=True)
class Board:
    """What a policy sees. `expected(stage, context)`: seconds by the profile, or the recent maximum where the policy
    asks for that. `span`: what such a job takes lately from its first launch to its end; `least`: what it takes alone
    in the fastest context. `positions`: each task's place among the tasks, by name; `active`: the jobs under way.
    """

    now: float
    tasks: Sequence[PeriodicTask]
    positions: Mapping[str, int]
    contexts: Sequence[ContextState]
    expected: Callable[[ReadyStage, int], float]
    network_time: Callable[[PeriodicTask, int], float]
    span: Callable[[PeriodicTask], float]
    least: Callable[[PeriodicTask], float]
    active: Mapping[tuple[str, int], Job]


class Policy(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def recent(self) -> bool:
        """True: expected times are recent maxima instead of the profile's (DARIS)."""
        ...

    @property
    def staged(self) -> bool:
        """False: a network is one stage."""
        ...

    def admit(self, job: Job, board: Board) -> Verdict:
        """Asked at each release."""
        ...

    def place(self, ready: ReadyStage, board: Board) -> int | None:
        """The context whose queue it joins; None: the queue that all contexts share. Asked once, when it is ready."""
        ...

    def key(self, ready: ReadyStage, now: float) -> Key:
        """The smallest key in a queue goes first."""
        ...

    def stream(self, ready: ReadyStage) -> StreamPriority: ...

    def sheds(self, ready: ReadyStage, waiting: int, board: Board) -> bool:
        """True: drop this job; asked only before its first stage starts. `waiting`: other jobs that have not begun."""
        ...

    def mates(self, head: ReadyStage, others: Sequence[ReadyStage], context: int, board: Board) -> Sequence[ReadyStage]:
        """Which of `others` (same stage of other jobs, in the queue's order) run in one batch with `head`."""
        ...


class PlainPolicy:
    """What most policies answer: everybody is admitted, nothing is shed, nothing is batched, low streams only."""

    recent: ClassVar[bool] = False
    staged: ClassVar[bool] = True

    def admit(self, job: Job, board: Board) -> Verdict:
        return Verdict(True, "Admitted", "this policy admits every job.")

    def stream(self, ready: ReadyStage) -> StreamPriority:
        return StreamPriority.LOW

    def sheds(self, ready: ReadyStage, waiting: int, board: Board) -> bool:
        return False

    def mates(self, head: ReadyStage, others: Sequence[ReadyStage], context: int, board: Board) -> Sequence[ReadyStage]:
        return ()
