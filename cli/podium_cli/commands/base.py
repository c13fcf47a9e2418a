"""Helpers that describe a command to argparse: help text with examples, cluster options, the function that runs."""

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

WIDTH = 78  # of a text that argparse does not wrap: a terminal has 80 columns
Run = Callable[[argparse.Namespace], Exit]


def cluster_options() -> argparse.ArgumentParser:
    """Return a parser with the options that every command with access to a cluster has."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("cluster")
    group.add_argument("-n", "--namespace", help="namespace (default: that of the context, then of this pod)")
    text = "kubeconfig (default: $KUBECONFIG, then ~/.kube/config, then the pod's account)"
    group.add_argument("--kubeconfig", metavar="FILE", help=text)
    group.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: the current one)")
    return parser


def command(
    commands: Commands, name: str, run: Run, *, summary: str, examples: str, about: str = "", cluster: bool = True
) -> argparse.ArgumentParser:
    """Add a command and return its parser.

    `summary` is the line in the list of commands. `about` explains the command in a paragraph of its help, and
    `examples` are the shell lines below the options. With `cluster`, the command has the options of a cluster.
    """
    shown = "\n".join(f"  {line.strip()}" for line in examples.strip().splitlines())
    paragraphs = [f"{summary[0].upper()}{summary[1:]}".rstrip("?.") + ("?" if summary.endswith("?") else "."), about]
    parser = commands.add_parser(
        name,
        help=summary,
        description="\n\n".join(textwrap.fill(" ".join(one.split()), WIDTH) for one in paragraphs if one),
        parents=[cluster_options()] if cluster else [],
        epilog=f"examples:\n{shown}\n\n{EXIT_CODES_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def seconds(text: str) -> float:
    """Return the seconds that an option gives; used as argparse's `type`."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not found >= 0.0:
        raise argparse.ArgumentTypeError(f"seconds must be at least 0 (got {text})")
    return found
