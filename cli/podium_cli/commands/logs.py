"""Command `podium logs TRIAL`: the log of the container that trains, across the attempts of the trial."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.logs.cluster_log import show_cluster_log
from podium_cli.logs.local_log import show_local_log
from podium_cli.logs.log_options import LogOptions, note_to_stderr, write_to_stdout
from podium_cli.options.common import Kubeconfig, KubeContext, Namespace, examples
from podium_cli.options.names import trial_names
from podium_cli.options.source import FromFiles
from podium_cli.session import Session, run_with_cluster

PREVIOUS = -1
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def go_duration(text: str | float) -> float:
    """Return the seconds of a duration as kubectl takes it: 30s, 5m, 1h30m."""
    parts = _PART.findall(str(text))
    seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != str(text) or not seconds > 0.0:
        raise typer.BadParameter(f"must be a duration greater than 0, such as 30s, 5m or 1h30m (got {text!r})")
    return seconds


app = typer.Typer()


@app.command(
    epilog=examples(
        "podium logs digits-3",
        "podium logs digits-3 -f --tail 20",
        "podium logs digits-3 --previous      of the attempt before the present one",
        "podium logs digits-3 --since 10m --timestamps",
        "podium logs digits-3 --from-files podium-runs/digits",
    )
)
def logs(
    trial: Annotated[
        str, typer.Argument(metavar="TRIAL", help="Name of the HyperParamTrial.", autocompletion=trial_names)
    ],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines until the trial ends, also of its next attempts.")
    ] = False,
    attempt: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Only this attempt, counted from 0.", show_default="the present one"),
    ] = None,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="Only the attempt before this one.")] = False,
    tail: Annotated[int | None, typer.Option(min=0, metavar="N", help="Begin with the last N lines.")] = None,
    since: Annotated[
        float | None,
        typer.Option(parser=go_duration, metavar="DURATION", help="Begin with lines of the last 30s, 5m or 1h30m."),
    ] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Print the time of each line before it.")] = False,
    from_files: FromFiles = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Print the log of a trial, and follow it across its attempts.

    It is the log of the first container of the trial's pod. A requeue deletes the pod
    and its log; -f continues with the log of the next pod. Notes about that are
    printed to standard error.
    """
    if previous and attempt is not None:
        raise typer.BadParameter("give either --attempt or --previous")
    options = LogOptions(follow, PREVIOUS if previous else attempt, tail, since, timestamps)
    if from_files is None:
        session = Session.of(namespace, kubeconfig, context)
        run_with_cluster(show_cluster_log(session, trial, options, write_to_stdout, note_to_stderr))
        return
    for option, given in (("--since", since is not None), ("--timestamps", timestamps)):
        if given:
            text = f"{option}: the lines of a local run have no times; omit the option"
            raise CliError(Exit.USAGE, "OptionUnused", text)
    show_local_log(from_files, trial, options, write_to_stdout, note_to_stderr)
