"""Command `podium optimise`: schedule the tasks of a file onto CPUs and GPUs. Needs no cluster.

The optimisers (extra `optimisers`) are imported when the command runs, so the CLI starts without them.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path
from types import ModuleType

from podium_cli.command_table import SUMMARIES
from podium_cli.commands.base import Commands, command
from podium_cli.exit_codes import CliError, Exit
from podium_cli.output import show, write
from podium_cli.views import optimise as optimise_view
from podium_simulator.traces.trace import refuse_devices

MISSING = "OptimisersNotInstalled"
ALL = "all"


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "optimise",
        _methods,  # never called: a problem is required, and each has its own function
        summary=SUMMARIES["optimise"],
        examples="""
            podium optimise makespan tasks.csv --cpus 64 --gpus 8
            podium optimise makespan tasks.csv --cpus 64 --gpus 8 --method heft -o json
            podium optimise makespan tasks.csv --cpus 64 --gpus 8 -o gantt.html
            podium optimise makespan tasks.csv --cpus 8 --gpus 2 --method all
            podium optimise methods
        """,
        cluster=False,
    )
    problems = parser.add_subparsers(title="problems", metavar="PROBLEM", dest="problem", required=True)
    makespan = command(
        problems,
        "makespan",
        _makespan,
        summary="find a short schedule of all tasks, with a certified distance from the optimum",
        examples="podium optimise makespan tasks.csv --cpus 64 --gpus 8 -o gantt.html",
        cluster=False,
    )
    makespan.add_argument(
        "tasks",
        type=Path,
        metavar="FILE",
        help="CSV with the columns name, cpu and gpu: seconds there, empty if the task cannot run there",
    )
    makespan.add_argument("--cpus", type=int, required=True, metavar="N", help="CPUs")
    makespan.add_argument("--gpus", type=int, required=True, metavar="N", help="GPUs")
    makespan.add_argument(
        "--method",
        default="dual",
        metavar="NAME",
        help="see `podium optimise methods`; all: compare them (default: dual)",
    )
    makespan.add_argument("--seed", type=int, default=0, metavar="N", help="seed of randomised methods (default: 0)")
    makespan.add_argument(
        "-o", "--output", default="table", metavar="table|json|FILE.html", help="what to write (default: table)"
    )
    command(
        problems,
        "methods",
        _methods,
        summary="list the methods of `makespan` with their guarantees",
        examples="podium optimise methods",
        cluster=False,
    )


def _methods(_: argparse.Namespace) -> Exit:
    registry = _registry()
    show(optimise_view.methods(registry.METHODS.values()))
    return Exit.OK


def _makespan(arguments: argparse.Namespace) -> Exit:
    output: str = arguments.output
    if output not in ("table", "json") and not output.endswith(".html"):
        message = f"--output: must be table, json or FILE.html (got {output})"
        raise CliError(Exit.USAGE, "InvalidOutput", message)
    if arguments.method == ALL and output.endswith(".html"):
        message = "--output: a page shows one schedule; name one --method, or choose table or json"
        raise CliError(Exit.USAGE, "InvalidOutput", message)
    if arguments.seed < 0:
        raise CliError(Exit.USAGE, "InvalidSeed", f"--seed: must be at least 0 (got {arguments.seed})")
    registry = _registry()
    from podium_optimisers.makespan import tasks_csv
    from podium_optimisers.makespan.instance import MakespanError

    names = list(registry.METHODS) if arguments.method == ALL else [arguments.method]
    try:
        instance = tasks_csv.read_tasks(_text(arguments.tasks), arguments.cpus, arguments.gpus)
        found = []
        for name in names:
            start = time.perf_counter()
            schedule = registry.solve(name, instance, arguments.seed)
            found.append(dataclasses.replace(schedule, seconds=time.perf_counter() - start))
    except MakespanError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    if output == "json":
        print(optimise_view.as_json(instance, found))
    elif arguments.method == ALL:
        show(optimise_view.comparison(found))
    elif output == "table":
        show(optimise_view.machines(instance, found[0]))
        print(optimise_view.summary(instance, found[0]))
    else:
        write(Path(output), optimise_view.page(instance, found[0]))
        print(f"{optimise_view.summary(instance, found[0])}\n{output}")
    return Exit.OK


def _registry() -> ModuleType:
    try:
        from podium_optimisers.makespan import registry
    except ModuleNotFoundError as error:
        message = f"the optimisers need {error.name}; install them: pip install 'kube-podium[cli,optimisers]'"
        raise CliError(Exit.FAILED, MISSING, message) from error
    return registry


def _text(path: Path) -> str:
    try:
        refuse_devices(path)
        return path.read_text(encoding="utf-8")
    except OSError as error:
        message = f"{path}: {error.strerror}; name a CSV file with the columns name, cpu, gpu"
        raise CliError(Exit.NOT_FOUND, "FileUnreadable", message) from error
    except UnicodeDecodeError as error:
        raise CliError(Exit.FAILED, "InvalidTable", f"{path}: not UTF-8 text; save it as CSV in UTF-8") from error
