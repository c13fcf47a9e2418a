"""The hierarchy: quotas for groups from a forecast (static, renewed each period) above a dynamic scheduler.

At each instant: (1) a group that uses less than its quota starts its next jobs, and takes GPUs back from groups that
use more than theirs, the newest stretch first; (2) what is free then is lent to whoever is next and fits. Within a
group the order is by predicted duration, learned from ended jobs. Called by benchmarks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from podium_optimisers.engine.cluster import Cluster, Costs
from podium_optimisers.engine.queue import Entry, WaitingQueue
from podium_optimisers.engine.simulation import JobState, Simulation
from podium_optimisers.engine.workload import Workload
from podium_optimisers.hybrid.quotas import Demand, expected_jobs, plan_quotas
from podium_optimisers.prediction.history import DurationHistory, HistorySettings, classes_of

HOUR = 3600.0


@dataclass(slots=True)
class Group:
    """What the decider keeps for one group."""

    name: str
    quota: int = 0
    used: int = 0
    waiting: WaitingQueue = field(default_factory=WaitingQueue)
    running: dict[int, JobState] = field(default_factory=dict)
    arrivals: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """`period`: hours between plans; `lend`: whether idle GPUs of one group serve another (without: partitions)."""

    period: int = 6
    lend: bool = True
    settings: HistorySettings = field(default_factory=HistorySettings)
    name: str = "hierarchical"

    def begin(self, workload: Workload, cluster: Cluster, costs: Costs) -> HierarchicalDecider:
        if self.period < 1:
            raise ValueError(f"BadSetting: period is {self.period} hours; give 1 or more.")
        return HierarchicalDecider(workload, cluster, self)


class HierarchicalDecider:
    """The groups of one run. A decision is O(groups x widths) for each job that starts."""

    def __init__(self, workload: Workload, cluster: Cluster, policy: Hierarchical) -> None:
        self.workload, self.cluster, self.policy = workload, cluster, policy
        self.history = DurationHistory(policy.settings)
        self.services = DurationHistory(policy.settings)  # GPU-seconds of a group's jobs
        self.groups: dict[str, Group] = {}
        self._next_plan = 0.0

    def arrived(self, simulation: Simulation, job: JobState) -> None:
        group = self._group(job)
        group.arrivals.append(simulation.now)
        group.waiting.put(job, self._guess(job))

    def finished(self, simulation: Simulation, job: JobState) -> None:
        group = self._group(job)
        group.used -= job.gpus
        del group.running[job.sequence]
        self.history.observe(classes_of(self.workload, job.index), job.duration)
        self.services.observe(((), (group.name,)), job.duration * job.gpus)

    def alarmed(self, simulation: Simulation, job: JobState) -> None:
        raise RuntimeError("the hierarchy set no alarm")

    def decide(self, simulation: Simulation) -> None:
        if simulation.now >= self._next_plan:
            self._plan(simulation)
        for name in sorted(self.groups, key=lambda name: (self.groups[name].used - self.groups[name].quota, name)):
            group = self.groups[name]
            while (head := group.waiting.head(group.quota - group.used)) is not None:
                self._take_back(simulation, head[2].gpus)
                self._start(simulation, group, head)
        if self.policy.lend or simulation.running == 0:  # an idle cluster serves anybody: no job may wait for ever
            while simulation.pool.free:
                free = simulation.pool.free
                heads = [(head, name) for name in self.groups if (head := self.groups[name].waiting.head(free))]
                if not heads:
                    return
                best, owner = min(heads)
                self._start(simulation, self.groups[owner], best)

    def _plan(self, simulation: Simulation) -> None:
        hours = int(simulation.now // HOUR)
        self._next_plan = (hours - hours % self.policy.period + self.policy.period) * HOUR
        demands = {name: self._demand(group, hours) for name, group in self.groups.items()}
        for name, quota in plan_quotas(demands, self.cluster.gpus).items():
            self.groups[name].quota = quota

    def _demand(self, group: Group, hours: int) -> Demand:
        """What the group will ask for until the next plan: running gangs, waiting work, and arrivals by forecast."""
        seconds = self.policy.period * HOUR
        passed = np.array([at for at in group.arrivals if at < hours * HOUR])
        counts = np.bincount((passed // HOUR).astype(np.int64), minlength=hours).astype(np.float64)
        waiting = list(group.waiting)
        work = expected_jobs(counts, self.policy.period) * self.services.predict(((), (group.name,)))
        work += sum(job.gpus for job in group.running.values()) * seconds
        work += sum(self._guess(job) * job.gpus for job in waiting)
        widest = max((job.gpus for job in waiting), default=0)
        return Demand(work, widest, min((job.waiting_since for job in waiting), default=math.inf))

    def _take_back(self, simulation: Simulation, gpus: int) -> None:
        """Frees what an entitled group asks for: lent GPUs come back, the stretches that began last first."""
        if simulation.pool.free >= gpus:
            return
        over = [group for group in self.groups.values() if group.used > group.quota]
        lent = [(-job.began, -job.sequence, job, group) for group in over for job in group.running.values()]
        for _, _, job, group in sorted(lent, key=lambda entry: entry[:2]):
            if simulation.pool.free >= gpus:
                return
            if group.used <= group.quota:
                continue
            simulation.preempt(job)
            group.used -= job.gpus
            del group.running[job.sequence]
            group.waiting.put(job, self._guess(job))

    def _start(self, simulation: Simulation, group: Group, head: Entry) -> None:
        job = group.waiting.pop(head)
        simulation.start(job)
        group.used += job.gpus
        group.running[job.sequence] = job

    def _guess(self, job: JobState) -> float:
        """Predicted seconds; a job that has outlived its prediction is taken for twice what it has worked."""
        return max(self.history.predict(classes_of(self.workload, job.index)), 2.0 * job.done)

    def _group(self, job: JobState) -> Group:
        name = self.workload.groups[job.index] if self.workload.groups else ""
        if name not in self.groups:
            self.groups[name] = Group(name)
            self._next_plan = 0.0  # a new group is planned for at once
        return self.groups[name]
