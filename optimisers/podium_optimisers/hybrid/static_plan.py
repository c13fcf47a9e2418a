"""A static plan from predicted durations (node and order of each job), with work stealing.

The plan is LPT: jobs by predicted GPU-seconds, longest first, each to the node with the least planned work (Graham,
SIAM J. Applied Mathematics 17, 1969). For nodes with one GPU and exact predictions the makespan is at most 4/3 - 1/(3m)
of the optimum. Predictions are never exact: without correction, a node whose jobs were shorter idles while others are
late. With work stealing, a node with free GPUs takes the longest planned job that fits from the node with the most work
left. Jobs that arrive after the plan was made join the node with the least work left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podium_optimisers.arrays import Floats
from podium_optimisers.engine.cluster import GpuCluster, PreemptionCosts
from podium_optimisers.engine.simulation import JobState, Simulation
from podium_optimisers.engine.workload import Workload, WorkloadError


def lpt_node_plan(predicted: Sequence[float], gpus: Sequence[int], cluster: GpuCluster) -> tuple[tuple[int, ...], ...]:
    """Return for each node the rows that it runs, in order. O(n log n + n nodes)."""
    order = sorted(range(len(predicted)), key=lambda row: (-predicted[row] * gpus[row], row))
    node_queues: list[list[int]] = [[] for _ in range(cluster.nodes)]
    work = [0.0] * cluster.nodes
    for row in order:
        node = min(range(cluster.nodes), key=lambda node: (work[node], node))
        node_queues[node].append(row)
        work[node] += predicted[row] * gpus[row]
    return tuple(tuple(node_queue) for node_queue in node_queues)


@dataclass(frozen=True, slots=True)
class StaticPlanPolicy:
    """The static plan as a policy. `predicted`: seconds for each row of the workload, shape (n,).

    The plan covers the jobs that are present at time 0. `work_stealing`: whether a node with free GPUs takes jobs that
    are planned elsewhere.
    """

    predicted: Floats
    work_stealing: bool = True
    name: str = "static-plan"

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> StaticPlanScheduler:
        """Return a new scheduler for one simulation.

        Raises WorkloadError if a gang is wider than a node or a prediction is not a positive, finite duration.
        """
        workload.check_width(cluster.gpus_per_node)
        if len(self.predicted) != len(workload):
            text = f"there are {len(self.predicted)} values for {len(workload)} jobs; give one value for each job."
            raise WorkloadError("ColumnsDiffer", "(all)", "predicted", text)
        for row, seconds in enumerate(self.predicted.tolist()):
            if not 0.0 < seconds < float("inf"):
                text = f"{seconds} s is out of range; give finite seconds above 0."
                raise WorkloadError("InvalidValue", workload.name(row), "predicted", text)
        return StaticPlanScheduler(workload, cluster, self.predicted.tolist(), self.work_stealing)


class StaticPlanScheduler:
    """The node queues of one simulation. The work left counts planned jobs that have not started."""

    def __init__(self, workload: Workload, cluster: GpuCluster, predicted: list[float], work_stealing: bool) -> None:
        self.work_stealing = work_stealing
        self._work = [seconds * int(gpus) for seconds, gpus in zip(predicted, workload.gpus, strict=True)]
        planned_rows = [row for row in range(len(workload)) if workload.arrival[row] == 0.0]
        planned = lpt_node_plan(
            [predicted[row] for row in planned_rows], [int(workload.gpus[row]) for row in planned_rows], cluster
        )
        self._node_queues: list[list[int]] = [
            [planned_rows[position] for position in node_queue] for node_queue in planned
        ]
        self._work_left = [sum(self._work[row] for row in node_queue) for node_queue in self._node_queues]
        self._planned_rows = set(planned_rows)
        self._waiting: dict[int, JobState] = {}

    def on_arrival(self, simulation: Simulation, job: JobState) -> None:
        """Record an arrival; an unplanned job joins the node with the least work left."""
        self._waiting[job.index] = job
        if job.index not in self._planned_rows:
            node = min(range(len(self._work_left)), key=lambda node: (self._work_left[node], node))
            self._node_queues[node].append(job.index)
            self._work_left[node] += self._work[job.index]

    def on_completion(self, simulation: Simulation, job: JobState) -> None:
        """Do nothing: `decide` reads the free GPUs from the simulation."""

    def on_timer(self, simulation: Simulation, job: JobState) -> None:
        """Do nothing: this scheduler sets no timers."""

    def decide(self, simulation: Simulation) -> None:
        """Start the planned jobs that fit on their nodes, then let idle nodes steal work."""
        for node, node_queue in enumerate(self._node_queues):
            while node_queue and self._waiting[node_queue[0]].gpus <= simulation.pool.free_counts[node]:
                self._start(simulation, node, node, 0)
        if not self.work_stealing:
            return
        for node in range(len(self._node_queues)):
            while simulation.pool.free_counts[node] and self._steal_job(simulation, node):
                pass

    def _steal_job(self, simulation: Simulation, node: int) -> bool:
        """Start a planned job that fits on `node`, from the node with the most work left.

        The node's own queue counts as well. Returns False if no job fits.
        """
        free = simulation.pool.free_counts[node]
        for victim in sorted(range(len(self._node_queues)), key=lambda victim: (-self._work_left[victim], victim)):
            fits = [at for at, row in enumerate(self._node_queues[victim]) if self._waiting[row].gpus <= free]
            if fits:
                longest = max(fits, key=lambda at: (self._work[self._node_queues[victim][at]], -at))
                self._start(simulation, node, victim, longest)
                return True
        return False

    def _start(self, simulation: Simulation, node: int, victim: int, at: int) -> None:
        row = self._node_queues[victim].pop(at)
        self._work_left[victim] -= self._work[row]
        simulation.start(self._waiting.pop(row), node)
