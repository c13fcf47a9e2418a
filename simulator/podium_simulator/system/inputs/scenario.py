"""Scenario of a simulation: nodes, jobs with their recorded curves, durations, fault rates.

`podium simulate`, `podium plan`, the benchmarks and the tests build it; the engine reads it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from podium_core.domain.gpu_queue import QueueView
from podium_core.domain.keys import JobKey
from podium_core.domain.phase import TrialPhase
from podium_core.domain.phrases import count
from podium_core.domain.rebalancing import RebalancingRules
from podium_core.domain.snapshot import JobView
from podium_simulator.traces.trace import RecordedTrial


class SimulationError(ValueError):
    """A scenario that cannot be run, or that does not end; the message names the problem and the cure."""

    code = "InvalidScenario"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node.

    `slots` of each of its `gpus` GPUs, as the agent's device plugin offers them; `memory` of one GPU in bytes, 0 =
    unknown.
    """

    name: str
    gpus: int
    slots: int = 4
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Method:
    """Method by which a trial releases its GPU, with the seconds of each action.

    `jitter`: each action takes up to this share more or less. `keeps_memory`: a suspended trial's memory stays on the
    GPU (freeze), so all trials that share one must fit together. `basis`: what the default seconds are based on, for
    people. `suspends`: the trial is suspended in place; otherwise it checkpoints (`suspend`), its pod ends, and it
    continues in a new one (`resume`: until its first step there, for people). `checkpoints`: a suspended trial also
    checkpoints when its pod is asked to end: its job has both methods. `migrates`: nodes migrate suspended trials live,
    where the job allows it (`JobView.migratable`). A migration takes `migration_seconds`: half until the image is
    pushed, half until it is restored.
    """

    name: str = "freeze"
    suspend: float = 0.2
    resume: float = 0.2
    jitter: float = 0.0
    keeps_memory: bool = True
    basis: str = ""
    suspends: bool = True
    checkpoints: bool = False
    migrates: bool = False
    migration_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PodFacts:
    """Measured facts of one trial's pod in a run that a simulation is compared with.

    `gate`: seconds from the pod's creation until its gate asked. `record_start`, `processes_found` and `load`: seconds
    from the open gate until the agent began its record, until it had found the processes, and until the first step.
    `ended`: seconds from the process' end until the pod reported it. Empty or None: the values of the scheduler and of
    `Timing`.
    """

    node: str = ""
    gate: float | None = None
    record_start: float | None = None
    processes_found: float | None = None
    load: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class TrialProgress:
    """State of a trial that exists when the simulation begins, at time 0.

    `values`: time of each of its known evaluations, at most 0; its job's curve holds their values. `trained`: seconds
    of its training so far. `ended`: its final phase. `gpus`: UUIDs of the simulated GPUs on which it has a slot, and
    `holds` whether it holds them. Without them it waits for a slot, and continues from what it has trained.
    """

    number: int
    values: tuple[float, ...] = ()
    trained: float = 0.0
    gpu_seconds: float = 0.0
    ended: TrialPhase | None = None
    gpus: tuple[str, ...] = ()
    holds: bool = False


