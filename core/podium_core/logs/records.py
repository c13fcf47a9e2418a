"""Records in a line: JSON objects and Python dictionaries as Hugging Face prints them, one or several.

A scanner reads keys and numbers where they stand, without building the objects, so that its cost is bounded. It
needs `{`, keys in quotes, and a `}` for each `{`. Values may be numbers, strings with a number, or a number in a call
such as `tensor(0.71, device='cuda:0')`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from podium_core.logs.budget import LineBudget
from podium_core.logs.printed_numbers import number_of_text, printed_number

RECORD_COST = 24  # tokens that each record counts beside those in it
Path = tuple[str, ...]

# a text that does not end takes the rest of the line, so that no character is looked at twice
_TOKEN = re.compile(r"""(?P<text>"(?:[^"\\]|\\.)*(?P<end1>"?)|'(?:[^'\\]|\\.)*(?P<end2>'?))|[{}\[\]()]""", re.DOTALL)
_COLON = re.compile(r"\s{0,64}:\s{0,64}")
# a number as JSON and Python write it; longer ones are not read
_DIGITS = r"(?:[0-9][0-9_]{0,511}\.?[0-9]{0,64}|\.[0-9]{1,64})(?:[eE][+-]?[0-9]{1,9})?"
_LITERAL = re.compile(rf"[+-]?{_DIGITS}(?=\s{{0,64}}[,}}\])])(?!,[0-9]+\s{{0,64}}[,}}])")  # `1,5}` is not an entry
_PAIRS = {"}": "{", "]": "[", ")": "("}


def paths_of(name: str) -> tuple[Path, ...]:
    """Return the paths at which a record may hold a metric.

    They are its name, and the parts of its name as keys of nested records.
    """
    parts = tuple(name.split("."))
    return ((name,), parts) if len(parts) > 1 else ((name,),)


def records(text: str, wanted: Mapping[Path, bool], budget: LineBudget) -> list[dict[Path, float]]:
    """Return the wanted numbers of each record in the text, in their order.

    `wanted`: the paths of keys to read, and whether the number counts steps. A record without any of them is an empty
    dictionary.
    """
    parsed: list[dict[Path, float]] = []
    start = text.find("{")
    while start >= 0 and budget.tokens > 0 and budget.attempts > 0:
        record, end = _record(text, start, wanted, budget)
        budget.tokens -= RECORD_COST
        if record is None:
            budget.attempts -= 1
        else:
            parsed.append(record)
        start = text.find("{", end)
    return parsed


def _record(
    text: str, start: int, wanted: Mapping[Path, bool], budget: LineBudget
) -> tuple[dict[Path, float] | None, int]:
    """Return the numbers of the record at `start` and where to continue; None where the record is broken."""
    numbers: dict[Path, float] = {}
    brackets: list[str] = []
    keys: list[str] = []  # one for each open `{`
    deepest = max(map(len, wanted))
    for token in _TOKEN.finditer(text, start):
        budget.tokens -= 1
        if budget.tokens < 0:
            return None, len(text)
        kind = token[0][0]
        if kind in "{[(":
            brackets.append(kind)
            if kind == "{":
                keys.append("")
        elif kind in "}])":
            if brackets.pop() != _PAIRS[kind]:
                return None, start + 1
            if kind == "}":
                keys.pop()
            if not brackets:
                return numbers, token.end()
        elif not (token["end1"] or token["end2"]):
            return None, start + 1
        elif brackets[-1] == "{" and len(brackets) == len(keys) <= deepest:
            colon = _COLON.match(text, token.end())
            if colon is None:
                continue
            keys[-1] = _unquoted(token[0])
            path = tuple(keys)
            if path in wanted:
                numbers.pop(path, None)
                number = _value(text, colon.end(), wanted[path])
                if number is not None:
                    numbers[path] = number
    return None, start + 1


def _unquoted(text: str) -> str:
    """Return the content of a quoted text, with JSON's escapes replaced."""
    if "\\" not in text:
        return text[1:-1]
    try:
        return str(json.loads(f'"{text[1:-1]}"'))
    except ValueError:
        return text[1:-1]


def _value(text: str, at: int, counter: bool) -> float | None:
    """Return the number at a key; commas separate entries here, so they are not part of a number."""
    literal = _LITERAL.match(text, at)
    if literal is not None:
        return float(literal[0].replace("_", ""))
    if text[at : at + 1] in ("'", '"'):
        token = _TOKEN.match(text, at)
        return None if token is None else number_of_text(_unquoted(token[0]), counter=counter)
    if text[at : at + 1].isalpha() or text[at : at + 2] in ("-i", "-I", "-n", "-N"):  # a word such as nan, or a call
        number = printed_number(text, at, counter=counter)
        return None if number is None else number.value
    return None
