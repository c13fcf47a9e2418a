"""Commands in the documentation: options and values of `podium` are accepted, and what other programs name exists.

`test_docs` runs the blocks that need nothing but files. The others need a cluster, a network or a running search,
so they are only parsed.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from podium_cli.command_group import load
from podium_cli.command_table import COMMANDS

ROOT = Path(__file__).parents[3]
DOCS = (ROOT / "docs").rglob("*.md")
EXAMPLES = (ROOT / "examples").rglob("*.md")
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS, *EXAMPLES])
NAMES = {entry.name for entry in COMMANDS}
OPEN = re.compile(r"[\[\]|<>]|\.\.\.|\b[A-Z]+\b")  # a form of a command, not a call: `podium drain NODE [--undo]`
MISSING = "MissingParameter"  # in prose a command may be named without its arguments


@cache
def lines(first: str) -> list[tuple[str, str]]:
    """Return page and text of each command in shell blocks that begins with this word."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^ *```sh\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                calls = (call.strip() for call in re.split(r"&&|\|\|?|;", line.partition(" #")[0]))
                found += [(str(page.relative_to(ROOT)), call) for call in calls if call.split()[:1] == [first]]
    return found


def spans() -> Iterator[tuple[str, str]]:
    """Yield page and text of each call of `podium` in prose."""
    for page in PAGES:
        prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for text in sorted(set(re.findall(r"`(podium [a-z][^`\n]*)`", prose))):
            if text.split()[1] in NAMES and not OPEN.search(text):
                yield str(page.relative_to(ROOT)), text


def parse(text: str) -> Any:
    """Parse a call of `podium` as the command does; return the context, and raise its error."""
    name, *rest = shlex.split(text)[1:]
    command = load(name)
    while getattr(command, "commands", None) and rest and rest[0] in command.commands:
        name, command, rest = rest[0], command.commands[rest[0]], rest[1:]
    return command.make_context(name, rest)


@pytest.mark.parametrize(("page", "call"), lines("podium"))
def test_podium_accepts_each_call_in_a_block(page: str, call: str) -> None:
    parse(call)


@pytest.mark.parametrize(("page", "call"), sorted(spans()))
def test_podium_accepts_each_call_in_prose(page: str, call: str) -> None:
    try:
        parse(call)
    except Exception as error:
        if type(error).__name__ not in (MISSING, "NoArgsIsHelpError"):
            raise


@pytest.mark.parametrize("call", ["podium watch digits --nonsense", "podium simulate --gpus many"])
def test_a_wrong_call_is_refused(call: str) -> None:
    with pytest.raises(Exception, match=r"nonsense|integer"):
        parse(call)


@pytest.mark.parametrize(("page", "call"), lines("helm"))
def test_values_of_the_chart_exist(page: str, call: str) -> None:
    values = yaml.safe_load((ROOT / "charts" / "podium" / "values.yaml").read_text())
    for key in re.findall(r"--set ([\w.]+)=", call):
        at = values
        for part in key.split("."):
            assert part in at, f"{page}: {key} is not in values.yaml"
            at = at[part]


@pytest.mark.parametrize(("page", "call"), [*lines("python"), *lines("pip")])
def test_modules_and_extras_exist(page: str, call: str) -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for module in re.findall(r"^python -m ([\w.]+)", call):
        assert importlib.util.find_spec(module), f"{page}: {module}"
    for extras in re.findall(r"\[([\w,-]+)\]", call):
        assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras.split(",")), (
            f"{page}: {call}"
        )
