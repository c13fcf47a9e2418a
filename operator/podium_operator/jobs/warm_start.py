"""Read the results of earlier searches for `search.warmStart`, once, before a job is accepted.

The handlers store them in the job's status. Proposals depend on that copy alone, so the earlier jobs may be deleted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS, TRIALS
from podium_core.acceptance.finding import Finding
from podium_core.domain.phase import TrialPhase
from podium_core.schema.conditions import point_problem
from podium_core.schema.job import Direction, HyperParamJob, JobSpec
from podium_core.schema.job_status import MAX_WARM_START_TRIALS, WarmStartStatus, WarmStartTrial
from podium_core.schema.trial import JOB_LABEL, HyperParamTrial
from podium_core.schema.validation import Refusal, parse_job
from podium_operator.observe.snapshot import is_finished

FIELD = "spec.search.warmStart.jobs"
_ENDED = (TrialPhase.SUCCEEDED, TrialPhase.EARLY_STOPPED)
_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class EarlierSearch:
    """A job of `warmStart` and its trials; `job` is None if it does not exist or cannot be read as a job."""

    name: str
    job: HyperParamJob | None
    trials: Sequence[HyperParamTrial] = ()


@dataclass(frozen=True, slots=True)
class WarmStart:
    """What a job takes from earlier searches: the status to store, or why there is none yet.

    `new`: it was read now, so it is worth an Event. `waits`: the obstacle can vanish without a change of the job.
    """

    status: Mapping[str, Any] = field(default_factory=dict)
    obstacle: Finding | None = None
    waits: bool = False
    new: bool = False


NO_WARM_START = WarmStart()


async def read_warm_start(api: Api, manifest: Mapping[str, Any]) -> WarmStart:
    """Return what the job stores, or reads now from the jobs that it names. Raises ApiError."""
    job = parse_job(manifest)
    if isinstance(job, Refusal) or job.spec.search.warm_start is None:
        return NO_WARM_START
    namespace = job.metadata.namespace
    # the manifest may be older than the status that an earlier handler wrote, and the earlier jobs may be gone by now
    stored = (await api.get(JOBS, job.metadata.name, namespace)).get("status", {}).get("warmStart")
    if stored:
        return WarmStart(stored)
    return warm_start(job, [await _read(api, namespace, name) for name in job.spec.search.warm_start.jobs])


async def _read(api: Api, namespace: str, name: str) -> EarlierSearch:
    try:
        job = parse_job(await api.get(JOBS, name, namespace))
    except ApiError as error:
        if error.not_found:
            return EarlierSearch(name, None)
        raise
    if isinstance(job, Refusal):
        return EarlierSearch(name, None)
    trials = (await api.list(TRIALS, namespace, labels=f"{JOB_LABEL}={name}"))["items"]
    return EarlierSearch(name, job, [HyperParamTrial.model_validate(trial) for trial in trials])


def warm_start(job: HyperParamJob, earlier: Sequence[EarlierSearch]) -> WarmStart:
    """Return what the job takes from these searches, or why it cannot start yet. Pure."""
    for search in earlier:
        obstacle = _obstacle(job, search)
        if obstacle is not None:
            return WarmStart(obstacle=obstacle, waits=obstacle.code == "WarmStartPending")
    status = _choose(job.spec, [trial for search in earlier for trial in search.trials])
    return WarmStart(status.model_dump(by_alias=True, mode="json"), new=True)


def _obstacle(job: HyperParamJob, search: EarlierSearch) -> Finding | None:
    if search.name == job.metadata.name:
        message = f"{search.name} is this job itself: name jobs that have ended"
        return Finding("WarmStartFromItself", "error", FIELD, message)
    cure = "the search starts once it has ended; to start without it, create the job again without its name"
    if search.job is None:
        message = f"job {search.name} does not exist in the job's namespace; {cure}"
        return Finding("WarmStartPending", "error", FIELD, message)
    mine, other = job.spec.objective, search.job.spec.objective
    if (mine.metric, mine.direction) != (other.metric, other.direction):
        message = (
            f"job {search.name} has the objective {other.direction} {other.metric}, but this job {mine.direction} "
            f"{mine.metric}, so their values cannot be compared: name jobs with the same objective"
        )
        return Finding("WarmStartObjectiveDiffers", "error", FIELD, message)
    if not is_finished(search.job):
        return Finding("WarmStartPending", "error", FIELD, f"job {search.name} has not ended; {cure}")
    return None


def _choose(spec: JobSpec, trials: Iterable[HyperParamTrial]) -> WarmStartStatus:
    """Return the trials to use: of too many the best half and, of the others, the latest."""
    ended = [trial for trial in trials if trial.status.phase in _ENDED and _value(trial) is not None]
    ended.sort(key=lambda trial: (trial.status.finished_at or _BEGINNING, trial.spec.job, trial.spec.number))
    problems = {trial.metadata.name: point_problem(spec, trial.spec.parameters) for trial in ended}
    usable = [trial for trial in ended if problems[trial.metadata.name] is None]
    sign = -1.0 if spec.objective.direction is Direction.MAXIMIZE else 1.0
    best = sorted(usable, key=lambda trial: sign * (_value(trial) or 0.0))
    if len(usable) > MAX_WARM_START_TRIALS:
        kept = {trial.metadata.name for trial in best[: MAX_WARM_START_TRIALS // 2]}
        latest = [trial.metadata.name for trial in usable if trial.metadata.name not in kept]
        kept.update(latest[len(kept) - MAX_WARM_START_TRIALS :])
        usable = [trial for trial in usable if trial.metadata.name in kept]
    return WarmStartStatus(
        used=len(usable),
        ended=len(ended),
        message=_message(spec, len(usable), len(ended), {name: text for name, text in problems.items() if text}),
        trials=[
            WarmStartTrial(
                trial=trial.metadata.name,
                parameters=dict(trial.spec.parameters),
                value=_value(trial) or 0.0,
                step=trial.status.last_step or 0.0,
                completed=trial.status.phase is TrialPhase.SUCCEEDED,
            )
            for trial in usable
        ],
    )


def _value(trial: HyperParamTrial) -> float | None:
    best = trial.status.best
    return best.value if best is not None and math.isfinite(best.value) else None


def _message(spec: JobSpec, used: int, ended: int, outside: Mapping[str, str]) -> str:
    jobs = ", ".join(spec.search.warm_start.jobs if spec.search.warm_start is not None else ())
    text = f"Warm start: {used} of {ended} ended trials of {jobs} are used."
    if outside:
        name, problem = next(iter(outside.items()))
        text += f" {len(outside)} lie outside this search space ({name}: {problem})."
    if used < ended - len(outside):
        text += f" A job uses at most {MAX_WARM_START_TRIALS}: the best half, and the latest of the others."
    return text
