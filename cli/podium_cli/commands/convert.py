"""Command `podium convert FILE...`: searches of other tools as HyperParamJobs. Needs no cluster.

The jobs are printed to standard output. Notes about what is different, and refusals, are printed to standard error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import read_file
from podium_cli.options.common import examples, one_of
from podium_core.conversion.convert import Converted, convert
from podium_core.conversion.given import Given
from podium_core.schema.manifests import dump_manifests

MAX_TEXT = 1 << 22  # characters of a file; Kubernetes stores objects of at most 1.5 MiB
app = typer.Typer()


@app.command(
    name="convert",
    epilog=examples(
        "podium convert experiment.yaml > job.yaml",
        "kubectl get experiment random -o yaml | podium convert - > job.yaml",
        "podium convert experiment.yaml trial-templates.yaml    with its ConfigMap",
        "podium convert sweep.yaml --image me/train:1 --gpus 1 --max-steps 20",
    ),
)
def convert_files(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="File of YAML or JSON; -: standard input.", readable=False),
    ],
    output: Annotated[
        str, one_of(("yaml", "json"), "--output", "-o", metavar="yaml|json", help="Format of the jobs.")
    ] = "yaml",
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the job.", show_default="that of the search")
    ] = None,
    image: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Container image of the trials, for sweeps of W&B.")
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(min=0, max=64, metavar="N", help="GPUs of one trial.", show_default="as requested; W&B: 1"),
    ] = None,
    max_trials: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, metavar="N", help="Trials of the search.", show_default="as in the file"),
    ] = None,
    max_steps: Annotated[
        float | None,
        typer.Option(min=1e-9, metavar="N", help="Step at which a trial is complete.", show_default="not set"),
    ] = None,
    step_key: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name under which the script prints its step.", show_default="step"),
    ] = None,
) -> None:
    """Convert searches of Katib, W&B or Kubeflow into HyperParamJobs.

    Reads Experiments (v1beta1), sweep configurations and OptimizationJobs. Prints the
    jobs, and a note for each change of meaning to standard error. If a field cannot be
    converted, it prints a line for each such field, and no job.
    """
    documents = [dict(one) for path in files for one in read_file(path, MAX_TEXT)]
    given = Given(name, image, gpus, max_trials, max_steps, step_key)
    results = convert(documents, given)
    where = ", ".join(map(str, files))
    if not results:
        message = f"no Experiment, sweep or OptimizationJob in {where}; name a file of Katib, W&B or Kubeflow Trainer"
        raise CliError(Exit.FAILED, "NothingToConvert", message)
    for result in results:
        _explain(where, result)
    refused = [result for result in results if result.job is None]
    if refused:
        message = f"{len(refused)} of {len(results)} searches cannot be converted; correct the fields above"
        raise CliError(Exit.FAILED, "NotConvertible", message)
    jobs = [result.job for result in results if result.job is not None]
    if output == "yaml":
        print(dump_manifests(jobs), end="")
        return
    whole = jobs[0] if len(jobs) == 1 else {"apiVersion": "v1", "kind": "List", "items": jobs}
    print(json.dumps(whole, indent=2))


def _explain(where: str, result: Converted) -> None:
    """Print the refusals, or else the notes, of one search to standard error."""
    title = f"{where}: {result.name}" if result.name else where
    lines = [f"{one.code}: {one}" for one in result.refusals] or [f"note: {one}" for one in result.notes]
    for line in lines:
        print(f"{title}: {line}", file=sys.stderr)
