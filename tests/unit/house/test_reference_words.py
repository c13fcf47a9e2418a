"""Reference pages and the help name types and limits in words, not as Python and pydantic write them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from podium_cli import main
from podium_cli.command_table import COMMANDS
from podium_cli.exit_codes import Exit

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
PAGES = sorted(REFERENCE.glob("*.md"))
FROM_MODELS = ("hyperparamjob.md", "hyperparamtrial.md", "gpunode.md")
# `int` and `float` in code are values of spec.parameters[].type
PYTHON = re.compile(
    r"\b(?:str|bool|NoneType|Literal\[|Annotated\[|Optional\[|dict\[|list\[|tuple\[|pydantic|constr)\b"
    r"|[a-z\]] \| None\b|\b[gl][et]=|\bInput should\b|\bvalid(?:ation)? error\b"
)
SIGNS = re.compile(r"[<>]=|≥|≤")
CODE = re.compile(r"`(?:\\.|[^`])*`")
LIMIT = re.compile(
    r"^must (?:be (?:greater|less) than (?:or equal to )?-?[\d.e+]+|have at (?:least|most) \d+ (?:item|character)s?)$"
)
TYPE = re.compile(
    r"^(?:array of .+|object(?: with values of type .+)?|string|integer|number|boolean|integer or string"
    r"|string, number or boolean|time \(RFC 3339\)|`[^`]*`(?: \\\| `[^`]*`)*)$"
)


def types(page: Path) -> Iterator[str]:
    """Yield the column "Type" of each field of a generated page."""
    fields = page.read_text().split("## Validation rules")[0]
    for line in fields.splitlines():
        if re.match(r"\| (?:\*\*)?`", line):
            yield re.split(r"(?<!\\) \| ", line)[1]


def test_each_rule_finds_what_it_forbids() -> None:
    assert [bool(PYTHON.search(text)) for text in ("a str", "float | None", "ge=0", "Literal[1]")] == [True] * 4
    assert not TYPE.match("int")
    assert not TYPE.match("str")
    assert not LIMIT.match("must be >= 0")
    assert LIMIT.match("must be greater than or equal to 0")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_reference_page_has_no_types_of_python(page: Path) -> None:
    prose = CODE.sub("", page.read_text())
    for line in prose.splitlines():
        assert not PYTHON.search(line), f"{page.name}: {line[:120]}"
        assert not SIGNS.search(line), f"{page.name}: write the limit in words: {line[:120]}"


@pytest.mark.parametrize("name", FROM_MODELS)
def test_types_and_limits_of_fields_are_words(name: str) -> None:
    found = list(types(REFERENCE / name))
    assert found
    for text in found:
        kind, *limits = re.split(r"; (?:each )?", text)
        assert TYPE.match(kind), text
        assert all(LIMIT.match(limit) for limit in limits), text


@pytest.mark.parametrize("command", ["", *(entry.name for entry in COMMANDS)])
def test_the_help_names_placeholders_and_not_types(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    main.run([*command.split(), "--help"])
    found = re.findall(r"<(?:str|bool|int|float|path|list\[\w+\]?|\w+ range)>?", capsys.readouterr().out)
    assert found == [], f"`podium {command} --help`"


@pytest.mark.parametrize("value", ["many", "1.5"])
def test_the_error_about_a_value_is_not_in_the_words_of_pydantic(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["simulate", "--gpus", value]) is Exit.USAGE
    assert f"Invalid value for '--gpus': must be an integer (got '{value}')" in capsys.readouterr().err
