"""GPU-seconds that each queue deserved and used in the window. Pure; the operator and the simulator keep one.

A GPU-second that is t seconds old counts exp(-t / WINDOW). With the rates of the last plan, d' = rate - d / WINDOW, so
the sums are exact between two plans and need no history.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from podium_core.domain.gpu_queue import DEFAULT_QUEUE, QueueShare, QueueUsage, QueueView

WINDOW = 3600.0  # seconds: weight of an hour-old GPU-second is 1/e


@dataclass(frozen=True, slots=True)
class QueueLedger:
    """Usage of each queue at the time `at`, and its GPUs since then: deserved and held."""

    at: float = 0.0
    usage: Mapping[str, QueueUsage] = field(default_factory=dict)
    rates: Mapping[str, tuple[float, int]] = field(default_factory=dict)

    def usage_at(self, now: float) -> Mapping[str, QueueUsage]:
        """Return the usage of each queue at a later time; an earlier one counts as no time."""
        return {name: self._of(name, max(0.0, now - self.at)) for name in self.usage.keys() | self.rates.keys()}

    def record(self, now: float, shares: Iterable[QueueShare]) -> QueueLedger:
        """Return the ledger after a plan: its shares hold until the next one."""
        return QueueLedger(now, self.usage_at(now), {share.queue: (share.deserved, share.held) for share in shares})

    def with_stored(self, stored: Mapping[str, QueueUsage], now: float) -> QueueLedger:
        """Return the ledger at the time `now`, with the stored usage of the queues that it does not know yet."""
        return QueueLedger(now, {**stored, **self.usage_at(now)}, self.rates)

    def only(self, names: Set[str]) -> QueueLedger:
        """Return the ledger without the queues that no longer exist."""
        if names >= self.usage.keys() | self.rates.keys():
            return self
        usage = {name: one for name, one in self.usage.items() if name in names}
        return QueueLedger(self.at, usage, {name: one for name, one in self.rates.items() if name in names})

    def _of(self, name: str, seconds: float) -> QueueUsage:
        before, (deserved, held) = self.usage.get(name, QueueUsage()), self.rates.get(name, (0.0, 0))
        kept = math.exp(-seconds / WINDOW)
        added = WINDOW * (1.0 - kept)
        return QueueUsage(
            before.deserved * kept + deserved * added, before.used * kept + held * added, before.total + held * seconds
        )


def faded(usage: QueueUsage, seconds: float) -> QueueUsage:
    """Return stored usage after this many seconds without any."""
    kept = math.exp(-max(0.0, seconds) / WINDOW)
    return QueueUsage(usage.deserved * kept, usage.used * kept, usage.total)


def with_usage(queues: Iterable[QueueView], usage: Mapping[str, QueueUsage]) -> tuple[QueueView, ...]:
    """Return the queues with their usage.

    The default queue is added if they lack it. Without queues there is none.
    """
    views = {queue.name: queue for queue in queues}
    if not views:
        return ()
    views.setdefault(DEFAULT_QUEUE, QueueView(DEFAULT_QUEUE))
    return tuple([replace(queue, usage=usage.get(name, queue.usage)) for name, queue in views.items()])
