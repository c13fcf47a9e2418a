"""True state of a replay: what each trial has trained, and which GPU runs it. `engine` uses it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import compress
from types import MappingProxyType

from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.pod_view import PodView
from podium_core.domain.snapshot import (
    Abilities,
    GpuNeeds,
    JobLimits,
    JobState,
    JobView,
    Point,
    Snapshot,
    TrialOrigin,
    TrialUsage,
    TrialView,
)
from podium_core.policies.base import Policy
from podium_simulator.replay.history import Evaluation, History
from podium_simulator.replay.samples import Machine, Sample

JOB = JobKey("replay", "pool")
_NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of the machine that a policy's definition asks for.

    `queue_per_gpu`: each trial belongs to a GPU's queue (Hermes: the least loaded; when two queues differ by more than
    one trial, the first waiting one migrates). `whole_slices`: a trial keeps its GPU for the policy's time slice,
    whatever it reports. `bare_rank`: any better rank preempts; the planner asks for a gain above cost and hysteresis.
    `measured_slices`: rivals wait until the holder has had the planner's smallest time slice. This slice is longer for
    a trial that was suspended before. The reference simulator has none.
    """

    queue_per_gpu: bool = False
    whole_slices: bool = False
    bare_rank: bool = False
    measured_slices: bool = False


DEFAULT_RULES = Rules()


@dataclass(slots=True)
class Known:
    """Values that a policy may know, by trial number.

    They are kept up to date, because collecting them at each decision is slow.
    """

    views: list[TrialView]
    unfinished: list[bool]


@dataclass(slots=True)
class SimTrial:
    """True state of one trial; `view` is what a policy may know of it."""

    number: int
    seconds: tuple[float, ...]
    values: tuple[float, ...]
    known: Known
    queue: int | None = None  # the only GPU that may train it
    trained: float = 0.0
    evaluations: int = 0
    placed: bool = False
    started: bool = False
    ended: bool = False
    stopped: bool = False
    idle_since: float = 0.0
    longest_wait: float = 0.0
    switch: float | None = None  # seconds of its suspension and resumption, once it had both and the rules ask for it

    @property
    def view(self) -> TrialView:
        return self.known.views[self.number]

    def publish(self, phase: TrialPhase, curve: tuple[Point, ...] | None = None) -> None:
        """Publish the trial's state, without `dataclasses.replace`, which would dominate the run time."""
        old = self.view
        points = old.curve if curve is None else curve
        self.known.unfinished[self.number] = phase not in FINAL
        self.known.views[self.number] = TrialView(
            old.key,
            old.job,
            old.number,
            old.origin,
            phase,
            points,
            TrialUsage(self.trained, self.switch),
            old.pod,
        )

    def reset(self) -> None:
        """Reset the trial: nothing of a stopped trial was kept."""
        self.trained, self.evaluations, self.started, self.stopped = 0.0, 0, False, False
        self.publish(TrialPhase.GATED, ())


@dataclass(slots=True)
class SimGpu:
    index: int
    trial: SimTrial | None = None
    since: float = 0.0  # time at which its trial got it
    trains_from: float = 0.0  # start of the present period of training; for an idle GPU the time at which it is free
    next: float = _NEVER  # time of its next decision


@dataclass(frozen=True, slots=True)
class ReplaySetup:
    """What does not change in a replay. `slice_seconds`: a GPU decides at least this often."""

    sample: Sample
    machine: Machine
    rules: Rules
    job: JobView
    gpu_views: tuple[GpuView, ...]
    by_key: Mapping[TrialKey, SimTrial]
    slice_seconds: float


@dataclass(slots=True)
class ReplayRecord:
    """What has happened in a replay, as `History` has it.

    `plan_seconds` is None until the policy's plan is over.
    """

    reached: list[Evaluation] = field(default_factory=list)
    completed: dict[int, float] = field(default_factory=dict)
    busy: list[tuple[float, float]] = field(default_factory=list)
    switches: list[tuple[float, float]] = field(default_factory=list)
    repeated_seconds: float = 0.0
    plan_seconds: float | None = None
    decisions: int = 0

    def history(self, waits: Mapping[int, float]) -> History:
        """Return the history of the replay. `waits`: trial -> its longest wait for a GPU."""
        return History(
            reached=tuple(self.reached),
            completed=self.completed,
            waits=waits,
            busy=tuple(sorted(self.busy)),
            switches=tuple(sorted(self.switches)),
            repeated_seconds=self.repeated_seconds,
            plan_seconds=self.plan_seconds or 0.0,
            decisions=self.decisions,
        )


@dataclass(slots=True)
class ReplayState:
    """True state of a replay.

    `policy` is another one once its plan is over. `live`: number of trials that are left to train.
    """

    setup: ReplaySetup
    policy: Policy
    trials: list[SimTrial]
    known: Known
    gpus: list[SimGpu]
    live: int
    now: float = 0.0
    record: ReplayRecord = field(default_factory=ReplayRecord)

    def snapshot(self) -> Snapshot:
        setup = self.setup
        return Snapshot(self.now, (setup.job,), tuple(self.known.views), setup.gpu_views, setup.machine.costs)

    def unfinished(self) -> list[TrialView]:
        return list(compress(self.known.views, self.known.unfinished))


def new_state(sample: Sample, policy: Policy, machine: Machine, rules: Rules) -> ReplayState:
    known = Known([_view(number, sample) for number in range(len(sample.trials))], [True] * len(sample.trials))
    trials = [SimTrial(number, one.seconds, one.values, known) for number, one in enumerate(sample.trials)]
    if rules.queue_per_gpu:
        for trial in trials:
            trial.queue = trial.number % machine.gpus  # to the least loaded, in order
    setup = ReplaySetup(
        sample=sample,
        machine=machine,
        rules=rules,
        job=_job(sample, policy),
        gpu_views=tuple(GpuView("replay", f"gpu-{i}", "Healthy", len(trials)) for i in range(machine.gpus)),
        by_key={trial.view.key: trial for trial in trials},
        slice_seconds=machine.slice(sample),
    )
    gpus = [SimGpu(index) for index in range(machine.gpus)]
    return ReplayState(setup, policy, trials, known, gpus, live=len(trials))


def _view(number: int, sample: Sample) -> TrialView:
    name = f"pool-{number}"
    return TrialView(
        TrialKey(JOB.namespace, name, name),
        JOB,
        number,
        TrialOrigin(0.0, tuple(sample.trials[number].hparams.items())),
        TrialPhase.GATED,
        pod=PodView(f"{name}-0"),
    )


def _job(sample: Sample, policy: Policy) -> JobView:
    """A curve's step is the second of training. A policy knows of lengths only the sample's longest."""
    return JobView(
        key=JOB,
        uid=f"{sample.task}-{sample.seed}",
        created=0.0,
        policy=policy.name,
        settings=MappingProxyType({}),
        maximize=sample.maximize,
        target=None,
        max_steps=sample.horizon,
        limits=JobLimits(len(sample.trials), len(sample.trials), max_failed=0, retries=0),
        gpus=GpuNeeds(per_trial=1),
        abilities=Abilities(),
        state=JobState(accepted=True, suspended=False),
    )
