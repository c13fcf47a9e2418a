"""How a command is described to argparse: help that teaches by examples, cluster options, the function that runs."""

from __future__ import annotations

import argparse
import math
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING

from podium_cli.exit_codes import EXIT_CODES_HELP, Exit

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Commands = argparse._SubParsersAction  # generic in the type stubs alone

WIDTH = 78  # of a text that argparse shows as it is: a terminal has 80
Run = Callable[[argparse.Namespace], Exit]


def cluster_options() -> argparse.ArgumentParser:
    """The options that every command has that speaks to a cluster."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("cluster")
    group.add_argument("-n", "--namespace", help="namespace (default: that of the context, then of this pod)")
    text = "kubeconfig (default: $KUBECONFIG, then ~/.kube/config, then a pod's own account)"
    group.add_argument("--kubeconfig", metavar="FILE", help=text)
    group.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: the current one)")
    return parser


def command(
    commands: Commands, name: str, run: Run, *, says: str, examples: str, cluster: bool = True
) -> argparse.ArgumentParser:
    """A new command; `examples` are lines of shell, shown under its help."""
    shown = "\n".join(f"  {line.strip()}" for line in examples.strip().splitlines())
    parser = commands.add_parser(
        name,
        help=says,
        description=textwrap.fill(says, WIDTH),
        parents=[cluster_options()] if cluster else [],
        epilog=f"examples:\n{shown}\n\n{EXIT_CODES_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def seconds(text: str) -> float:
    """The time that an option is given, for argparse's `type`."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not found >= 0.0:
        raise argparse.ArgumentTypeError(f"{text} is no time; give seconds, 0 or more")
    return found
