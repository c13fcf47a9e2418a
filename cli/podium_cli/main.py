"""Console script `podium`: the options before a command, and the list of commands."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from podium import __version__
from podium_cli.command_group import LazyGroup
from podium_cli.command_table import COMMANDS
from podium_cli.exit_codes import Exit
from podium_cli.options.common import examples
from podium_cli.streams import escape_unprintable
from podium_cluster.component import logs

NO_FILES = 4  # ShellCompDirectiveNoFileComp of kubectl: files complete nothing here

app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=examples(
        "kubectl apply -f examples/digits/job.yaml",
        "podium watch digits --until-done     the live table, until the search ends",
        "podium explain trial digits-3        why the trial runs or waits",
        "podium report digits                 a page: curves, GPU allocations, trials",
    ),
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"podium {__version__}")
        raise typer.Exit


@app.callback()
def podium(
    verbose: Annotated[bool, typer.Option("--verbose", help="Log the client's actions to standard error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Watch and control hyper-parameter searches that Podium runs.

    `podium COMMAND --help` shows the options of a command, with examples.
    """
    if verbose:
        logs.configure("console", "DEBUG")
    else:
        # the header shows the age of a broken watch; log lines would tear the live table
        logging.getLogger().addHandler(logging.NullHandler())


def _listed() -> None:
    """Stand for a command in the list of commands; `LazyGroup` replaces it when the command is used."""


for entry in COMMANDS:
    app.command(entry.name, help=entry.summary, rich_help_panel=entry.panel)(_listed)


def run(arguments: Sequence[str], program: str = "podium") -> Exit:
    """Run one command line and return its exit code; `program` is the name in the usage text."""
    escape_unprintable()
    try:
        app(list(arguments), prog_name=program)
    except SystemExit as ended:
        return Exit(int(ended.code or 0))
    return Exit.OK


def main() -> None:
    """Run the command line of this process and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def main_of_kubectl() -> None:
    """Run `kubectl podium ...`: kubectl starts `kubectl-podium`, which it finds in $PATH."""
    sys.exit(run(sys.argv[1:], "kubectl podium"))


def complete_for_kubectl() -> None:
    """Print completions of `kubectl podium ...`, as kubectl expects of `kubectl_complete-podium`."""
    words = ["podium", *sys.argv[1:]]
    os.environ |= {
        "_PODIUM_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    run([])
    print(f":{NO_FILES}")


if __name__ == "__main__":
    main()
