"""What a person sees of a search: one line, a table that follows it, HTML for notebooks."""

from __future__ import annotations

import html as markup
from types import TracebackType
from typing import Any

from podium_api.backend import Objects
from podium_api.results import Trial, front_of, trials_of
from podium_core.domain.phase import is_final

MAX_ROWS = 20


def line(name: str, place: str, seen: Objects) -> str:
    """Return one line about a search."""
    return f"<Search {name} in {place}: {seen.job.status.phase}, {_done(seen)} trials done, {_result(seen)}>"


def columns(seen: Objects) -> tuple[str, ...]:
    """Return the heads of the table: one column for the value, or one for each of several objectives."""
    listed = seen.job.spec.objectives
    values = ("value",) if listed is None else ("front", *(one.metric for one in listed))
    return ("trial", "phase", "rank", "step", *values, "parameters")


def rows(seen: Objects) -> list[tuple[str, ...]]:
    """Return the cells of the best-ranked trials; those without a rank follow.

    With several objectives the trials of the Pareto front come before all others.
    """
    several = seen.job.spec.objectives is not None
    front = {trial.name: place for place, trial in enumerate(front_of(seen))} if several else {}

    def order(trial: Trial) -> tuple[float, bool, int, int]:
        return front.get(trial.name, len(front)), trial.rank is None, trial.rank or 0, trial.number

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
        for trial in sorted(trials_of(seen), key=order)[:MAX_ROWS]
    ]


def table(name: str, seen: Objects) -> Any:
    """Return a table for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=Text(f"{name}: {seen.job.status.phase}, {_done(seen)} trials done"), box=box.SIMPLE)
    for column in columns(seen):
        made.add_column(Text(column), no_wrap=column != "parameters")
    for cells in rows(seen):
        made.add_row(*map(Text, cells))
    return made


def html(name: str, seen: Objects) -> str:
    """Return a table for a notebook; every text is escaped."""
    head = "".join(f"<th>{markup.escape(column)}</th>" for column in columns(seen))
    body = "".join(f"<tr>{''.join(f'<td>{markup.escape(cell)}</td>' for cell in cells)}</tr>" for cells in rows(seen))
    title = markup.escape(f"{name}: {seen.job.status.phase}, {_done(seen)} trials done")
    return f"<p><b>{title}</b></p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Live:
    """A table that is replaced while the search runs, in a terminal or notebook."""

    def __init__(self, enabled: bool) -> None:
        from rich.live import Live as RichLive

        self._live = RichLive(auto_refresh=False, transient=False) if enabled else None

    def __enter__(self) -> Live:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, made: Any) -> None:
        """Show the table."""
        if self._live is not None:
            self._live.update(made, refresh=True)


def _done(seen: Objects) -> str:
    return f"{sum(is_final(trial.status.phase) for trial in seen.trials)}/{seen.job.spec.trials.max}"


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
