"""Figure of a search: learning curves of one objective, or the Pareto front of several. It needs matplotlib."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from podium_api.backend import Objects
from podium_api.results import Trial, front_of, trials_of

PANEL = (8.0, 5.0)  # inches
NARROW = (5.0, 4.5)


class PngFigure(Figure):
    """A figure that a notebook shows as a PNG, without pyplot and its backends."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def figure(name: str, seen: Objects, path: str | Path | None) -> PngFigure:
    """Return the figure, and save it to `path`."""
    listed = seen.job.spec.objectives
    if listed is None:
        made = PngFigure(figsize=PANEL, layout="constrained")
        _draw_curves(made.add_subplot(), seen)
    else:
        first, *others = [one.metric for one in listed]
        width, height = PANEL if len(others) == 1 else (len(others) * NARROW[0], NARROW[1])
        made = PngFigure(figsize=(width, height), layout="constrained")
        trials, front = trials_of(seen), front_of(seen)
        for place, other in enumerate(others, start=1):
            _draw_front(made.add_subplot(1, len(others), place), trials, front, first, other)
    made.suptitle(name)
    if path is not None:
        made.savefig(path)
    return made


def _draw_curves(axes: Any, seen: Objects) -> None:
    """Draw the learning curves, the best trial in front."""
    best = seen.job.status.best
    for trial in trials_of(seen):
        if trial.curve:
            first = best is not None and trial.name == best.trial
            steps, values = [point.step for point in trial.curve], [point.value for point in trial.curve]
            axes.plot(
                *(steps, values),
                lw=2.5 if first else 1,
                alpha=1 if first else 0.5,
                zorder=3 if first else 2,
                label=trial.name if first else None,
            )
    axes.set(xlabel="step", ylabel=seen.job.spec.objective.metric)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(title="best trial")


def _draw_front(axes: Any, trials: list[Trial], front: list[Trial], x: str, y: str) -> None:
    """Draw the trials by two objectives; those of the front are larger and named."""
    inside = {trial.name for trial in front}
    others = [trial for trial in trials if trial.name not in inside and None not in trial.values.values()]
    for shown, size, label in ((others, 20, "dominated"), (front, 50, "Pareto front")):
        axes.scatter([one.values[x] for one in shown], [one.values[y] for one in shown], s=size, label=label)
    for trial in front:
        axes.annotate(str(trial.number), (trial.values[x], trial.values[y]), xytext=(4, 4), textcoords="offset points")
    axes.set(xlabel=x, ylabel=y)
    axes.legend()
