"""A hierarchical scheduler: quotas for groups from a forecast, above a dynamic scheduler.

The quotas are static for a period and then renewed. At each instant the scheduler takes three steps:

- A group that uses less than its quota starts its next jobs. It takes back the GPUs that it lent: the jobs with the
  longest prediction in groups beyond their quotas are preempted.
- In a group whose quota is full, the next job preempts jobs of its own group whose prediction is more than twice as
  long.
- GPUs that are still free are lent to the next job that fits, in any group.

A job's length is predicted from completed jobs and doubled each time the job outlives the prediction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from podium_optimisers.engine.cluster import GpuCluster, PreemptionCosts
from podium_optimisers.engine.simulation import JobState, Simulation
from podium_optimisers.engine.waiting_queue import QueueEntry, WaitingQueue
from podium_optimisers.engine.workload import Workload
from podium_optimisers.hybrid.quotas import GroupDemand, forecast_arrivals, plan_quotas
from podium_optimisers.prediction.history import DurationHistory, HistorySettings, job_classes

HOUR = 3600.0
PREEMPTION_FACTOR = 2.0  # a job preempts jobs of its group with a prediction longer by more than this factor


@dataclass(slots=True)
class GroupState:
    """State of one group: its quota and its jobs."""

    name: str
    quota: int = 0
    used: int = 0
    waiting: WaitingQueue = field(default_factory=WaitingQueue)
    running: dict[int, JobState] = field(default_factory=dict)
    arrivals: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HierarchicalPolicy:
    """The hierarchical policy. `period`: hours between plans.

    `lend`: whether idle GPUs of one group serve other groups. Without lending the quotas are partitions.
    """

    period: int = 6
    lend: bool = True
    settings: HistorySettings = field(default_factory=HistorySettings)
    name: str = "hierarchical"

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> HierarchicalScheduler:
        """Return a new scheduler for one simulation. Raise ValueError if the period is below 1 hour."""
        if self.period < 1:
            raise ValueError(f"InvalidSetting: period must be at least 1 hour (got {self.period} hours).")
        return HierarchicalScheduler(workload, cluster, self)


class HierarchicalScheduler:
    """The groups of one simulation. A decision takes O(groups x widths) for each job that starts."""

    def __init__(self, workload: Workload, cluster: GpuCluster, policy: HierarchicalPolicy) -> None:
        self.workload, self.cluster, self.policy = workload, cluster, policy
        self.history = DurationHistory(policy.settings)
        self.services = DurationHistory(policy.settings)  # GPU-seconds of a group's jobs
        self.groups: dict[str, GroupState] = {}
        self._predictions: dict[int, float] = {}  # predicted seconds of each job, by sequence number
        self._next_plan = 0.0

    def on_arrival(self, simulation: Simulation, job: JobState) -> None:
        """Queue a job in its group under its predicted duration."""
        group = self._group(job)
        group.arrivals.append(simulation.now)
        self._predictions[job.sequence] = self.history.predict(job_classes(self.workload, job.index))
        group.waiting.put(job, self._predictions[job.sequence])

    def on_completion(self, simulation: Simulation, job: JobState) -> None:
        """Remove a completed job from its group and learn from its duration."""
        group = self._group(job)
        group.used -= job.gpus
        del group.running[job.sequence], self._predictions[job.sequence]
        self.history.observe(job_classes(self.workload, job.index), job.duration)
        self.services.observe(((), (group.name,)), job.duration * job.gpus)

    def on_timer(self, simulation: Simulation, job: JobState) -> None:
        """Double the prediction of a job that has outlived it."""
        self._predictions[job.sequence] *= 2.0
        self._set_prediction_timer(simulation, job)

    def decide(self, simulation: Simulation) -> None:
        """Renew the quotas if their period is over, then start and preempt jobs."""
        if simulation.now >= self._next_plan:
            self._plan(simulation)
        for group in sorted(self.groups.values(), key=lambda group: (group.used - group.quota, group.name)):
            while (head := group.waiting.head(group.quota)) is not None:
                if group.used + head[2].gpus > group.quota and not self._preempt_own_group(simulation, group, head):
                    break
                self._reclaim_lent(simulation, head[2].gpus)
                self._start(simulation, group, head)
        if self.policy.lend or simulation.running == 0:  # an idle cluster serves any group: no job may wait forever
            while simulation.pool.free:
                free = simulation.pool.free
                heads = [(head, name) for name in self.groups if (head := self.groups[name].waiting.head(free))]
                if not heads:
                    return
                best, owner_name = min(heads)
                self._start(simulation, self.groups[owner_name], best)

    def _plan(self, simulation: Simulation) -> None:
        """Renew the quotas and set the time of the next plan."""
        hours = int(simulation.now // HOUR)
        self._next_plan = (hours - hours % self.policy.period + self.policy.period) * HOUR
        demands = {name: self._demand(group, hours) for name, group in self.groups.items()}
        for name, quota in plan_quotas(demands, self.cluster.gpus).items():
            self.groups[name].quota = quota

    def _demand(self, group: GroupState, hours: int) -> GroupDemand:
        """Return the group's demand until the next plan: running gangs, waiting work and forecast arrivals."""
        seconds = self.policy.period * HOUR
        passed = np.array([at for at in group.arrivals if at < hours * HOUR])
        counts = np.bincount((passed // HOUR).astype(np.int64), minlength=hours).astype(np.float64)
        waiting = list(group.waiting)
        work = forecast_arrivals(counts, self.policy.period) * self.services.predict(((), (group.name,)))
        work += sum(job.gpus for job in group.running.values()) * seconds
        work += sum(self._predictions[job.sequence] * job.gpus for job in waiting)
        widest = max((job.gpus for job in waiting), default=0)
        return GroupDemand(work, widest, min((job.waiting_since for job in waiting), default=math.inf))

    def _preempt_own_group(self, simulation: Simulation, group: GroupState, head: QueueEntry) -> bool:
        """Free the GPUs that `head` needs beyond the group's unused quota. Return False if that is impossible.

        Only jobs of the same group with a much longer prediction are preempted.
        """
        wanted = head[2].gpus - max(0, group.quota - group.used)
        longer = [
            job for job in group.running.values() if self._predictions[job.sequence] > PREEMPTION_FACTOR * head[0]
        ]
        if sum(job.gpus for job in longer) < wanted:
            return False
        for job in sorted(longer, key=self._longest_first):
            if wanted > 0:
                self._preempt(simulation, group, job)
                wanted -= job.gpus
        return True

    def _reclaim_lent(self, simulation: Simulation, gpus: int) -> None:
        """Preempt jobs of groups beyond their quotas until `gpus` GPUs are free."""
        if simulation.pool.free >= gpus:
            return
        over = [group for group in self.groups.values() if group.used > group.quota]
        lent = [(*self._longest_first(job), job, group) for group in over for job in group.running.values()]
        for _, _, job, group in sorted(lent, key=lambda entry: entry[:2]):
            if simulation.pool.free >= gpus:
                return
            if group.used > group.quota:
                self._preempt(simulation, group, job)

    def _longest_first(self, job: JobState) -> tuple[float, int]:
        """Return a sort key: the longest prediction first, then the latest arrival."""
        return -self._predictions[job.sequence], -job.sequence

    def _start(self, simulation: Simulation, group: GroupState, head: QueueEntry) -> None:
        job = group.waiting.pop(head)
        simulation.start(job)
        group.used += job.gpus
        group.running[job.sequence] = job
        self._set_prediction_timer(simulation, job)

    def _preempt(self, simulation: Simulation, group: GroupState, job: JobState) -> None:
        simulation.preempt(job)
        group.used -= job.gpus
        del group.running[job.sequence]
        group.waiting.put(job, self._predictions[job.sequence])

    def _set_prediction_timer(self, simulation: Simulation, job: JobState) -> None:
        simulation.set_timer(job, job.ready + self._predictions[job.sequence] - job.done)

    def _group(self, job: JobState) -> GroupState:
        name = self.workload.groups[job.index] if self.workload.groups else ""
        if name not in self.groups:
            self.groups[name] = GroupState(name)
            self._next_plan = 0.0  # plan at once for a new group
        return self.groups[name]
