"""What is known of each search: its trials' curves against the seconds of their training. Pure.

It is read from the stored objects of a cluster or of a local run. Times count from now, so the past is negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from podium_core.domain.phase import FINAL, ON_GPU, TrialPhase
from podium_core.domain.snapshot import JobView, Scalar
from podium_core.schema.checkpointing import APP_CHECKPOINT
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_core.waiting.objects import IN_PLACE, StoredObjects, key_of, view_of
from podium_simulator.system.inputs.scenario import Method
from podium_simulator.system.inputs.switch_times import switch_method
from podium_simulator.traces.held_seconds import held_seconds

USUAL_SWITCH = 0.2  # seconds of a suspension and of a resumption before any was measured, without moved memory


@dataclass(frozen=True, slots=True)
class TrialHistory:
    """What is known of one trial.

    `seconds`: seconds of training at each value; `times`: when it was printed. `trained`: seconds of training until
    now. `gpus`: UUIDs of the GPUs on which it has a slot. `ended`: its final phase; a trial that its user suspended
    counts as ended, since nothing says when it continues.
    """

    number: int
    name: str = ""
    parameters: Mapping[str, Scalar] | None = None
    steps: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()
    times: tuple[float, ...] = ()
    trained: float = 0.0
    gpu_seconds: float = 0.0
    ended: TrialPhase | None = None
    gpus: tuple[str, ...] = ()
    holds: bool = False

    @property
    def pace(self) -> float | None:
        """Return the trial's seconds of one step; None if no step is known.

        They do not contain the trial's start if two values are known.
        """
        if len(self.steps) > 1 and self.seconds[-1] > self.seconds[0]:
            return (self.seconds[-1] - self.seconds[0]) / (self.steps[-1] - self.steps[0])
        if self.steps and self.steps[-1] > 0.0 and self.seconds[-1] > 0.0:
            return self.seconds[-1] / self.steps[-1]
        return None

    @property
    def start_seconds(self) -> float | None:
        """Return the trial's seconds before the first step; None if fewer than two values are known."""
        pace = self.pace
        if pace is None or len(self.steps) < 2:
            return None
        return max(0.0, self.seconds[0] - pace * self.steps[0])


@dataclass(frozen=True, slots=True)
class SearchHistory:
    """What is known of one search. `view`: as the planner sees it, with times from now."""

    view: JobView
    method: Method
    trials: tuple[TrialHistory, ...]
    suspended: int = 0  # trials that their user suspended

    @property
    def paces(self) -> tuple[float, ...]:
        """Return the seconds of one step of each trial that has made one."""
        return tuple(pace for trial in self.trials if (pace := trial.pace) is not None)

    @property
    def start_seconds(self) -> float | None:
        """Return the usual seconds of a trial before its first step; None if no trial has shown them."""
        known = [one for trial in self.trials if (one := trial.start_seconds) is not None]
        return median(known) if known else None


def search_history(objects: StoredObjects, job: HyperParamJob) -> SearchHistory:
    """Return what is known of a search."""
    trials, now = objects.trials_of(key_of(job)), objects.now
    view = view_of(job)
    limits = view.limits
    if limits.deadline is not None:
        limits = replace(limits, deadline=max(0.0, limits.deadline - now))
    view = replace(
        view,
        created=min(0.0, view.created - now),
        limits=limits,
        state=replace(view.state, accepted=True, suspended=False, finished=False),
    )
    histories = tuple(_trial(trial, view, now) for trial in trials)
    suspended = sum(trial.spec.suspend and trial.status.phase not in FINAL for trial in trials)
    return SearchHistory(view, _method(job, view, trials), histories, suspended)


def _trial(trial: HyperParamTrial, view: JobView, now: float) -> TrialHistory:
    status, width = trial.status, max(1, view.gpus.per_trial)
    points = [point for point in status.curve.points if point.step > 0.0]
    allocations = [
        (one.start.timestamp(), now if one.end is None else one.end.timestamp()) for one in status.allocations
    ]
    trained = max(0.0, status.gpu_seconds - status.lost_work.gpu_seconds) / width
    seconds: tuple[float, ...] = ()
    if points:
        last = points[-1].time
        since = sum(max(0.0, end - max(start, last)) for start, end in allocations)
        before = [(start, min(end, last)) for start, end in allocations if start < last]
        seconds = held_seconds(points, before, max(0.0, trained - since) or points[-1].step)
    final = status.phase if status.phase in FINAL else None
    if final is None and (trial.spec.suspend or trial.spec.stopped):
        final = TrialPhase.EARLY_STOPPED
    return TrialHistory(
        number=trial.spec.number,
        name=trial.metadata.name,
        parameters=trial.spec.parameters,
        steps=tuple(point.step for point in points),
        values=tuple(point.value for point in points),
        seconds=seconds,
        times=tuple(min(0.0, point.time - now) for point in points),
        trained=max(trained, seconds[-1] if seconds else 0.0),
        gpu_seconds=status.gpu_seconds,
        ended=final,
        gpus=() if final is not None else tuple(status.gpus),
        holds=status.phase in ON_GPU,
    )


def _method(job: HyperParamJob, view: JobView, trials: Sequence[HyperParamTrial]) -> Method:
    """Return the suspension method with what its switches took; before any was measured, the usual seconds."""
    past = [trial.status.suspensions for trial in trials]
    count = sum(one.count for one in past)
    suspend = sum(one.suspend_seconds for one in past) / count if count else None
    resume = sum(one.resume_seconds for one in past) / count if count else None
    released = APP_CHECKPOINT if view.abilities.checkpointable else "freeze"
    name: str = next((one for one in job.spec.suspension.methods if one in IN_PLACE), released)
    memory = None if view.gpus.memory is None else view.gpus.memory * view.gpus.per_trial
    return switch_method(name, memory, suspend, resume, USUAL_SWITCH)
