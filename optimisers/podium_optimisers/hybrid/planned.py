"""A static plan (which job on which node, in which sequence) made from predicted durations, and its correction at work.

The plan is LPT: jobs by predicted GPU-seconds, longest first, each to the node with the least planned work for each GPU
(Graham, SIAM J. Applied Mathematics 17, 1969; 4/3 - 1/(3m) of the optimum for one-GPU nodes if the predictions were
true). Predictions are never true. Run literally, a node whose jobs were shorter idles while others are late.
Corrected, a node with free GPUs takes the longest planned job that fits from the node with the most work left. Jobs
that nobody knew when the plan was made join the node with the least work left. Called by benchmarks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podium_optimisers.engine.cluster import Cluster, Costs
from podium_optimisers.engine.simulation import JobState, Simulation
from podium_optimisers.engine.workload import Floats, Workload, WorkloadError


def plan_nodes(predicted: Sequence[float], gpus: Sequence[int], cluster: Cluster) -> tuple[tuple[int, ...], ...]:
    """For each node the rows it runs, in sequence. O(n log n + n nodes)."""
    order = sorted(range(len(predicted)), key=lambda row: (-predicted[row] * gpus[row], row))
    lanes: list[list[int]] = [[] for _ in range(cluster.nodes)]
    work = [0.0] * cluster.nodes
    for row in order:
        node = min(range(cluster.nodes), key=lambda node: (work[node], node))
        lanes[node].append(row)
        work[node] += predicted[row] * gpus[row]
    return tuple(tuple(lane) for lane in lanes)


@dataclass(frozen=True, slots=True)
class Planned:
    """`predicted`: seconds for each row of the workload, shape (n,). The plan is made of the jobs that are there at
    time 0. Errors: WorkloadError when a gang is wider than a node, or a prediction is no duration.
    """

    predicted: Floats
    corrected: bool = True
    name: str = "static-plan"

    def begin(self, workload: Workload, cluster: Cluster, costs: Costs) -> PlannedDecider:
        workload.check_width(cluster.gpus_per_node)
        if len(self.predicted) != len(workload):
            text = f"there are {len(self.predicted)} values for {len(workload)} jobs; give one for each."
            raise WorkloadError("ColumnsDiffer", "(all)", "predicted", text)
        for row, seconds in enumerate(self.predicted.tolist()):
            if not 0.0 < seconds < float("inf"):
                text = f"{seconds} s is no duration; give finite seconds above 0."
                raise WorkloadError("InvalidValue", workload.name(row), "predicted", text)
        return PlannedDecider(workload, cluster, self.predicted.tolist(), self.corrected)


class PlannedDecider:
    """The lanes of one run. Work left counts what is planned and has not begun, by prediction."""

    def __init__(self, workload: Workload, cluster: Cluster, predicted: list[float], corrected: bool) -> None:
        self.corrected = corrected
        self._work = [seconds * int(gpus) for seconds, gpus in zip(predicted, workload.gpus, strict=True)]
        early = [row for row in range(len(workload)) if workload.arrival[row] == 0.0]
        planned = plan_nodes([predicted[row] for row in early], [int(workload.gpus[row]) for row in early], cluster)
        self._lanes: list[list[int]] = [[early[place] for place in lane] for lane in planned]
        self._left = [sum(self._work[row] for row in lane) for lane in self._lanes]
        self._known = set(early)
        self._waiting: dict[int, JobState] = {}

    def arrived(self, simulation: Simulation, job: JobState) -> None:
        self._waiting[job.index] = job
        if job.index not in self._known:
            node = min(range(len(self._left)), key=lambda node: (self._left[node], node))
            self._lanes[node].append(job.index)
            self._left[node] += self._work[job.index]

    def finished(self, simulation: Simulation, job: JobState) -> None: ...

    def alarmed(self, simulation: Simulation, job: JobState) -> None: ...

    def decide(self, simulation: Simulation) -> None:
        for node, lane in enumerate(self._lanes):
            while lane and self._waiting[lane[0]].gpus <= simulation.pool.counts[node]:
                self._start(simulation, node, node, 0)
        if not self.corrected:
            return
        for node in range(len(self._lanes)):
            while simulation.pool.counts[node] and self._take_over(simulation, node):
                pass

    def _take_over(self, simulation: Simulation, node: int) -> bool:
        """Something planned that fits on `node` now, from where most is left. Its own lane counts as the others do."""
        free = simulation.pool.counts[node]
        for giver in sorted(range(len(self._lanes)), key=lambda giver: (-self._left[giver], giver)):
            fits = [at for at, row in enumerate(self._lanes[giver]) if self._waiting[row].gpus <= free]
            if fits:
                longest = max(fits, key=lambda at: (self._work[self._lanes[giver][at]], -at))
                self._start(simulation, node, giver, longest)
                return True
        return False

    def _start(self, simulation: Simulation, node: int, giver: int, at: int) -> None:
        row = self._lanes[giver].pop(at)
        self._left[giver] -= self._work[row]
        simulation.start(self._waiting.pop(row), node)
