"""Output of `podium doctor`: a table of the results with the cures, and data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from podium_cli.doctor.check_table import BY_CODE, Outcome, Result
from podium_cli.views.plain_table import plain_table
from podium_views import formatting

STYLES = {Outcome.ERROR: "bold red", Outcome.WARNING: "yellow", Outcome.SKIPPED: "dim", Outcome.OK: "green"}


def table(results: Sequence[Result]) -> Table:
    """Return the results as a table; a cure follows the sentence of what is wrong."""
    made = plain_table("RESULT", "CHECK", "WHERE", "WHY")
    for one in results:
        why = f"{one.message}. {one.cure}" if one.cure else one.message
        made.add_row(Text(one.outcome, style=STYLES[one.outcome]), Text(one.check), Text(one.subject), Text(why))
    return made


def summary(results: Sequence[Result]) -> str:
    """Return the number of results by outcome as a sentence."""
    counts = {outcome: sum(one.outcome is outcome for one in results) for outcome in Outcome}
    return (
        f"{formatting.count(counts[Outcome.ERROR], 'error')}, {formatting.count(counts[Outcome.WARNING], 'warning')}, "
        f"{counts[Outcome.SKIPPED]} skipped, {counts[Outcome.OK]} ok"
    )


def data(results: Sequence[Result]) -> dict[str, Any]:
    """Return the results for programs."""
    counts = {outcome.value: sum(one.outcome is outcome for one in results) for outcome in Outcome}
    rows = [
        {
            "check": one.check,
            "group": BY_CODE[one.check].group,
            "where": one.subject,
            "result": one.outcome.value,
            "message": one.message,
            "cure": one.cure or None,
        }
        for one in results
    ]
    return {"counts": counts, "items": rows}
