"""Limits of the work that one printed line may cost, counted instead of timed: a result never depends on speed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class LineBudget:
    """Remaining budget of one line; a reader stops where one of the counts is below 0.

    `tokens`: brackets, texts and records that the scanner looks at. `attempts`: broken records. `matches`: matches of
    regular expressions. `scanned`: characters that the search for matches may look at.
    """

    tokens: int = 12_000
    attempts: int = 8
    matches: int = 256
    scanned: int = 1 << 20
