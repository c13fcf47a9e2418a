"""Command `podium optimise`: schedule the tasks of a file onto CPUs and GPUs. Needs no cluster.

The optimisers (extra `optimisers`) are imported when the command runs, so the CLI starts without them.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.options.common import FORMATS, Output, examples
from podium_cli.output import show, write
from podium_cli.progress import progress
from podium_cli.report import schedule as schedule_page
from podium_cli.structured import print_data
from podium_cli.views import optimise as optimise_view
from podium_core.tables.text_file import TextFileError, text_lines

MISSING = "OptimisersNotInstalled"
ALL = "all"


app = typer.Typer()
optimise = typer.Typer(
    help="Schedule the tasks of a file onto CPUs and GPUs with the optimisers.",
    no_args_is_help=True,
    subcommand_metavar="PROBLEM [ARGS]...",
    epilog=examples(
        "podium optimise makespan tasks.csv --cpus 64 --gpus 8",
        "podium optimise makespan tasks.csv --cpus 64 --gpus 8 --method heft -o json",
        "podium optimise makespan tasks.csv --cpus 64 --gpus 8 -o gantt.html",
        "podium optimise makespan tasks.csv --cpus 8 --gpus 2 --method all",
        "podium optimise methods",
    ),
)
app.add_typer(optimise, name="optimise")


@optimise.command(epilog=examples("podium optimise makespan tasks.csv --cpus 64 --gpus 8 -o gantt.html"))
def makespan(
    tasks: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="CSV with the columns name, cpu and gpu: seconds there, empty if the task cannot run there.",
            readable=False,
        ),
    ],
    cpus: Annotated[int, typer.Option(metavar="N", help="Number of CPUs.")],
    gpus: Annotated[int, typer.Option(metavar="N", help="Number of GPUs.")],
    method: Annotated[
        str, typer.Option(metavar="NAME", help="See `podium optimise methods`; all: compare them.")
    ] = "dual",
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of randomised methods.")] = 0,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="table|json|yaml|FILE.html", help="What to write.")
    ] = "table",
) -> None:
    """Find a short schedule of all tasks, with a certified distance from the optimum."""
    if output not in FORMATS and not output.endswith(".html"):
        message = f"--output: must be table, json, yaml or FILE.html (got {output})"
        raise CliError(Exit.USAGE, "InvalidOutput", message)
    if method == ALL and output.endswith(".html"):
        message = "--output: a page shows one schedule; name one --method, or choose table, json or yaml"
        raise CliError(Exit.USAGE, "InvalidOutput", message)
    if seed < 0:
        raise CliError(Exit.USAGE, "InvalidSeed", f"--seed: must be at least 0 (got {seed})")
    registry = _registry()
    from podium_optimisers.makespan import tasks_csv
    from podium_optimisers.makespan.instance import MakespanError

    names = list(registry.METHODS) if method == ALL else [method]
    try:
        instance = tasks_csv.read_tasks(_text(tasks), cpus, gpus)
        schedules = []
        with progress("scheduling", len(names) if len(names) > 1 else None) as advance:
            for name in names:
                start = time.perf_counter()
                schedule = registry.solve(name, instance, seed)
                schedules.append(dataclasses.replace(schedule, seconds=time.perf_counter() - start))
                advance()
    except MakespanError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    if output in ("json", "yaml"):
        print_data(optimise_view.data(instance, schedules), output)
    elif method == ALL:
        show(optimise_view.comparison(schedules))
    elif output == "table":
        show(optimise_view.machines(instance, schedules[0]))
        print(optimise_view.summary(instance, schedules[0]))
    else:
        write(Path(output), schedule_page.render(instance, schedules[0]))
        print(f"{optimise_view.summary(instance, schedules[0])}\n{output}")


@optimise.command(epilog=examples("podium optimise methods"))
def methods(output: Output = "table") -> None:
    """List the methods of `makespan` with their guarantees."""
    known = _registry().METHODS.values()
    if output == "table":
        show(optimise_view.methods(known))
    else:
        print_data(optimise_view.methods_data(known), output)


def _registry() -> ModuleType:
    try:
        from podium_optimisers.makespan import registry
    except ModuleNotFoundError as error:
        message = f"the optimisers need {error.name}; install them: pip install 'kube-podium[cli,optimisers]'"
        raise CliError(Exit.FAILED, MISSING, message) from error
    return registry


def _text(path: Path) -> str:
    try:
        return "".join(text_lines(path))
    except OSError as error:
        message = f"{path}: {error.strerror}; name a CSV file with the columns name, cpu, gpu"
        raise CliError(Exit.NOT_FOUND, "FileUnreadable", message) from error
    except TextFileError as error:
        raise CliError(Exit.FAILED, "InvalidTable", str(error)) from error
