"""Read the results of earlier searches for `search.warmStart`, once, before a job is accepted.

The handlers store them in the job's status. Proposals depend on that copy alone, so the earlier jobs may be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS, TRIALS
from podium_core.acceptance.finding import Finding
from podium_core.acceptance.warm_start import choose, ended_results, given_results, objectives_of
from podium_core.schema.job import HyperParamJob, JobSpec
from podium_core.schema.trial import JOB_LABEL, HyperParamTrial
from podium_core.schema.validation import Refusal, parse_job
from podium_operator.observe.snapshot import is_finished

FIELD = "spec.search.warmStart.jobs"


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
    ended = ended_results(job.spec, [trial for search in earlier for trial in search.trials])
    status = choose(job.spec, [*given_results(job.spec), *ended], _source(job.spec))
    return WarmStart(status.model_dump(by_alias=True, mode="json"), new=True)


def _obstacle(job: HyperParamJob, search: EarlierSearch) -> Finding | None:
    if search.name == job.metadata.name:
        message = f"{search.name} is this job itself: name jobs that have ended"
        return Finding("WarmStartFromItself", "error", FIELD, message)
    cure = "the search starts once it has ended; to start without it, create the job again without its name"
    if search.job is None:
        message = f"job {search.name} does not exist in the job's namespace; {cure}"
        return Finding("WarmStartPending", "error", FIELD, message)
    mine, other = objectives_of(job.spec), objectives_of(search.job.spec)
    if mine != other:
        message = (
            f"job {search.name} has the objective {other}, but this job {mine}, so their values cannot be compared: "
            "name jobs with the same objective"
        )
        return Finding("WarmStartObjectiveDiffers", "error", FIELD, message)
    if not is_finished(search.job):
        return Finding("WarmStartPending", "error", FIELD, f"job {search.name} has not ended; {cure}")
    return None


def _source(spec: JobSpec) -> str:
    jobs = ", ".join(spec.search.warm_start.jobs if spec.search.warm_start is not None else ())
    given = "results that the job lists" if given_results(spec) else ""
    return " and ".join(filter(None, (given, f"ended trials of {jobs}" if jobs else "")))
