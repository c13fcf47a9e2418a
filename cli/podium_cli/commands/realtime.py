"""Commands `podium realtime simulate`, `admit` and `run`: periodic inference on GPU partitions. Needs no cluster.

The package is imported when a command runs, so `podium` starts without the extra `[realtime]`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from podium_cli.command_table import SUMMARIES
from podium_cli.commands.base import Commands, command
from podium_cli.exit_codes import CliError, Exit
from podium_core.schema.manifests import ManifestError, read_manifests

POLICIES = ("launch-ahead", "sgprs", "single", "naive", "naive-single")
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "realtime",
        _help,
        summary=SUMMARIES["realtime"],
        examples="""
            podium realtime simulate --contexts 3 --oversubscription 1.5
            podium realtime simulate --plot sgprs.png
            podium realtime admit cameras.yaml
            podium realtime run --tasks 6 --fps 20 --policy launch-ahead
        """,
        cluster=False,
    )
    parser.set_defaults(parser=parser)
    inner = parser.add_subparsers(title="commands", metavar="COMMAND")
    simulate = command(
        inner,
        "simulate",
        _simulate,
        summary="compute the figures of the SGPRS paper on the simulated GPU",
        examples="podium realtime simulate --contexts 3 --oversubscription 1.5,2 --tasks 24",
        cluster=False,
    )
    text = "partitions of the GPU (default: 2,3)"
    simulate.add_argument("--contexts", type=_numbers(int), default=(2, 3), metavar="N,N", help=text)
    text = "sum of the partitions, in GPUs (default: 1,1.5,2)"
    simulate.add_argument("--oversubscription", type=_numbers(float), default=(1.0, 1.5, 2.0), metavar="X,X", help=text)
    text = "number of concurrent tasks (default: 20-30)"
    simulate.add_argument("--tasks", type=_span, default=tuple(range(20, 31)), metavar="A-B", help=text)
    text = "virtual time of each point (default: 3)"
    simulate.add_argument("--seconds", type=float, default=3.0, metavar="SECONDS", help=text)
    simulate.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the tasks' first releases (default: 0)"
    )
    simulate.add_argument("--plot", type=Path, metavar="FILE", help="also draw the figures (PNG, SVG or PDF)")
    admit = command(
        inner,
        "admit",
        _admit,
        summary="check whether tasks keep their deadlines together",
        examples="podium realtime admit cameras.yaml",
        cluster=False,
    )
    admit.add_argument("file", type=Path, metavar="FILE", help="YAML with PeriodicTaskSets")
    run = command(
        inner,
        "run",
        _run,
        summary="run real networks on partitions of this machine for some seconds",
        examples="podium realtime run --tasks 6 --fps 20 --policy launch-ahead",
        cluster=False,
    )
    run.add_argument("--backend", choices=("cpu", "cuda"), default="cpu", help="processor (default: cpu)")
    text = f"scheduling policy: {', '.join(POLICIES)} (default: launch-ahead)"
    run.add_argument("--policy", choices=POLICIES, default="launch-ahead", metavar="NAME", help=text)
    run.add_argument("--tasks", type=int, default=4, metavar="N", help="concurrent networks (default: 4)")
    run.add_argument(
        "--fps", type=float, default=10.0, metavar="X", help="frames per second of each task (default: 10)"
    )
    run.add_argument("--seconds", type=float, default=5.0, metavar="SECONDS", help="duration of the run (default: 5)")


def _help(arguments: argparse.Namespace) -> Exit:
    arguments.parser.print_help()
    return Exit.USAGE


def _simulate(arguments: argparse.Namespace) -> Exit:
    realtime = _realtime_commands()
    if arguments.plot and arguments.plot.suffix not in FIGURE_SUFFIXES:
        message = f"--plot: {arguments.plot} does not end with {', '.join(FIGURE_SUFFIXES)}; name a file that does"
        raise CliError(Exit.FAILED, "InvalidValue", message)
    try:
        found = realtime.simulate(
            arguments.contexts, arguments.oversubscription, arguments.tasks, arguments.seconds, arguments.seed, print
        )
        if arguments.plot:
            realtime.plot(found, arguments.plot)
            print(f"drawn: {arguments.plot}")
    except realtime.RealtimeError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    except OSError as error:
        raise CliError(Exit.FAILED, "PlotNotWritten", f"{arguments.plot}: {error.strerror}") from error
    return Exit.OK


def _admit(arguments: argparse.Namespace) -> Exit:
    realtime = _realtime_commands()
    try:
        manifests = read_manifests([arguments.file])
    except OSError as error:
        raise CliError(Exit.NOT_FOUND, "FileUnreadable", f"{arguments.file}: {error.strerror}") from error
    except ManifestError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    if not manifests:
        raise CliError(
            Exit.FAILED,
            "NothingToAdmit",
            f"{arguments.file} contains no PeriodicTaskSet; it starts with kind: PeriodicTaskSet",
        )
    refused = 0
    for manifest in manifests:
        try:
            answers = realtime.admit(manifest)
        except realtime.RealtimeError as error:
            raise CliError(Exit.FAILED, error.code, str(error)) from error
        for accepted, line in answers:
            print(line)
            refused += not accepted
    return Exit.FAILED if refused else Exit.OK


def _run(arguments: argparse.Namespace) -> Exit:
    realtime = _realtime_commands()
    try:
        lines = realtime.run(arguments.backend, arguments.policy, arguments.tasks, arguments.fps, arguments.seconds)
    except realtime.RealtimeError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    print("\n".join(lines))
    return Exit.OK


def _realtime_commands() -> ModuleType:
    try:
        from podium_realtime import commands
    except ImportError as error:
        message = f"podium realtime needs an extra: pip install 'kube-podium[realtime]' ({error})"
        raise CliError(Exit.USAGE, "ExtraMissing", message) from error
    return commands


def _numbers(kind: type[int] | type[float]) -> Callable[[str], tuple[int | float, ...]]:
    def parse(text: str) -> tuple[int | float, ...]:
        try:
            return tuple(kind(part) for part in text.split(","))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}: give numbers with commas between") from None

    return parse


def _span(text: str) -> tuple[int, ...]:
    first, _, last = text.partition("-")
    try:
        found = tuple(range(int(first), int(last or first) + 1))
    except ValueError:
        found = ()
    if not found or found[0] < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of tasks, or two as in 20-30")
    return found
