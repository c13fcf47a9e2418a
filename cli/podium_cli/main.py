"""The `podium` console script: argparse (no dependency, one parent parser for cluster options, examples as help)."""

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

EPILOG = f"""examples:
  kubectl apply -f examples/digits/job.yaml
  podium watch digits --until-done     the live table, until the search ends
  podium explain trial digits-3        why it runs or waits
  podium report digits                 a page: curves, who held each GPU, trials

{EXIT_CODES_HELP}"""


def parser(wanted: str | None = None) -> argparse.ArgumentParser:
    """`wanted`: the command that is to run; no module of another one is imported. None: all of them whole."""
    found = argparse.ArgumentParser(
        prog="podium",
        description="Watch and steer hyper-parameter searches that Podium runs.\n`podium COMMAND --help` has examples.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--version", action="version", version=f"podium {__version__}")
    found.add_argument("--verbose", action="store_true", help="log what the client does, to standard error")
    commands = found.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module, names in MODULES.items():
        if wanted in names or wanted is None:
            import_module(f"podium_cli.commands.{module}").add(commands)
        else:
            for name, says in names.items():
                commands.add_parser(name, help=says)
    return found


def run(arguments: Sequence[str]) -> Exit:
    given = parser(next((word for word in arguments if not word.startswith("-")), "")).parse_args(arguments)
    if given.verbose:
        logs.configure("console", "DEBUG")
    else:
        # a broken watch is shown in the header as its age: log lines would tear the live table
        logging.getLogger().addHandler(logging.NullHandler())
    try:
        code: Exit = given.run(given)
    except CliError as error:
        print(f"podium: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # `podium get trials x | head`: the reader has what it wanted; nothing may be flushed at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    return code


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
