"""Options that name a job in a cluster, in files or in the sample, and the snapshot of that job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podium_cli import samples
from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import read_folder, saved_at, snapshot_of
from podium_cli.options.names import job_names
from podium_cli.progress import progress
from podium_views.job_snapshot import JobSnapshot

if TYPE_CHECKING:
    from podium_cli.session import Session

SAMPLE_SECONDS = 600.0  # longer than the synthetic search takes

Job = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        help="Name of the HyperParamJob (optional if the files contain only one).",
        autocompletion=job_names,
    ),
]
FromFiles = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Read saved objects, or a run of `podium run`.", readable=False),
]
Sample = Annotated[bool, typer.Option("--sample", help="Use a synthetic search, to see an example.")]


@dataclass(frozen=True, slots=True)
class Source:
    """Options that name a job in files, in the sample or in a cluster."""

    job: str | None
    from_files: Path | None
    sample: bool
    namespace: str | None
    kubeconfig: str | None
    context: str | None


def snapshot(source: Source) -> JobSnapshot:
    """Return the job that the source options name."""
    if source.sample:
        now = samples.BEGIN + timedelta(seconds=SAMPLE_SECONDS)
        return snapshot_of(samples.search_at(SAMPLE_SECONDS), source.job, source.namespace, now)
    if source.from_files:
        with progress("reading files"):
            payloads = read_folder(source.from_files)
        return snapshot_of(payloads, source.job, source.namespace, saved_at(payloads))
    if not source.job:
        raise CliError(Exit.USAGE, "JobNameRequired", "name the job, or give --from-files or --sample")
    from podium_cli.session import Session, run_with_cluster  # files are read without a client of the API server

    session = Session.of(source.namespace, source.kubeconfig, source.context)
    with progress("reading the job"):
        return run_with_cluster(_from_cluster(session, source.job))


async def _from_cluster(session: Session, job: str) -> JobSnapshot:
    async with session.api() as api:
        return await session.snapshot(api, job)
