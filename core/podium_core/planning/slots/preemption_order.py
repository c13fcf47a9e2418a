"""Order in which Kueue should preempt GPU reservations: first the one whose trials would repeat the least work. Pure.

Kueue 0.17 adds the annotation `kueue.x-k8s.io/priority-boost` of a Workload to the Workload's priority. The sum decides
which Workload is preempted first, and also whether it may be preempted at all. Two rules follow:

- No boost lifts a reservation to priority 0, the default of pods: every other Workload can still preempt it.
- Only admitted reservations have a boost: one that waits cannot preempt an admitted one of the same priority.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

DEFAULT_POD_PRIORITY = 0
NEGLIGIBLE = 10.0  # GPU-seconds: smaller costs do not differ


@dataclass(frozen=True, slots=True)
class AdmittedReservation:
    """A reservation that Kueue has admitted to a ClusterQueue.

    `priority`: of its pod; `cost`: GPU-seconds that the trials on its GPU would repeat after a preemption.
    """

    uid: str
    cluster_queue: str
    priority: int
    cost: float


def cost_class(gpu_seconds: float) -> int:
    """Return the class of a cost: costs of one class do not differ by more than a factor of two.

    Costs grow all the time, and each change of a class is a write to the API server.
    """
    return 0 if gpu_seconds < NEGLIGIBLE else 1 + int(math.log2(gpu_seconds / NEGLIGIBLE))


def priority_boosts(reservations: Iterable[AdmittedReservation]) -> Mapping[str, int]:
    """Return the boost of each reservation by uid: 0 for the cheapest of a ClusterQueue, then 1, 2, ...

    The priority limits the highest boost: with -2 it is 1, so only the cheapest ones differ from the others.
    O(reservations log reservations).
    """
    classes: dict[str, set[int]] = {}
    reservations = list(reservations)
    for one in reservations:
        classes.setdefault(one.cluster_queue, set()).add(cost_class(one.cost))
    ranks = {queue: {number: rank for rank, number in enumerate(sorted(found))} for queue, found in classes.items()}
    return {
        one.uid: min(ranks[one.cluster_queue][cost_class(one.cost)], highest_boost(one.priority))
        for one in reservations
    }


def highest_boost(priority: int) -> int:
    """Return the highest boost that leaves the reservation below all pods of the default priority."""
    return max(0, DEFAULT_POD_PRIORITY - 1 - priority)
