"""Command `podium explain job NAME`: why a search does not run now, and when it will.

The decisions are pure: `podium_core.waiting` gives the reasons and the queue, `podium_simulator.expected` the times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any

from podium_cli import samples
from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import RUN_OBJECTS, parse_job, parse_node, parse_trial, read_folder, saved_at, snapshot_of
from podium_cli.options.source import SAMPLE_SECONDS, Source
from podium_cli.progress import progress
from podium_cli.session import Session, fetch, gpu_nodes, run_with_cluster
from podium_cluster import clock
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS, TRIALS, Resource
from podium_core.domain.keys import JobKey
from podium_core.schema.job import HyperParamJob
from podium_core.schema.manifests import flattened
from podium_core.waiting.explain import explain_job
from podium_core.waiting.explanation import JobExplanation
from podium_core.waiting.objects import StoredObjects
from podium_simulator.expected.times import LOCAL, ExpectedTimes, Sampling, expected_times
from podium_simulator.system.inputs.scenario import Timing
from podium_views.job_snapshot import JobSnapshot

SAMPLE_MOMENT = SAMPLE_SECONDS / 10.0  # of the synthetic search: some of its trials still wait
MOST_SAMPLES, MOST_STEP_SECONDS = 1_000, 86_400.0
SIMULATED_SECONDS = 10.0  # no further sample after this time


@dataclass(frozen=True, slots=True)
class ExplainedJob:
    """A job with the explanation of its wait; `times` is None if they were not asked for or it cannot run."""

    job: HyperParamJob
    explanation: JobExplanation
    times: ExpectedTimes | None
    now: float
    all_namespaces: bool


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read: the objects and the key of the job."""

    objects: StoredObjects
    key: JobKey
    all_namespaces: bool = True
    timing: Timing | None = None


def explained_job(source: Source, simulated: int, seed: int, step_seconds: float | None) -> ExplainedJob:
    """Read the job, explain it and, with `simulated` samples, expect its times."""
    if not 0 <= simulated <= MOST_SAMPLES:
        text = f"--samples: must be from 0 (no times) to {MOST_SAMPLES} (got {simulated})"
        raise CliError(Exit.USAGE, "InvalidSamples", text)
    if step_seconds is not None and not 0.0 < step_seconds <= MOST_STEP_SECONDS:
        text = f"--step-seconds: must be greater than 0 and at most {MOST_STEP_SECONDS:g} (got {step_seconds:g})"
        raise CliError(Exit.USAGE, "InvalidTime", text)
    read = _read(source)
    explanation = explain_job(read.objects, read.key)
    times = None
    if simulated and not explanation.blocked:
        sampling = Sampling(simulated, SIMULATED_SECONDS, seed=seed, step_seconds=step_seconds, clock=monotonic)
        with progress("simulating the rest of the search"):
            times = expected_times(read.objects, read.key, sampling, read.timing)
    job = read.objects.job(read.key)
    return ExplainedJob(job, explanation, times, read.objects.now, read.all_namespaces)


def _read(source: Source) -> _Read:
    if source.sample:
        now = samples.BEGIN + timedelta(seconds=SAMPLE_MOMENT)
        saved: Sequence[Mapping[str, Any]] = samples.search_at(SAMPLE_MOMENT)
        return _from_payloads(saved, snapshot_of(saved, source.job, source.namespace, now))
    if source.from_files:
        with progress("reading files"):
            saved = read_folder(source.from_files)
        read = _from_payloads(saved, snapshot_of(saved, source.job, source.namespace, saved_at(saved)))
        local = (source.from_files / RUN_OBJECTS / "job.json").is_file()
        return _Read(read.objects, read.key, timing=LOCAL if local else None)
    if not source.job:
        raise CliError(Exit.USAGE, "JobNameRequired", "name the job, or give --from-files or --sample")
    session = Session.of(source.namespace, source.kubeconfig, source.context)
    with progress("reading the jobs"):
        return run_with_cluster(_from_cluster(session, source.job))


def _from_payloads(payloads: Iterable[Mapping[str, Any]], chosen: JobSnapshot) -> _Read:
    flat = list(flattened(payloads))
    jobs = [parse_job(one) for one in flat if one.get("kind") == "HyperParamJob"]
    trials = [parse_trial(one) for one in flat if one.get("kind") == "HyperParamTrial"]
    meta = chosen.job.metadata
    objects = StoredObjects(tuple(jobs), tuple(trials), chosen.nodes, chosen.now.timestamp())
    return _Read(objects, JobKey(meta.namespace, meta.name))


async def _from_cluster(session: Session, name: str) -> _Read:
    """Read all jobs and trials that the caller may read: those of all namespaces, or of the job's own."""
    async with session.api() as api:
        await fetch(api, JOBS, name, session.namespace)  # its error names the job
        jobs, all_jobs = await _listed(api, JOBS, session.namespace)
        trials, all_trials = await _listed(api, TRIALS, session.namespace)
        nodes = tuple(parse_node(item) for item in await gpu_nodes(api))
    objects = StoredObjects(tuple(map(parse_job, jobs)), tuple(map(parse_trial, trials)), nodes, clock.now())
    return _Read(objects, JobKey(session.namespace, name), all_namespaces=all_jobs and all_trials)


async def _listed(api: Api, resource: Resource, namespace: str) -> tuple[list[dict[str, Any]], bool]:
    """Return the objects of all namespaces, or of this one if the caller may read no others; and which."""
    try:
        items: list[dict[str, Any]] = (await api.list(resource))["items"]
    except ApiError as error:
        if error.status != 403:
            raise
        items = (await api.list(resource, namespace))["items"]
        return items, False
    return items, True
