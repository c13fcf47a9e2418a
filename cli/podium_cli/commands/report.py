"""Commands `podium report` and `podium summary`: show a search as one HTML file or as a few lines."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podium_cli import samples
from podium_cli.exit_codes import CliError, Exit
from podium_cli.job_snapshot import JobSnapshot
from podium_cli.objects import read_folder, saved_at, snapshot_of
from podium_cli.options.common import Kubeconfig, KubeContext, Namespace, examples
from podium_cli.options.names import job_names
from podium_cli.output import write
from podium_cli.report import model, page
from podium_cli.views import summary as summary_view

if TYPE_CHECKING:
    from podium_cli.session import Session

SAMPLE_SECONDS = 600.0  # longer than the synthetic search takes


app = typer.Typer()

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
    typer.Option(metavar="FOLDER", help="Read objects from files instead of a cluster.", readable=False),
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


@app.command(
    epilog=examples(
        "podium report digits",
        "podium report digits -o digits.html",
        "kubectl get hpj,hpt,gpunodes -o yaml > saved/all.yaml",
        "podium report digits --from-files saved",
        "podium report --sample -o sample.html",
    )
)
def report(
    job: Job = None,
    from_files: FromFiles = None,
    sample: Sample = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.", readable=False)
    ] = Path("podium-report.html"),
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Write one self-contained HTML file: learning curves, GPU allocations, every trial.

    The file loads nothing and runs nothing. It shows the best trial, GPU-seconds
    by use, the cost of the suspensions, all learning curves, the holder of each
    GPU over time, and a table of all trials.
    """
    made = model.build(snapshot(Source(job, from_files, sample, namespace, kubeconfig, context)))
    write(output, page.render(made))
    print(summary_view.last_line(made, str(output)))


@app.command(epilog=examples("podium summary digits"))
def summary(
    job: Job = None,
    from_files: FromFiles = None,
    sample: Sample = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Print the best trial, GPU-seconds by use, and the cost of the suspensions."""
    made = model.build(snapshot(Source(job, from_files, sample, namespace, kubeconfig, context)))
    print("\n".join(summary_view.lines(made)))


def snapshot(source: Source) -> JobSnapshot:
    """Return the job that the source options name."""
    if source.sample:
        now = samples.BEGIN + timedelta(seconds=SAMPLE_SECONDS)
        return snapshot_of(samples.search_at(SAMPLE_SECONDS), source.job, source.namespace, now)
    if source.from_files:
        payloads = read_folder(source.from_files)
        return snapshot_of(payloads, source.job, source.namespace, saved_at(payloads))
    if not source.job:
        raise CliError(Exit.USAGE, "JobNameRequired", "name a job, or give --from-files or --sample")
    from podium_cli.session import Session, run_with_cluster  # files are read without a client of the API server

    session = Session.of(source.namespace, source.kubeconfig, source.context)
    return run_with_cluster(_from_cluster(session, source.job))


async def _from_cluster(session: Session, job: str) -> JobSnapshot:
    async with session.api() as api:
        return await session.snapshot(api, job)
