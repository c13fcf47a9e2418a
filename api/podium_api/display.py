"""What a person sees of a search: one line, a table that follows it, HTML for notebooks, a figure."""

from __future__ import annotations

import html as markup
from pathlib import Path
from typing import Any

from podium_api.backend import Objects
from podium_api.errors import SearchError
from podium_api.results import Trial, best_first
from podium_core.domain.phase import is_final

MAX_ROWS = 20
COLUMNS = ("trial", "phase", "rank", "step", "value", "parameters")


def line(name: str, place: str, seen: Objects) -> str:
    """Return one line about a search."""
    best = seen.job.status.best
    shown = "no value yet" if best is None else f"best {best.value:g} ({best.trial})"
    return f"<Search {name} in {place}: {seen.job.status.phase}, {_done(seen)} trials done, {shown}>"


def rows(seen: Objects) -> list[tuple[str, ...]]:
    """Return the cells of the best trials; those without a value follow."""
    return [
        (
            trial.name,
            trial.phase,
            "" if trial.rank is None else str(trial.rank),
            "" if trial.last_step is None else f"{trial.last_step:g}",
            "" if trial.value is None else f"{trial.value:.6g}",
            " ".join(f"{name}={_short(value)}" for name, value in trial.parameters.items()),
        )
        for trial in best_first(seen.job.spec, map(Trial.of, seen.trials))[:MAX_ROWS]
    ]


def title(name: str, seen: Objects) -> str:
    """Return the heading of a table: the phase, the trials that are done, and the best value."""
    best = seen.job.status.best
    shown = "" if best is None else f", best {best.value:.6g}"
    return f"{name}: {seen.job.status.phase}, {_done(seen)} trials done{shown}"


def table(name: str, seen: Objects) -> Any:
    """Return a table for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=Text(title(name, seen)), box=box.SIMPLE)
    for column in COLUMNS:
        made.add_column(column, no_wrap=column != "parameters")
    for cells in rows(seen):
        made.add_row(*map(Text, cells))
    return made


def html(name: str, seen: Objects) -> str:
    """Return a table for a notebook; every text is escaped."""
    head = "".join(f"<th>{column}</th>" for column in COLUMNS)
    body = "".join(f"<tr>{''.join(f'<td>{markup.escape(cell)}</td>' for cell in cells)}</tr>" for cells in rows(seen))
    heading = f"<p><b>{markup.escape(title(name, seen))}</b></p>"
    return f"{heading}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def figure(name: str, seen: Objects, path: str | Path | None) -> Any:
    """Return a figure of the learning curves, the best trial in front."""
    try:
        from podium_api.figure import curves_figure
    except ModuleNotFoundError as error:
        raise SearchError("MatplotlibMissing", "this needs matplotlib: pip install matplotlib") from error
    best = seen.job.status.best
    made = curves_figure(
        [Trial.of(trial) for trial in seen.trials],
        best=None if best is None else best.trial,
        labels=(name, "step", seen.job.spec.objective.metric),
    )
    if path is not None:
        made.savefig(path)
    return made


def _done(seen: Objects) -> str:
    return f"{sum(is_final(trial.status.phase) for trial in seen.trials)}/{seen.job.spec.trials.max}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
