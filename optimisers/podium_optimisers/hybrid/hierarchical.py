"""The hierarchy: quotas for groups from a forecast (static, renewed each period) above a dynamic scheduler.

At each instant: (1) each group that uses less than its quota starts its next jobs, and takes back what it lent: the
jobs of groups beyond their quotas that are thought to be longest give way; (2) where its quota is full, a group's next
job takes the GPUs of its own jobs that are thought to be more than twice as long; (3) what is free then is lent to
whoever is next and fits. A job's length is predicted from ended jobs and doubled each time it is outlived. Called by
benchmarks.
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
GAIN = 2.0  # a job gives way to one of its group that is thought to be so many times shorter


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
            raise ValueError(f"InvalidSetting: period is {self.period} hours; give 1 or more.")
        return HierarchicalDecider(workload, cluster, self)


class HierarchicalDecider:
    """The groups of one run. A decision is O(groups x widths) for each job that starts."""

    def __init__(self, workload: Workload, cluster: Cluster, policy: Hierarchical) -> None:
        self.workload, self.cluster, self.policy = workload, cluster, policy
        self.history = DurationHistory(policy.settings)
        self.services = DurationHistory(policy.settings)  # GPU-seconds of a group's jobs
        self.groups: dict[str, Group] = {}
        self._guesses: dict[int, float] = {}  # seconds that a job is thought to take in all, by sequence
        self._next_plan = 0.0

    def arrived(self, simulation: Simulation, job: JobState) -> None:
        group = self._group(job)
        group.arrivals.append(simulation.now)
        self._guesses[job.sequence] = self.history.predict(classes_of(self.workload, job.index))
        group.waiting.put(job, self._guesses[job.sequence])

    def finished(self, simulation: Simulation, job: JobState) -> None:
        group = self._group(job)
        group.used -= job.gpus
        del group.running[job.sequence], self._guesses[job.sequence]
        self.history.observe(classes_of(self.workload, job.index), job.duration)
        self.services.observe(((), (group.name,)), job.duration * job.gpus)

    def alarmed(self, simulation: Simulation, job: JobState) -> None:
        self._guesses[job.sequence] *= 2.0
        self._watch(simulation, job)

    def decide(self, simulation: Simulation) -> None:
        if simulation.now >= self._next_plan:
            self._plan(simulation)
        for group in sorted(self.groups.values(), key=lambda group: (group.used - group.quota, group.name)):
            while (head := group.waiting.head(group.quota)) is not None:
                if group.used + head[2].gpus > group.quota and not self._give_way(simulation, group, head):
                    break
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
        work += sum(self._guesses[job.sequence] * job.gpus for job in waiting)
        widest = max((job.gpus for job in waiting), default=0)
        return Demand(work, widest, min((job.waiting_since for job in waiting), default=math.inf))

    def _give_way(self, simulation: Simulation, group: Group, head: Entry) -> bool:
        """Frees what `head` needs beyond the group's unused quota, if its own much longer jobs hold enough."""
        wanted = head[2].gpus - max(0, group.quota - group.used)
        longer = [job for job in group.running.values() if self._guesses[job.sequence] > GAIN * head[0]]
        if sum(job.gpus for job in longer) < wanted:
            return False
        for job in sorted(longer, key=self._longest_first):
            if wanted > 0:
                self._stop(simulation, group, job)
                wanted -= job.gpus
        return True

    def _take_back(self, simulation: Simulation, gpus: int) -> None:
        """Frees what an entitled group asks for: lent GPUs come back."""
        if simulation.pool.free >= gpus:
            return
        over = [group for group in self.groups.values() if group.used > group.quota]
        lent = [(*self._longest_first(job), job, group) for group in over for job in group.running.values()]
        for _, _, job, group in sorted(lent, key=lambda entry: entry[:2]):
            if simulation.pool.free >= gpus:
                return
            if group.used > group.quota:
                self._stop(simulation, group, job)

    def _longest_first(self, job: JobState) -> tuple[float, int]:
        return -self._guesses[job.sequence], -job.sequence

    def _start(self, simulation: Simulation, group: Group, head: Entry) -> None:
        job = group.waiting.pop(head)
        simulation.start(job)
        group.used += job.gpus
        group.running[job.sequence] = job
        self._watch(simulation, job)

    def _stop(self, simulation: Simulation, group: Group, job: JobState) -> None:
        simulation.preempt(job)
        group.used -= job.gpus
        del group.running[job.sequence]
        group.waiting.put(job, self._guesses[job.sequence])

    def _watch(self, simulation: Simulation, job: JobState) -> None:
        simulation.alarm(job, job.ready + self._guesses[job.sequence] - job.done)

    def _group(self, job: JobState) -> Group:
        name = self.workload.groups[job.index] if self.workload.groups else ""
        if name not in self.groups:
            self.groups[name] = Group(name)
            self._next_plan = 0.0  # a new group is planned for at once
        return self.groups[name]
