"""Group of all commands: it imports the module of a command when that command is used, and prints refusals."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from podium_cli.command_table import COMMANDS
from podium_cli.exit_codes import CliError, Exit
from podium_cli.streams import mute

MODULES = {entry.name: entry.module for entry in COMMANDS}
_KINDS = {"int": "an integer", "float": "a number", "bool": "true or false"}  # by the type of pydantic's error
_CALL = re.compile(rf"(?<![\w/-])podium (?=(?:{'|'.join(MODULES)}|COMMAND)\b)")  # in a text of the help


class LazyGroup(TyperGroup):
    """Group whose commands are only names and summaries until one of them is used."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return the context of a call; the help shows the name under which the program was called."""
        _name_program(self, info_name)
        return super().make_context(info_name, args, parent, **extra)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the program itself."""
        return _without_types(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that the arguments name, with all of its options."""
        name, listed, rest = super().resolve_command(ctx, args)
        if name is None:
            return name, listed, rest
        command = load(name)
        _name_program(command, ctx.find_root().info_name)
        _hide_types(command)
        return name, command, rest

    def invoke(self, ctx: Any) -> None:
        """Run the command; print a refusal to standard error and exit with its code."""
        try:
            try:
                super().invoke(ctx)
            finally:
                sys.stdout.flush()  # a broken pipe is noticed here, not by the interpreter at its end
        except CliError as error:
            try:
                print(f"podium: {error}", file=sys.stderr, flush=True)
            except OSError:  # the terminal was closed: the exit code remains
                mute(sys.stderr)
            raise typer.Exit(error.code) from error
        except BrokenPipeError as error:
            # `podium get trials x | head`: the reader has closed the pipe, so a flush at exit would fail
            mute(sys.stdout)
            raise typer.Exit(Exit.OK) from error
        except Exception as error:
            _suggest_option(error)
            _name_value(error)
            raise


def _name_program(command: Any, program: str | None) -> None:
    """Put the program's name into the texts about a command and its subcommands: `kubectl podium` instead of podium."""
    if program is None or program == "podium":
        return
    for field in ("help", "short_help", "epilog"):
        text = getattr(command, field, None)
        if text:
            setattr(command, field, _CALL.sub(f"{program} ", text))
    for inner in [*command.params, *getattr(command, "commands", {}).values()]:
        if getattr(inner, "params", None) is not None:
            _name_program(inner, program)
        elif getattr(inner, "help", None):
            inner.help = _CALL.sub(f"{program} ", inner.help)


def _hide_types(command: Any) -> None:
    """Keep Python's type names (`<str>`, `<list[Path]>`) out of the help of a command and its subcommands."""
    get_params = command.get_params
    command.get_params = lambda ctx: _without_types(get_params(ctx))
    for inner in getattr(command, "commands", {}).values():
        _hide_types(inner)


def _without_types(params: list[Any]) -> list[Any]:
    """Make the help show the placeholder of each option (`FILE`) and nothing beside arguments and flags."""
    for param in params:
        placeholder = param.metavar if param.param_type_name == "option" else None
        param.display_type_rich = lambda ctx, placeholder=placeholder: placeholder
    return params


def _suggest_option(error: Any) -> None:
    """Name the most similar option in the error about an unknown one, as in the error about an unknown command.

    typer's exception for it is private; it has the attribute `possibilities`, the most similar option first.
    """
    if getattr(error, "possibilities", None):
        error.message = f"{error.message}. Did you mean {error.possibilities[0]!r}?"
        error.possibilities = None


def _name_value(error: Any) -> None:
    """Word the error about an option's value as the other refusals: what it must be, and what it is.

    typer takes the text from pydantic, whose error is the cause of typer's.
    """
    errors = getattr(error.__cause__, "errors", None)
    if not callable(errors) or not hasattr(error, "message"):
        return
    first = errors()[0]
    kind = _KINDS.get(first["type"].partition("_")[0])
    if kind:
        error.message = f"must be {kind} (got {first['input']!r})"


def load(name: str) -> Any:
    """Import the module of a command and return the command."""
    try:
        module = import_module(f"podium_cli.commands.{MODULES[name]}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("podium"):
            raise
        text = f"podium {name} needs {error.name}, which is not installed: pip install 'kube-podium[cli]'"
        raise CliError(Exit.USAGE, "PackageMissing", text) from error
    return get_group(module.app).commands[name]
