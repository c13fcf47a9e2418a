"""Where an export reads a search: a cluster page by page, a folder file by file, or recorded curves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from podium_cli import samples
from podium_cli.exit_codes import CliError, Exit
from podium_cli.exports.search import Add, Begin, search_of, search_of_curves, trial_of, trials_of_curves
from podium_cli.objects import Payload, files_of_objects, parse_trial, read_file, snapshot_of
from podium_cli.options.curves import CurveOptions, read_traces
from podium_cli.options.source import SAMPLE_SECONDS, Source
from podium_core.schema.job import HyperParamJob
from podium_core.schema.manifests import flattened
from podium_core.schema.trial import JOB_LABEL
from podium_simulator.traces.trace import Trace
from podium_views.job_snapshot import of_job

if TYPE_CHECKING:
    from podium_cli.session import Session


def deliver(source: Source, begin: Begin) -> None:
    """Pass the description of the search to `begin`, and each of its trials to what that returns."""
    if source.sample:
        _from_payloads(samples.search_at(SAMPLE_SECONDS), source, begin)
    elif source.from_files is not None:
        _from_folder(source.from_files, source, begin)
    elif not source.job:
        text = "name the job, or give --from-files, --curves or --sample"
        raise CliError(Exit.USAGE, "JobNameRequired", text)
    else:
        from podium_cli.session import Session, run_with_cluster  # files are read without a client of the API server

        session = Session.of(source.namespace, source.kubeconfig, source.context)
        run_with_cluster(_from_cluster(session, source.job, begin))


def single_trace(options: CurveOptions) -> Trace:
    """Return the only recording in these files. Raises CliError if there are several."""
    traces = read_traces(options)
    if len(traces) != 1:
        text = f"--curves: {options.files[0]} holds {len(traces)} searches; name the file of one of them"
        raise CliError(Exit.USAGE, "CurvesAmbiguous", text)
    return traces[0]


def deliver_curves(trace: Trace, begin: Begin) -> None:
    """Pass on recorded curves like the trials of a search."""
    add = begin(search_of_curves(trace))
    for trial in trials_of_curves(trace.trials):
        add(trial)


def _from_payloads(payloads: Iterable[Payload], source: Source, begin: Begin) -> None:
    seen = snapshot_of(payloads, source.job, source.namespace, samples.BEGIN)
    add = begin(search_of(seen.job))
    for trial in seen.trials:
        add(trial_of(trial, seen.job.spec.gpus.per_trial))


def _from_folder(folder: Path, source: Source, begin: Begin) -> None:
    """Read the files twice, for the job and for its trials, so that only one file is in memory at a time."""
    jobs = [one for one in _objects(folder) if one.get("kind") == "HyperParamJob"]
    job = snapshot_of(jobs, source.job, source.namespace, samples.BEGIN).job
    add = begin(search_of(job))
    for payload in _objects(folder):
        if payload.get("kind") == "HyperParamTrial":
            _add(payload, job, add)


def _objects(folder: Path) -> Iterator[Payload]:
    for path in files_of_objects(folder):
        yield from flattened(read_file(path))


async def _from_cluster(session: Session, name: str, begin: Begin) -> None:
    from podium_cli.objects import parse_job
    from podium_cli.session import fetch
    from podium_cluster.resources import JOBS, TRIALS, Page

    async with session.api() as api:
        job = parse_job(await fetch(api, JOBS, name, session.namespace))
        add = begin(search_of(job))
        page = Page()
        while True:
            answer = await api.list(TRIALS, session.namespace, labels=f"{JOB_LABEL}={name}", page=page)
            for payload in answer["items"]:
                _add(payload, job, add)
            after = answer["metadata"].get("continue") or ""
            if not after:
                return
            page = Page(after=after)


def _add(payload: Payload, job: HyperParamJob, add: Add) -> None:
    """Add the trial of this object if it is of the job."""
    for trial in of_job(job, [parse_trial(payload)]):
        add(trial_of(trial, job.spec.gpus.per_trial))
