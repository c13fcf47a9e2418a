"""Regular expressions that users write, evaluated by RE2 in time linear in the text.

A job's `metrics.filter` finds names and values in a line. Validation and the readers compile it here, so that both
accept the same expressions. RE2 takes the syntax of Python's `re` without back-references and look-around.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import re2

from podium_core.logs.budget import LineBudget

MAX_MEMORY = 1 << 20  # bytes that one compiled expression may take
MAX_FILTERED = 1 << 14  # characters of one piece that a user's expression is given


@lru_cache(maxsize=256)
def compiled(pattern: str, ignore_case: bool = False) -> Any:
    """Return the compiled expression. Raises ValueError that says what RE2 cannot take."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    options.case_sensitive = not ignore_case
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None


def parentheses(pattern: str, start: int = 0) -> Iterator[int]:
    """Yield the place of each parenthesis that groups: not escaped, and not in a class of characters."""
    at, in_class = start, False
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\":
            at += 1
        elif in_class:
            in_class = letter != "]"
        elif letter == "[":
            in_class = True
            at += 2 if pattern[at + 1 : at + 3] == "^]" else 1 if pattern[at + 1 : at + 2] == "]" else 0
        elif letter in "()":
            yield at
        at += 1


def filter_error(pattern: str) -> str | None:
    """Return what is wrong with a filter for text logs, and the cure; None if it is valid."""
    try:
        groups = compiled(pattern).groupindex
    except ValueError as error:
        hint = " (RE2 has no back-references and no look-around)" if re.search(r"perl|escape", str(error)) else ""
        return f"{pattern!r} is not a regular expression: {error}{hint}; correct it, or remove filter"
    missing = [name for name in ("name", "value") if name not in groups]
    if missing:
        return f"{pattern!r} has no group {' and '.join(missing)}: write (?P<name>...) and (?P<value>...)"
    return None


def matches(expression: Any, text: str, budget: LineBudget) -> Iterator[Any]:
    """Return the matches in the text from left to right, as many as the budget allows."""
    budget.scanned -= len(text)
    budget.matches -= 1
    if min(budget.scanned, budget.matches) < 0:
        return
    for match in expression.finditer(text):
        yield match
        budget.scanned -= len(text) - match.start()  # the search for the next one may look at all that follows
        budget.matches -= 1
        if min(budget.scanned, budget.matches) < 0:
            return
