"""What a person sees of a search: one line, a table that follows it, HTML for notebooks."""

from __future__ import annotations

import html as markup
from typing import Any

from podium_api.backend import Objects
from podium_api.results import best_first, front_of, trials_of
from podium_core.domain.phase import is_final

MAX_ROWS = 20


def line(name: str, place: str, seen: Objects) -> str:
    """Return one line about a search."""
    return f"<Search {name} in {place}: {seen.job.status.phase}, {_done(seen)}, {_result(seen)}>"


def columns(seen: Objects) -> tuple[str, ...]:
    """Return the heads of the table: one column for the value, or one for each of several objectives."""
    listed = seen.job.spec.objectives
    values = ("value",) if listed is None else ("front", *(one.metric for one in listed))
    return ("trial", "phase", "rank", "step", *values, "parameters")


def rows(seen: Objects) -> list[tuple[str, ...]]:
    """Return the cells of the best trials; those without a value follow.

    With several objectives the trials of the Pareto front come before all others.
    """
    several = seen.job.spec.objectives is not None
    front = {trial.name: place for place, trial in enumerate(front_of(seen))} if several else {}
    ordered = sorted(best_first(seen.job.spec, trials_of(seen)), key=lambda one: front.get(one.name, len(front)))
    return [
        (
            trial.name,
            trial.phase,
            "" if trial.rank is None else str(trial.rank),
            _number(trial.last_step, "g"),
            *(("yes" if trial.name in front else "",) if several else ()),
            *(_number(value, ".6g") for value in trial.values.values()),
            " ".join(f"{name}={_short(value)}" for name, value in trial.parameters.items()),
        )
        for trial in ordered[:MAX_ROWS]
    ]


def title(name: str, seen: Objects) -> str:
    """Return the heading of a table: the phase, the trials that are done, and the best value."""
    best = seen.job.status.best
    shown = "" if best is None else f", best {best.value:.6g}"
    return f"{name}: {seen.job.status.phase}, {_done(seen)}{shown}"


def table(name: str, seen: Objects) -> Any:
    """Return a table for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=Text(title(name, seen)), box=box.SIMPLE)
    for column in columns(seen):
        made.add_column(Text(column), no_wrap=column != "parameters")
    for cells in rows(seen):
        made.add_row(*map(Text, cells))
    return made


def html(name: str, seen: Objects) -> str:
    """Return a table for a notebook; every text is escaped."""
    head = "".join(f"<th>{markup.escape(column)}</th>" for column in columns(seen))
    body = "".join(f"<tr>{''.join(f'<td>{markup.escape(cell)}</td>' for cell in cells)}</tr>" for cells in rows(seen))
    heading = f"<p><b>{markup.escape(title(name, seen))}</b></p>"
    return f"{heading}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _done(seen: Objects) -> str:
    """Return the trials that are done, also of a folder that has more than this call asks for."""
    done, most = sum(is_final(trial.status.phase) for trial in seen.trials), seen.job.spec.trials.max
    more = len(seen.trials) - most
    return f"{done}/{max(most, len(seen.trials))} trials done" + (f" ({more} more than asked for)" if more > 0 else "")


def _result(seen: Objects) -> str:
    if seen.job.spec.objectives is None:
        best = seen.job.status.best
        return "no value yet" if best is None else f"best {best.value:g} ({best.trial})"
    front = front_of(seen)
    if not front:
        return "no trial has a value of every objective yet"
    return f"Pareto front of {len(front)} {'trial' if len(front) == 1 else 'trials'}"


def _number(value: float | None, shape: str) -> str:
    return "" if value is None else format(value, shape)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
