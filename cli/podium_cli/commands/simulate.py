"""`podium simulate`: every policy on recorded learning curves, on virtual time. Needs no cluster.

Without a file it runs on curves of the example that are part of Podium.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from podium.domain.snapshot import Costs
from podium.policies.base import Policy
from podium.policies.registry import NAMES, PolicyError, create
from podium.schema.quantity import to_bytes
from podium.simulation.contest import contest
from podium.simulation.pools import Machine
from podium.simulation.recorded import Recording, RecordingError, bundled
from podium.simulation.sources import Reading, read_all
from podium.simulation.system import contest as system_contest
from podium.simulation.system.scenario import Faults, Method, SimulationError, Timing
from podium.simulation.system.searches import even_nodes
from podium_cli import simulate_view, system_view
from podium_cli.commands import arrivals
from podium_cli.commands.base import Commands, command
from podium_cli.contents import SAYS
from podium_cli.exits import CliError, Exit
from podium_cli.output import show, write
from podium_cli.report import simulation

MOST = 10_000  # GPUs, nodes, searches: Podium's own bound on trials


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "simulate",
        _run,
        says=SAYS["simulate"],
        examples="""
            podium simulate
            podium simulate --gpus 8 --policy envelope --policy asha
            podium simulate curves/ --seeds 5 --suspend 30 --resume 30
            podium simulate search.jsonl.gz -o json
            podium simulate search.csv --goal minimize --system --nodes 2
            podium simulate --gpus 8 --nodes 2 --report simulation.html
            podium simulate --system --jobs 4 --users 2 --arrivals 600 --trials 12
        """,
        cluster=False,
    )
    curves(parser)
    machine(parser, switch=4.0)
    parser.add_argument("--trials", type=int, default=64, metavar="N", help="trials of a search (default: 64)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="searches drawn from a file (default: 3)")
    parser.add_argument(
        "--policy", action="append", choices=NAMES, metavar="NAME", help=f"one of: {', '.join(NAMES)} (default: all)"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="(default: table)")
    text = "simulate the whole system: pods, agents, old telemetry, no revival; not only who is trained next"
    parser.add_argument("--system", action="store_true", help=text)
    parser.add_argument("--report", type=Path, metavar="HTML", help="also write this file (implies --system)")
    place(parser)
    arrivals.options(parser)


def machine(parser: argparse.ArgumentParser, switch: float) -> None:
    """GPUs and what a switch takes, in seconds each way."""
    parser.add_argument("--gpus", type=int, default=4, metavar="N", help="GPUs, one trial each (default: 4)")
    for name in ("suspend", "resume"):
        text = f"of one {'suspension' if name == 'suspend' else 'resumption'} (default: {switch:g})"
        parser.add_argument(f"--{name}", type=float, default=switch, metavar="SECONDS", help=text)


def place(parser: argparse.ArgumentParser) -> None:
    """Where the simulated system runs; read by `place_of`."""
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="that the GPUs are spread over (default: 1)")
    parser.add_argument("--shares", type=int, default=4, metavar="N", help="trials to a GPU (default: 4, the chart's)")
    text = "of a trial, from the open gate to its first step, on the GPU (default: 1)"
    parser.add_argument("--load", type=float, default=1.0, metavar="SECONDS", help=text)
    parser.add_argument("--gpu-memory", metavar="SIZE", help="of each GPU, such as 80Gi (default: all trials fit)")
    text = "mean hours between two failures of a node; its trials begin anew, or where a requeue saved (default: never)"
    parser.add_argument("--node-fails", type=float, metavar="HOURS", help=text)
    text = "plan at each value and each step of a hand-over, as the operator does, and take two to three times as long"
    text += "; default: such news waits for other news, a turn of the policy (10 hand-overs) at most"
    parser.add_argument("--exact", action="store_true", help=text)


def curves(parser: argparse.ArgumentParser, goal: str | None = "maximize") -> None:
    """What says where the curves are; `recordings` reads them. `goal`: its default, None: the job's."""
    text = (
        "curves: JSON lines, also .gz, a CSV table, a TensorBoard folder, or a folder of files (default: the example's)"
    )
    parser.add_argument("curves", nargs="*", default=[], type=Path, metavar="FILE", help=text)
    text = f"of CSV and TensorBoard (default: {goal or 'that of the job'})"
    parser.add_argument("--goal", choices=("maximize", "minimize"), default=goal, help=text)
    parser.add_argument("--metric", metavar="NAME", help="the scalar to read from TensorBoard folders")


def _run(arguments: argparse.Namespace) -> Exit:
    where, names = _machine(arguments), arguments.policy or NAMES
    several = arrivals.asked(arguments)
    if several is not None:
        return arrivals.run(arguments, names, several, place_of(arguments), recordings(arguments))
    if arguments.system or arguments.report is not None:
        return _run_system(arguments, names)
    policies = _policies(names)
    found = [contest(r, policies, where, arguments.seeds, arguments.trials) for r in recordings(arguments)]
    if arguments.output == "json":
        print(simulate_view.as_json(found))
        return Exit.OK
    for one in found:
        print(simulate_view.heading(one))
        show(simulate_view.table(one))
    return Exit.OK


def _run_system(arguments: argparse.Namespace, names: Sequence[str]) -> Exit:
    where, seeds, size = place_of(arguments), arguments.seeds, arguments.trials
    try:
        found = [system_contest.contest(r, names, where, seeds, size) for r in recordings(arguments)]
    except SimulationError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    if arguments.report is not None:
        write(arguments.report, simulation.render(found), "--report")
    if arguments.output == "json":
        print(system_view.as_json(found))
        return Exit.OK
    for one in found:
        print(system_view.heading(one))
        show(system_view.table(one))
    if arguments.report is not None:
        print(f"{arguments.report}: who was trained when, under each policy.")
    return Exit.OK


def place_of(arguments: argparse.Namespace) -> system_contest.Place:
    given = _machine(arguments)
    fails = arguments.node_fails
    if fails is not None and not fails > 0.0:
        raise CliError(Exit.USAGE, "BadTime", f"--node-fails: {fails:g} hours is no time; give more than 0")
    timing = Timing(load=arguments.load)
    return system_contest.Place(
        nodes=even_nodes(given.gpus, arguments.nodes, arguments.shares, _memory(arguments.gpu_memory)),
        timing=replace(timing, progress=0.0) if arguments.exact else timing,
        method=Method("freeze", given.costs.suspend, given.costs.resume),
        faults=Faults() if fails is None else Faults(node=3600.0 * fails),
    )


def _memory(size: str | None) -> int:
    if size is None:
        return 0
    try:
        return to_bytes(size)
    except ValueError as error:
        raise CliError(Exit.USAGE, "BadSize", f"--gpu-memory: {error}") from error


def _machine(arguments: argparse.Namespace) -> Machine:
    for name in ("gpus", "trials", "seeds", "nodes", "shares"):
        if getattr(arguments, name, 1) < 1:
            raise CliError(Exit.USAGE, "TooFew", f"--{name}: {getattr(arguments, name)} is too few; give 1 or more")
        if getattr(arguments, name, 1) > MOST:
            text = f"--{name}: {getattr(arguments, name)} is too many to simulate; give {MOST} at most"
            raise CliError(Exit.USAGE, "TooMany", text)
    for name in ("suspend", "resume", "load"):
        if not 0.0 <= getattr(arguments, name, 0.0) <= 3600.0:
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
