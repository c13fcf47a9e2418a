"""Command `podium validate FILE...`: check jobs as the API server and the operator do. Needs no cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import Payload, parse_job, read_file
from podium_cli.options.common import examples
from podium_core.policies import registry
from podium_core.schema import validation

app = typer.Typer()


@app.command(
    epilog=examples("podium validate examples/digits/job.yaml", "helm template my-searches | podium validate -")
)
def validate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="File of YAML or JSON; -: standard input.", readable=False),
    ],
) -> None:
    """Check HyperParamJobs in files, without a cluster.

    Prints one line for each problem, with the field and the cure. Other kinds in
    the files are ignored.
    """
    jobs, wrong = 0, 0
    for path in files:
        for payload in read_file(path):
            if payload.get("kind") != "HyperParamJob":
                continue
            jobs += 1
            name = str((payload.get("metadata") or {}).get("name", "without a name"))
            errors = problems(payload)
            wrong += bool(errors)
            print("\n".join(f"{path}: {name}: {line}" for line in errors or _accepted(payload)))
    if not jobs:
        named = ", ".join(str(path) for path in files)
        message = f"no HyperParamJob in {named}; one starts with apiVersion: podium.dev/v1alpha1, kind: HyperParamJob"
        raise CliError(Exit.FAILED, "NothingToValidate", message)
    if wrong:
        raise typer.Exit(Exit.FAILED)


def problems(payload: Payload) -> list[str]:
    """Return each wrong field with its code and a sentence; empty if the job will be accepted."""
    texts = [f"{refusal.code}: {refusal}" for refusal in validation.problems(payload)]
    if texts:
        return texts
    policy = parse_job(payload).spec.policy
    try:
        registry.create(policy.name, policy.settings)
    except registry.PolicyError as error:
        return [f"{error.code}: spec.{error}"]
    return []


def _accepted(payload: Payload) -> list[str]:
    return ["valid", *(f"note: {note}" for note in validation.notes(parse_job(payload).spec))]