@dataclass(frozen=True, slots=True)
class SimJob:
    """One job.

    `view`: as the planner sees it (`created` = its arrival). Trial number n trains along `curves[n]`, modulo their
    number. Steps are those of the curves, or seconds of training where none were recorded. `checkpoints`: a fault
    resets a trial to its last evaluation, otherwise to its start. `facts`: facts of each trial's pod by number; empty
    where nothing is known. `progress`: its trials that exist already.
    """

    view: JobView
    curves: tuple[RecordedTrial, ...]
    method: Method = field(default_factory=Method)
    checkpoints: bool = False
    facts: tuple[PodFacts, ...] = ()
    progress: tuple[TrialProgress, ...] = ()

    def fact(self, number: int) -> PodFacts:
        return self.facts[number] if number < len(self.facts) else PodFacts()

    @property
    def key(self) -> JobKey:
        return self.view.key


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in seconds.

    Defaults: the settings of operator and agent, and the digits example on the cluster of `make demo` for the durations
    of pods.
    """

    place: float = 0.3  # from a pod's creation until it is bound to a node
    gate: float = 1.2  # from there until its gate asks: image, containers
    record_start: float = 0.8  # from the open gate until the kubelet reports it: its agent then begins its record
    processes_found: float = (
        0.9  # from the open gate until the agent has found its processes, which it can suspend from then on
    )
    load: float = 1.0  # from the open gate to the first step, on the GPU
    save: float = 1.0  # checkpoint of a trial that is asked to end
    ended: float = 1.0  # from a process' end until its pod reports it: the GPU is free before, its slot is not
    report: float = 2.0  # between two writes of a trial's status: the planner's curve is up to this old
    log: float = 0.5  # between two reads of a trial's log by its agent
    holder_report: float = math.inf  # writes of a holder's GPU-seconds (agent: 5); by default only with other news
    notice: float = 0.05  # until a change of state is in the API
    debounce: float = 0.05  # changes within this time share a cycle of the operator
    order: float = 0.05  # until a run queue reaches the agent
    # Number of the policy's time slices that news of a trial's progress waits for other news, where the policy gives no
    # trial up. A plan for each value and for each step of a switch would dominate a simulation (operator: 0).
    progress: float = 1.0
    cycle: float = math.inf  # a cycle runs at least this often (operator: 2); by default only when something changed
    # Between two reports of an agent: placement sees the load and memory of GPUs as of the last one; 0: as of now.
    telemetry: float = 0.0
    evict: float = 60.0  # from a node's failure until its pods are evicted
    stuck: float = 60.0  # a pod without a node for this long is not counted on


@dataclass(frozen=True, slots=True)
class Faults:
    """Mean seconds between faults (exponential), infinity = never.

    `node`: each node; `repair`: mean until it is back. `pod`: each pod is lost by the cluster's fault. `crash`: each
    pod's process ends in an error of its own. `silence`: each agent falls silent; `silent`: mean until it is heard
    again.
    """

    node: float = math.inf
    repair: float = 600.0
    pod: float = math.inf
    crash: float = math.inf
    silence: float = math.inf
    silent: float = 300.0


@dataclass(frozen=True, slots=True)
class Drain:
    """Period in which a node accepts no trials, in seconds from the beginning."""

    node: str
    at: float
    until: float = math.inf

    def __str__(self) -> str:
        until = "on" if math.isinf(self.until) else f"until {self.until:g} s"
        return f"{self.node} takes no trials from {self.at:g} s {until}"


@dataclass(frozen=True, slots=True)
class PlannerRules:
    """Settings of a cluster that the planner follows: its rules of rebalancing and its queues."""

    rebalancing: RebalancingRules | None = None
    queues: tuple[QueueView, ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    nodes: tuple[NodeSpec, ...]
    jobs: tuple[SimJob, ...]
    timing: Timing = field(default_factory=Timing)
    faults: Faults = field(default_factory=Faults)
    seed: int = 0
    longest: float = 1e9  # virtual seconds after which a run that has not ended is abandoned
    rebalancing: RebalancingRules | None = None  # as the operator's configuration has them
    drains: tuple[Drain, ...] = ()
    queues: tuple[QueueView, ...] = ()  # empty: jobs share the GPUs without queues

    def __post_init__(self) -> None:
        names = [node.name for node in self.nodes]
        keys = [job.key for job in self.jobs]
        if not names or len(set(names)) < len(names) or any(n.gpus < 1 or n.slots < 1 for n in self.nodes):
            raise SimulationError(
                f"nodes: {names}; give at least one, with different names, each with a GPU and a slot"
            )
        if not keys or len(set(keys)) < len(keys):
            raise SimulationError(
                f"jobs: {len(keys)} with {len(set(keys))} names; give at least one, with different names"
            )
        for job in self.jobs:
            if not job.curves:
                raise SimulationError(f"job {job.key.name}: no curves; its trials would have nothing to train")
            most = max(node.gpus for node in self.nodes)
            need = job.view.gpus
            if need.workers > sum(node.gpus >= max(1, need.per_worker) for node in self.nodes) and need.workers > 1:
                text = f"{need.workers} workers a trial of {count(need.per_worker, 'GPU')} each"
                raise SimulationError(f"job {job.key.name}: {text}, which need as many nodes with these GPUs")
            if not 1 <= need.per_worker <= most:
                text = f"{need.per_trial} GPUs a trial; a node has at most {most}, and at least 1 is needed here"
                raise SimulationError(f"job {job.key.name}: {text}")
        for drain in self.drains:
            if drain.node not in names:
                text = f"drains: node {drain.node!r} is none of the nodes ({', '.join(names)}); name one of these"
                raise SimulationError(text)
            if not 0.0 <= drain.at < drain.until or math.isinf(drain.at):
                period = f"from {drain.at:g} s until {drain.until:g} s"
                text = f"drains: node {drain.node} drains {period}, which is not a period"
                raise SimulationError(f"{text}; give a beginning from 0 s on, and an end after it or none")
        if not 0.0 <= self.timing.telemetry < math.inf:
            text = f"timing.telemetry: {self.timing.telemetry:g} s is not a time between two reports"
            raise SimulationError(f"{text}; give 0 (placement sees GPUs as they are) or more")
        if not (self.faults.silence > 0.0 and 0.0 <= self.faults.silent < math.inf):
            text = f"faults.silence, faults.silent: each {self.faults.silence:g} s for {self.faults.silent:g} s"
            raise SimulationError(f"{text} is not possible; give more than 0, and 0 or more")
