"""Values that the trial's script sends to the agent (`podium.trial.report` with metrics.source push).

The server of the socket (`push_server`) puts records into the queue of the pod, and the source takes them. A record is
acknowledged when the trial's status holds it, so the script sends again what an agent that died had only in memory.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from podium_agent.observe.sources.base import line_at
from podium_cluster import clock
from podium_core.logs.line_reader import line_reader
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.batch import Batch, Position

MAX_QUEUED = 1024  # records of a pod in memory; a script that sends more waits
MAX_BATCH = 256
MAX_SESSIONS = 16  # processes of one pod whose records are acknowledged
MAX_FLUSHES = 8  # in a pod's life: writes of the status before they are due
FILE = "push"  # in the log cursor; the fingerprint is the session, the offset the number of the record


@dataclass(frozen=True, slots=True)
class Record:
    """One report: its number in its session, the monotonic time of its making, and its JSON line."""

    session: str
    number: int
    at: float
    text: str


@dataclass(eq=False, slots=True)
class PushQueue:
    """Records of one pod between the server and the source.

    `stored`: the last number of each session that the status holds, oldest session first.
    """

    records: deque[Record] = field(default_factory=deque)
    stored: dict[str, int] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # records were taken, or stored
    flush: bool = False  # the script ends and waits for the acknowledgement
    flushes: int = 0
    received: dict[str, int] = field(default_factory=dict)
    connected: bool = False
    closed: bool = False

    def add(self, record: Record) -> bool:
        """Add a record; return whether there was room. One that was received before is dropped."""
        if record.number <= max(self.received.get(record.session, 0), self.stored.get(record.session, 0)):
            return True
        if len(self.records) >= MAX_QUEUED:
            return False
        self.records.append(record)
        _remember(self.received, record.session, record.number)
        return True

    def ask_to_flush(self) -> None:
        """Note that the script waits until its records are stored."""
        if self.flushes < MAX_FLUSHES:
            self.flushes += 1
            self.flush = True

    def wake(self) -> None:
        """Wake the connections of the pod."""
        self.changed.set()
        self.changed = asyncio.Event()


class PushQueues:
    """The queues of the pods whose metrics are pushed to this agent."""

    def __init__(self) -> None:
        self._queues: dict[str, PushQueue] = {}

    def open(self, pod_uid: str) -> PushQueue:
        """Return the queue of this pod; a new one if it has none."""
        return self._queues.setdefault(pod_uid, PushQueue())

    def get(self, pod_uid: str) -> PushQueue | None:
        """Return the queue of this pod; None if its metrics are not pushed, or not yet."""
        return self._queues.get(pod_uid)

    def close(self, pod_uid: str) -> None:
        """Forget the queue of this pod, and wake its connections."""
        queue = self._queues.pop(pod_uid, None)
        if queue is not None:
            queue.closed = True
            queue.wake()


class PushSource:
    """Source of the records of one pod."""

    def __init__(
        self, queues: PushQueues, pod_uid: str, metrics: MetricsConfig, position: Position, hurry: Callable[[], None]
    ) -> None:
        """`hurry` is called when the script ends and waits for the status."""
        self.parse = line_reader(metrics)
        self.lost = 0
        self.fault = None
        self._queues = queues
        self._pod_uid = pod_uid
        self._queue = queues.open(pod_uid)
        if position.file == FILE:
            self._queue.stored.setdefault(position.fingerprint, position.offset)
        self._position = position
        self._taken: dict[str, int] = {}
        self._hurry = hurry
        self._any = False

    async def read(self, last: bool) -> Batch:
        """Return the records that came since the last call."""
        queue = self._queue
        taken = [queue.records.popleft() for _ in range(min(MAX_BATCH, len(queue.records)))]
        now, monotonic = clock.now(), time.monotonic()
        lines = tuple(
            line_at(now - max(0.0, monotonic - one.at), one.text, one.number - 1, one.number) for one in taken
        )
        for one in taken:
            _remember(self._taken, one.session, one.number)
            self._position = Position(FILE, one.session, one.number)
            self._any = True
        if taken:
            queue.wake()
        if queue.flush and not queue.records:
            queue.flush = False
            self._hurry()
        return Batch(lines, self._position, bool(queue.records))

    def explain(self) -> str:
        """Return whether the script has connected; empty once it has sent a record."""
        if self._any:
            return ""
        if self._queue.connected:
            return "metrics.source push: the script has connected and reported nothing"
        return "metrics.source push: the script has not called podium.trial.report(step=..., METRIC=...) yet"

    def stored(self, position: Position) -> None:
        """Acknowledge what was taken."""
        if self._taken:
            for session, number in self._taken.items():
                _remember(self._queue.stored, session, number)
            self._taken = {}
            self._queue.wake()

    def close(self) -> None:
        """Forget the queue."""
        self._queues.close(self._pod_uid)


def _remember(numbers: dict[str, int], session: str, number: int) -> None:
    """Set the number of a session, as the newest one; forget the oldest of too many."""
    numbers[session] = max(number, numbers.pop(session, 0))
    while len(numbers) > MAX_SESSIONS:
        del numbers[next(iter(numbers))]
