"""Figure of learning curves. This module needs matplotlib; `display` imports it at the first figure."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

from matplotlib.figure import Figure

from podium_api.results import Trial


class CurvesFigure(Figure):
    """A figure that a notebook shows as the value of a cell, without pyplot and its backends."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def curves_figure(trials: Sequence[Trial], *, best: str | None, labels: tuple[str, str, str]) -> CurvesFigure:
    """Return the learning curves of the trials, one of them in front; `labels`: title, x axis and y axis."""
    made = CurvesFigure(figsize=(8, 5), layout="constrained")
    axes = made.add_subplot()
    for trial in (one for one in trials if one.curve):
        first = trial.name == best
        steps, values = [point.step for point in trial.curve], [point.value for point in trial.curve]
        axes.plot(
            *(steps, values),
            lw=2.5 if first else 1,
            alpha=1 if first else 0.5,
            zorder=3 if first else 2,
            label=trial.name if first else None,
        )
    axes.set(title=labels[0], xlabel=labels[1], ylabel=labels[2])
    if axes.get_legend_handles_labels()[0]:
        axes.legend(title="best trial")
    return made
