"""`podium simulate`: every policy on recorded learning curves, on virtual time. Needs no cluster.

Without a file it runs on curves of the example that are part of Podium.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from podium.domain.snapshot import Costs
from podium.policies.base import Policy
from podium.policies.registry import NAMES, PolicyError, create
from podium.simulation.contest import contest
from podium.simulation.pools import Machine
from podium.simulation.recorded import Recording, RecordingError, bundled
from podium.simulation.sources import Reading, read_all
from podium_cli import simulate_view
from podium_cli.commands.base import Commands, command
from podium_cli.commands.get import show
from podium_cli.exits import CliError, Exit


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "simulate",
        _run,
        says="replay every policy on recorded learning curves: which one finds good trials soonest?",
        examples="""
            podium simulate
            podium simulate --gpus 8 --policy envelope --policy asha
            podium simulate curves/ --seeds 5 --suspend 30 --resume 30
            podium simulate search.jsonl.gz -o json
        """,
        cluster=False,
    )
    curves(parser)
    parser.add_argument("--gpus", type=int, default=4, metavar="N", help="GPUs, one trial each (default: 4)")
    parser.add_argument("--trials", type=int, default=64, metavar="N", help="trials of a search (default: 64)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="searches drawn from a file (default: 3)")
    parser.add_argument("--suspend", type=float, default=4.0, metavar="SECONDS", help="of one suspension (default: 4)")
    parser.add_argument("--resume", type=float, default=4.0, metavar="SECONDS", help="of one resumption (default: 4)")
    parser.add_argument(
        "--policy", action="append", choices=NAMES, metavar="NAME", help=f"one of: {', '.join(NAMES)} (default: all)"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="(default: table)")


def curves(parser: argparse.ArgumentParser) -> None:
    """What says where the curves are; `recordings` reads them."""
    text = (
        "curves: JSON lines, also .gz, a CSV table, a TensorBoard folder, or a folder of files (default: the example's)"
    )
    parser.add_argument("curves", nargs="*", type=Path, metavar="FILE", help=text)
    goals = ("maximize", "minimize")
    parser.add_argument("--goal", choices=goals, default=goals[0], help="of CSV and TensorBoard (default: maximize)")
    parser.add_argument("--metric", metavar="NAME", help="the scalar to read from TensorBoard folders")


def _run(arguments: argparse.Namespace) -> Exit:
    machine, policies = _machine(arguments), _policies(arguments.policy or NAMES)
    found = [contest(r, policies, machine, arguments.seeds, arguments.trials) for r in recordings(arguments)]
    if arguments.output == "json":
        print(simulate_view.as_json(found))
        return Exit.OK
    for one in found:
        print(simulate_view.heading(one))
        show(simulate_view.table(one))
    return Exit.OK


def _machine(arguments: argparse.Namespace) -> Machine:
    for name in ("gpus", "trials", "seeds"):
        if getattr(arguments, name) < 1:
            raise CliError(Exit.USAGE, "TooFew", f"--{name}: {getattr(arguments, name)} is too few; give 1 or more")
    for name in ("suspend", "resume"):
        if not 0.0 <= getattr(arguments, name) <= 3600.0:
            text = f"--{name}: {getattr(arguments, name):g} seconds is no cost; give 0 to 3600"
            raise CliError(Exit.USAGE, "BadCost", text)
    return Machine(arguments.gpus, Costs(arguments.suspend, arguments.resume))


def _policies(names: tuple[str, ...] | list[str]) -> list[Policy]:
    try:
        return [create(name, {}) for name in names]
    except PolicyError as error:  # argparse has checked the names already
        raise CliError(Exit.USAGE, error.code, str(error)) from error


def recordings(arguments: argparse.Namespace) -> tuple[Recording, ...]:
    paths: list[Path] = arguments.curves
    reading = Reading(arguments.goal == "maximize", arguments.metric)
    try:
        found = read_all(paths, reading) if paths else (bundled(),)
    except RecordingError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    except OSError as error:
        text = f"{error.filename or paths[0]}: {error.strerror or error}; name a file of curves, or a folder of them"
        raise CliError(Exit.NOT_FOUND, "FileUnreadable", text) from error
    if not found:
        text = f"{paths[0]}: no .jsonl, .jsonl.gz, .csv or event file is in it; name a folder that has some"
        raise CliError(Exit.NOT_FOUND, "NoCurves", text)
    return found
