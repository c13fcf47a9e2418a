"""What a person sees of a search: one line, a table that follows it, HTML for notebooks, a figure."""

from __future__ import annotations

import html as markup
from pathlib import Path
from types import TracebackType
from typing import Any

from podium_api.backend import Objects
from podium_api.errors import SearchError
from podium_api.results import Trial
from podium_core.domain.phase import is_final

MAX_ROWS = 20
COLUMNS = ("trial", "phase", "rank", "step", "value", "parameters")


def line(name: str, place: str, seen: Objects) -> str:
    """Return one line about a search."""
    best = seen.job.status.best
    shown = "no value yet" if best is None else f"best {best.value:g} ({best.trial})"
    return f"<Search {name} in {place}: {seen.job.status.phase}, {_done(seen)} trials done, {shown}>"


def rows(seen: Objects) -> list[tuple[str, ...]]:
    """Return the cells of the best-ranked trials; those without a rank follow."""
    trials = sorted(map(Trial.of, seen.trials), key=lambda trial: (trial.rank is None, trial.rank or 0, trial.number))
    return [
        (
            trial.name,
            trial.phase,
            "" if trial.rank is None else str(trial.rank),
            "" if trial.last_step is None else f"{trial.last_step:g}",
            "" if trial.value is None else f"{trial.value:.6g}",
            " ".join(f"{name}={_short(value)}" for name, value in trial.parameters.items()),
        )
        for trial in trials[:MAX_ROWS]
    ]


def table(name: str, seen: Objects) -> Any:
    """Return a table for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=Text(f"{name}: {seen.job.status.phase}, {_done(seen)} trials done"), box=box.SIMPLE)
    for column in COLUMNS:
        made.add_column(column, no_wrap=column != "parameters")
    for cells in rows(seen):
        made.add_row(*map(Text, cells))
    return made


def html(name: str, seen: Objects) -> str:
    """Return a table for a notebook; every text is escaped."""
    head = "".join(f"<th>{column}</th>" for column in COLUMNS)
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


def figure(name: str, seen: Objects, path: str | Path | None) -> Any:
    """Return a figure of the learning curves, the best trial in front."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise SearchError("MatplotlibMissing", "this needs matplotlib: pip install matplotlib") from error
    made = Figure(figsize=(8, 5), layout="constrained")
    axes = made.add_subplot()
    best = seen.job.status.best
    for trial in map(Trial.of, seen.trials):
        if trial.curve:
            first = best is not None and trial.name == best.trial
            steps, values = [point.step for point in trial.curve], [point.value for point in trial.curve]
            axes.plot(
                steps, values, lw=2.5 if first else 1, alpha=1 if first else 0.5, label=trial.name if first else None
            )
    axes.set(title=name, xlabel="step", ylabel=seen.job.spec.objective.metric)
    if best is not None:
        axes.legend(title="best trial")
    if path is not None:
        made.savefig(path)
    return made


def _done(seen: Objects) -> str:
    return f"{sum(is_final(trial.status.phase) for trial in seen.trials)}/{seen.job.spec.trials.max}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
