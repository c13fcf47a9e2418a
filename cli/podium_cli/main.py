"""Console script `podium`. It uses argparse, which adds no dependency and lets commands share the cluster options."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from podium import __version__
from podium_cli.command_table import MODULES
from podium_cli.exit_codes import EXIT_CODES_HELP, CliError, Exit
from podium_cluster import logs

DESCRIPTION = """Watch and control hyper-parameter searches that Podium runs.
`podium COMMAND --help` shows the options of a command, with examples."""
EPILOG = f"""examples:
  kubectl apply -f examples/digits/job.yaml
  podium watch digits --until-done     the live table, until the search ends
  podium explain trial digits-3        why the trial runs or waits
  podium report digits                 a page: curves, GPU allocations, trials

{EXIT_CODES_HELP}"""


def parser(wanted: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line.

    With `wanted`, only the module of that command is imported and the other commands are listed without options. With
    None, every command is complete.
    """
    root = argparse.ArgumentParser(
        prog="podium",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"podium {__version__}")
    root.add_argument("--verbose", action="store_true", help="log the actions of the client to standard error")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module, names in MODULES.items():
        if wanted in names or wanted is None:
            import_module(f"podium_cli.commands.{module}").add(commands)
        else:
            for name, summary in names.items():
                commands.add_parser(name, help=summary)
    return root


def run(arguments: Sequence[str]) -> Exit:
    """Run one command line, print a refusal to standard error, and return the exit code."""
    given = parser(next((word for word in arguments if not word.startswith("-")), "")).parse_args(arguments)
    if given.verbose:
        logs.configure("console", "DEBUG")
    else:
        # the header shows the age of a broken watch; log lines would tear the live table
        logging.getLogger().addHandler(logging.NullHandler())
    try:
        code: Exit = given.run(given)
    except CliError as error:
        print(f"podium: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # `podium get trials x | head`: the reader has closed the pipe, so a flush at exit would fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    return code


def main() -> None:
    """Run the command line of this process and exit with its code."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
