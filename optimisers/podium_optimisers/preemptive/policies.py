"""The policies that users choose from, and what they may set. Called by benchmarks and by who simulates.

Each makes a fresh decider for a simulation: `simulate(workload, cluster, Srpt(), costs)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from podium_optimisers.engine.cluster import Cluster, Costs
from podium_optimisers.engine.priority import PriorityDecider
from podium_optimisers.engine.workload import Floats, Workload
from podium_optimisers.preemptive.gittins import GittinsOrder, GittinsTable, gittins_table
from podium_optimisers.preemptive.las import AttainedQueues
from podium_optimisers.preemptive.orders import Arrival, Remaining, Shortest, SmallestArea


@dataclass(frozen=True, slots=True)
class Fifo:
    """First come, first served. Strict by default: nobody passes a gang that does not fit yet."""

    backfill: bool = False
    name: str = "fifo"

    def begin(self, workload: Workload, cluster: Cluster, costs: Costs) -> PriorityDecider:
        return PriorityDecider(Arrival(), preemptive=False, backfill=self.backfill)


@dataclass(frozen=True, slots=True)
class Sjf:
    """Shortest job first by true duration; a job that has begun keeps its GPUs."""

    backfill: bool = True
    name: str = "sjf"

    def begin(self, workload: Workload, cluster: Cluster, costs: Costs) -> PriorityDecider:
        return PriorityDecider(Shortest(), preemptive=False, backfill=self.backfill)


@dataclass(frozen=True, slots=True)
class Saf:
    """Smallest area first: least duration times width; a job that has begun keeps its GPUs."""

    backfill: bool = True
    name: str = "saf"

    def begin(self, workload: Workload, cluster: Cluster, costs: Costs) -> PriorityDecider:
        return PriorityDecider(SmallestArea(), preemptive=False, backfill=self.backfill)


@dataclass(frozen=True, slots=True)
class Srpt:
    """Shortest remaining processing time (SRTF). A job gives way only to one that is shorter by more than what it
    costs to bring the first one back, wherever that is.
    """

    name: str = "srpt"

    def begin(self, workload: Workload, cluster: Cluster, costs: Costs) -> PriorityDecider:
        return PriorityDecider(Remaining(costs), preemptive=True, backfill=True, margin=costs.worst)


@dataclass(frozen=True, slots=True)
class Las:
    """Least attained service, two queues by default: the threshold of 18000 GPU-seconds is five GPU-hours."""

    thresholds: tuple[float, ...] = (18000.0,)
    promote: float = math.inf
    name: str = "las"

    def begin(self, workload: Workload, cluster: Cluster, costs: Costs) -> PriorityDecider:
        return PriorityDecider(AttainedQueues(self.thresholds, self.promote), preemptive=True, backfill=True)


@dataclass(frozen=True, slots=True)
class Gittins:
    """Highest Gittins index first, from a history of services: `Gittins.learned(duration * gpus of ended jobs)`."""

    table: GittinsTable
    name: str = "gittins"

    @classmethod
    def learned(cls, services: Floats, steps: int = 64) -> Gittins:
        return cls(gittins_table(services, steps))

    def begin(self, workload: Workload, cluster: Cluster, costs: Costs) -> PriorityDecider:
        return PriorityDecider(GittinsOrder(self.table), preemptive=True, backfill=True)
