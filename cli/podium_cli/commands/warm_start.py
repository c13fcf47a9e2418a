"""Command `podium warm-start JOB.yaml FILE...`: write a job that starts with the results of earlier searches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.logs.log_options import note_to_stderr
from podium_cli.objects import Payload, read_jobs
from podium_cli.options.common import examples
from podium_core.acceptance.warm_start import WarmStartError, with_results
from podium_core.schema.manifests import dump_manifests
from podium_core.schema.validation import Refusal, parse_job
from podium_simulator.traces.warm_start import results_in

app = typer.Typer()


@app.command(
    "warm-start",
    epilog=examples(
        "podium warm-start search.yaml earlier.jsonl | kubectl apply -f -",
        "podium warm-start search.yaml trials.csv podium-runs/digits/curves.jsonl",
    ),
)
def warm_start(
    job: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="File with one HyperParamJob.", readable=False)],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Files of podium export or podium run, CSV tables, or folders of TensorBoard.",
            readable=False,
        ),
    ],
) -> None:
    """Print a job that starts with the results of earlier searches.

    Writes the trials of the files into search.warmStart.results: those whose
    parameters lie in the search space, at most 100. `podium run --warm-start FILE`
    does the same on this machine.
    """
    print(dump_manifests([dict(results_added(single_job(job), files))]), end="")


def single_job(path: Path) -> Payload:
    """Return the job of a file. Raises CliError if it holds another number of jobs."""
    jobs = read_jobs(path)
    if len(jobs) != 1:
        text = f"{path} holds {len(jobs)} HyperParamJobs; give a file with one"
        raise CliError(Exit.FAILED, "SingleJobRequired", text)
    return jobs[0]


def results_added(manifest: Payload, files: Sequence[Path]) -> Payload:
    """Return the job with the results of these files; a job that cannot be read is returned as it is."""
    parsed = parse_job(manifest)
    if not files or isinstance(parsed, Refusal):
        return manifest
    try:
        results = results_in(parsed.spec, files, note_to_stderr)
        made, message = with_results(manifest, parsed.spec, results, f"trials of {', '.join(map(str, files))}")
    except WarmStartError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    note_to_stderr(message)
    return made
