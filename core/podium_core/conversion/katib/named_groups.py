"""Katib's `metricsFormat`: its two groups by position become the groups `name` and `value` of Podium's filter."""

from __future__ import annotations

from collections.abc import Iterator

from podium_core.logs.filters import parentheses


def named_groups(pattern: str) -> str | None:
    """Return the expression with its first two groups named; None if it has fewer than two."""
    starts = list(_groups(pattern))
    if len(starts) < 2:
        return None
    made, end = "", 0
    for (start, length), name in zip(starts, ("name", "value"), strict=False):
        made += f"{pattern[end:start]}(?P<{name}>"
        end = start + length
    return made + pattern[end:]


def _groups(pattern: str) -> Iterator[tuple[int, int]]:
    """Yield where each capturing group opens, and the length of its opening: `(`, or `(?P<x>`."""
    for at in parentheses(pattern):
        rest = pattern[at + 1 :]
        if pattern[at] == ")":
            continue
        if not rest.startswith("?"):
            yield at, 1
        elif rest.startswith(("?P<", "?<")) and ">" in rest:
            yield at, rest.index(">") + 2
