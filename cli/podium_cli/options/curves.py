"""Options of `podium simulate` and `podium plan` for recorded learning curves."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.options.common import one_of
from podium_simulator.traces.sources import KINDS, ReadOptions, needs_goal, needs_metric, read_all
from podium_simulator.traces.trace import Trace, TraceError, bundled_trace
from podium_views import formatting

PANEL = "Curves"
GOALS = ("maximize", "minimize")

Curves = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE",
        help="Curves: JSON lines or a CSV table, also .gz, a TensorBoard folder, or a folder of files.",
        show_default="those of the digits example",
        readable=False,
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Scalar to read from TensorBoard folders.", rich_help_panel=PANEL),
]


def goal_option(default: str) -> Any:
    """Return the option for the direction of the curves; the help shows `default`."""
    text = "Direction of curves from CSV and TensorBoard; JSON lines name theirs."
    return one_of(GOALS, metavar="|".join(GOALS), help=text, show_default=default, rich_help_panel=PANEL)


@dataclass(frozen=True, slots=True)
class CurveOptions:
    """Files of curves, and what the files do not state."""

    files: tuple[Path, ...]
    goal: str | None
    metric: str | None


def read_traces(options: CurveOptions, maximize: bool = True) -> tuple[Trace, ...]:
    """Read the curves and print a note to standard error for each omitted part.

    `maximize` is the direction of curves that have none, if --goal is not given.
    """
    paths, goal, metric = options.files, options.goal, options.metric
    reading = ReadOptions(maximize if goal is None else goal == "maximize", metric)
    try:
        traces = read_all(paths, reading, _note) if paths else (bundled_trace(),)
        asked = goal is None or needs_goal(paths)
        named = metric is None or needs_metric(paths)
    except TraceError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    except OSError as error:
        text = f"{error.filename or paths[0]}: {error.strerror or error}; name a file of curves, or a folder of them"
        raise CliError(Exit.NOT_FOUND, "FileUnreadable", text) from error
    if not traces:
        text = f"{paths[0]}: contains no file of curves; name a folder with {KINDS}"
        raise CliError(Exit.NOT_FOUND, "NoCurves", text)
    if not named:
        text = f"--metric: {metric} has no effect without a TensorBoard folder: JSON lines name their metric,"
        text += " and the metric of a CSV table is value; omit --metric, or name such a folder"
        raise CliError(Exit.USAGE, "MetricWithoutEffect", text)
    for trace in traces:
        if not asked and trace.maximize != reading.maximize:
            text = f"--goal: {goal} has no effect: the file of {trace.task} states that "
            text += f"{formatting.better(trace.maximize)}; omit --goal, or correct the header of the file"
            raise CliError(Exit.USAGE, "GoalWithoutEffect", text)
    return traces


def _note(text: str) -> None:
    print(f"podium: note: {formatting.clean(text)}", file=sys.stderr)
