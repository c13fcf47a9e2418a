"""Command `podium best JOB`: the best trial of a job, to read, for programs, or as arguments of a command."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.options.common import FORMATS, Kubeconfig, KubeContext, Namespace, examples, one_of
from podium_cli.options.source import FromFiles, Job, Sample, Source, snapshot
from podium_cli.structured import print_data
from podium_core.attempts.substitution import arguments, text
from podium_core.schema.trial import BestPoint, HyperParamTrial
from podium_views import additional_metrics, formatting
from podium_views.job_snapshot import JobSnapshot

ARGS = "args"
BEST_FORMATS = (*FORMATS, ARGS)

app = typer.Typer()


@app.command(
    epilog=examples(
        "podium best digits",
        "python train.py --epochs=100 $(podium best digits -o args)",
        "podium best digits -o json | jq .parameters.lr",
        "podium best --from-files podium-runs/digits",
    )
)
def best(
    job: Job = None,
    output: Annotated[
        str,
        one_of(
            BEST_FORMATS,
            "--output",
            "-o",
            metavar="|".join(BEST_FORMATS),
            help="Format of the result; args: the parameters as arguments of a command.",
        ),
    ] = "table",
    from_files: FromFiles = None,
    sample: Sample = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Print the best trial of a job: value, step and parameters.

    While the job runs, it is the best trial so far. The exit code is 3 as long as
    no trial has reported a value.
    """
    seen = snapshot(Source(job, from_files, sample, namespace, kubeconfig, context))
    _needs_one_objective(seen)
    trial = seen.best
    if trial is None or trial.status.best is None:
        spec, status = seen.job.spec, seen.job.status
        message = f"no trial of {seen.job.metadata.name} ({status.phase}) has reported {spec.objective.metric}"
        raise CliError(Exit.NOT_FOUND, "NoValue", f"{message}; `podium get trials` shows why, or wait for the first")
    if output == ARGS:
        print(" ".join(map(shlex.quote, arguments(trial.spec.parameters))))
    elif output == "table":
        print("\n".join(lines(seen, trial, trial.status.best)))
    else:
        print_data(data(seen, trial, trial.status.best), output)


def _needs_one_objective(seen: JobSnapshot) -> None:
    listed, name = seen.job.spec.objectives, seen.job.metadata.name
    if listed is not None:
        goals = ", ".join(one.metric for one in listed)
        why = f"job {name} has several objectives ({goals}) and no single best trial"
        cure = f"`podium get trials {name}` marks the trials of the Pareto front"
        raise CliError(Exit.FAILED, "SeveralObjectives", f"{why}; {cure}")


def lines(seen: JobSnapshot, trial: HyperParamTrial, point: BestPoint) -> list[str]:
    """Return the lines about the best trial; parameters have all their digits."""
    spec = seen.job.spec
    goal = f"{spec.objective.metric} {formatting.number(point.value, 6)} ({formatting.better(seen.maximize)})"
    done = f"{seen.done}/{formatting.count(seen.total, 'trial')} ended"
    job = f"job {seen.job.metadata.name} ({seen.job.status.phase}, {done})"
    output = [
        f"trial        {trial.metadata.name} ({trial.status.phase.value}) of {job}",
        f"value        {goal}",
        f"step         {formatting.step(point.step)} ({spec.metrics.step_key})",
        *(f"metric       {sentence}" for sentence in additional_metrics.sentences(seen.job, trial)),
    ]
    width = max((len(name) for name in trial.spec.parameters), default=0)
    head = "parameters"
    for name, value in trial.spec.parameters.items():
        output.append(f"{head:<12} {formatting.clean(name):<{width}}  {formatting.clean(text(value))}")
        head = ""
    return output


def data(seen: JobSnapshot, trial: HyperParamTrial, point: BestPoint) -> dict[str, Any]:
    """Return the best trial for programs."""
    spec, status = seen.job.spec, trial.status
    return {
        "namespace": trial.metadata.namespace,
        "job": seen.job.metadata.name,
        "jobPhase": seen.job.status.phase,
        "trial": trial.metadata.name,
        "number": trial.spec.number,
        "phase": status.phase.value,
        "metric": spec.objective.metric,
        "direction": spec.objective.direction.value,
        "value": point.value,
        "step": point.step,
        "parameters": dict(trial.spec.parameters),
        "additionalMetrics": {
            one.metric: one.model_dump(mode="json", by_alias=True) for one in status.additional_metrics
        },
    }
