"""Weighted max-min fair shares of GPUs between queues.

No queue can get more without taking from a queue that has no more per unit of weight. All shares rise together, each at
the speed of its weight (progressive filling: Bertsekas and Gallager, Data Networks, 1992, section 6.5.2). With one
resource this is dominant resource fairness. A property test compares it with `podium_optimisers.sharing`, whose proofs
hold for it too.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from podium_core.domain.gpu_queue import QueueView

HORIZON = 30.0  # seconds in which a queue makes up for what it got less than it deserved: one time slice between jobs


@dataclass(frozen=True, slots=True)
class Claim:
    """GPUs that a queue can use now: `demand`, within its quota and what it may borrow.

    `width`: fewest GPUs that one of its trials needs.
    """

    queue: QueueView
    demand: int
    width: int = 1

    @property
    def by_right(self) -> int:
        """Return the usable GPUs within the quota."""
        usable = self.most
        return usable if self.queue.gpus is None else min(usable, self.queue.gpus)

    @property
    def most(self) -> int:
        """Return the usable GPUs within the quota and what the queue may borrow."""
        most = self.queue.most
        return self.demand if most is None else min(self.demand, most)


def deserved_gpus(claims: Sequence[Claim], gpus: int) -> list[float]:
    """Return the GPUs that each queue deserves now, as parts of GPUs. O(n log n).

    First each queue gets its minimum. Then all rise by weight up to their quotas. What is left is lent by weight.
    """
    weights = [claim.queue.weight for claim in claims]
    minima = [float(min(claim.queue.minimum, claim.by_right)) for claim in claims]
    granted = fill(gpus, weights, [0.0] * len(claims), minima)
    by_right = fill(gpus, weights, granted, [float(claim.by_right) for claim in claims])
    return fill(gpus, weights, by_right, [float(claim.most) for claim in claims])


def nominal_gpus(queues: Sequence[QueueView], gpus: int) -> list[float]:
    """Return the GPUs of each queue while all queues have enough trials."""
    caps = [float(gpus if queue.gpus is None else min(gpus, queue.gpus)) for queue in queues]
    weights = [queue.weight for queue in queues]
    minima = fill(
        gpus, weights, [0.0] * len(queues), [min(queue.minimum, cap) for queue, cap in zip(queues, caps, strict=True)]
    )
    return fill(gpus, weights, minima, caps)


def fill(capacity: float, weights: Sequence[float], floors: Sequence[float], caps: Sequence[float]) -> list[float]:
    """Return max(floor, min(cap, level * weight)) for each, with the level at which the capacity is spent.

    The floors need no more than the capacity, and none is above its cap.
    """
    if sum(caps) <= capacity:
        return list(caps)
    parts = list(zip(weights, floors, caps, strict=True))
    changes = [(floor / w, w) for w, floor, _ in parts] + [(cap / w, -w) for w, _, cap in parts]
    spent, level, speed, rising = sum(floors), 0.0, 0.0, 0
    for at, change in sorted(changes, key=lambda c: (c[0], -c[1])):  # a share starts to rise before it stops
        if speed > 0.0 and spent + speed * (at - level) >= capacity:
            break
        spent, level, rising = spent + speed * (at - level), at, rising + (1 if change > 0.0 else -1)
        speed = max(0.0, speed + change) if rising else 0.0  # without the rest of a sum of floats
    level += max(0.0, capacity - spent) / speed if speed > 0.0 else 0.0
    return [max(floor, min(cap, level * w)) for w, floor, cap in parts]


def whole_gpus(claims: Sequence[Claim], deserved: Sequence[float], gpus: int) -> list[int]:
    """Return the whole GPUs that each queue is to hold now. O(n + GPUs log n).

    The wish of a queue is deserved + (deserved GPU-seconds - used GPU-seconds) / HORIZON. The correction is at most
    what the queue deserves, or the GPUs of one trial if it deserves less. Each GPU in turn goes to the queue whose wish
    exceeds its GPUs the most, so no usable GPU is left over.
    """
    wishes = [part + correction(claim, part) for claim, part in zip(claims, deserved, strict=True)]
    given = [0] * len(claims)
    heap = [(-wish, _lag(claim), index) for index, (claim, wish) in enumerate(zip(claims, wishes, strict=True))]
    heap = [entry for entry in heap if claims[entry[2]].most > 0]
    heapq.heapify(heap)
    for _ in range(gpus):
        if not heap:
            break
        missing, lag, index = heap[0]
        given[index] += 1
        if given[index] < claims[index].most:
            heapq.heapreplace(heap, (missing + 1.0, lag, index))
        else:
            heapq.heappop(heap)
    return given


def correction(claim: Claim, deserved: float) -> float:
    """Return the GPUs by which a queue's past moves its wish.

    Without the width, the wish of a queue whose trials need more GPUs than it deserves would never suffice for one.
    """
    limit = max(float(claim.width), deserved)
    return max(-limit, min(limit, -_lag(claim) / HORIZON))


def _lag(claim: Claim) -> float:
    """Return the GPU-seconds that a queue used beyond those it deserved."""
    return claim.queue.usage.used - claim.queue.usage.deserved
