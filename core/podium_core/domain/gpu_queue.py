"""A GPUQueue as the planner sees it, and what a plan reports about it."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_QUEUE = "default"  # queue of the jobs that name none; it exists with weight 1 even without an object


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """GPU-seconds of a queue.

    `deserved` and `used` are those of the window: both fade with `queue_ledger.WINDOW`. `total`: all that it ever used.
    """

    deserved: float = 0.0
    used: float = 0.0
    total: float = 0.0


_UNUSED = QueueUsage()


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue as the planner sees it.

    `gpus`: GPUs that it may hold by right, None = any number. `borrowing`: GPUs that it may hold beyond them while they
    are idle, None = any number. `minimum`: GPUs that it gets before all other queues. `namespaces`: those that may use
    it, None = all. `budget`: GPU-seconds after which it gets no GPU.
    """

    name: str
    weight: float = 1.0
    gpus: int | None = None
    borrowing: int | None = None
    minimum: int = 0
    namespaces: frozenset[str] | None = None
    budget: float | None = None
    usage: QueueUsage = _UNUSED

    @property
    def most(self) -> int | None:
        """Return how many GPUs the queue may ever hold, None = any number."""
        if self.budget is not None and self.usage.total >= self.budget:
            return 0
        return None if self.gpus is None or self.borrowing is None else self.gpus + self.borrowing


@dataclass(frozen=True, slots=True)
class QueueShare:
    """Standing of a queue in one plan.

    - `nominal`: GPUs that it gets while all queues have enough trials
    - `deserved`: GPUs that it deserves now, given what the others can use
    - `target`: whole GPUs that it is to hold now, so that its GPU-seconds approach those it deserves
    - `held`: GPUs that its trials hold
    - `borrowed`: GPUs of `held` beyond its quota
    - `waiting`: its unfinished trials without a GPU
    """

    queue: str
    nominal: float
    deserved: float = 0.0
    target: int = 0
    held: int = 0
    borrowed: int = 0
    waiting: int = 0
