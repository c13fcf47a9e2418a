"""The forecast of `podium plan` for a job before it runs, against the job's run.

There are two forecasts of each job, both with the usual times of pods and switches and with five samples:

- before anything similar has run: `podium plan JOB.yaml --gpus N --nodes M --step-seconds S`, on the bundled curves. S
  is the run's median, which the owner would have to guess;
- with the curves that `podium export` wrote of the previous search (for the first search: of the last one):
  `podium plan JOB.yaml LAST.jsonl --gpus N --nodes M`. It has nothing of the run itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from benchmarks.simulator.pod_times import moment
from benchmarks.simulator.starts import end_of, held
from podium_core.domain.snapshot import JobView
from podium_core.schema.trial import HyperParamTrial
from podium_simulator.system.comparison import ClusterSpec
from podium_simulator.system.forecast import forecast as plan_forecast
from podium_simulator.system.forecast import low_median_high
from podium_simulator.system.searches import even_nodes
from podium_simulator.system.switch_times import switch_method
from podium_simulator.traces.trace import Trace, bundled_trace
from podium_views.job_snapshot import JobSnapshot
from podium_views.trace import trace_of

SEEDS, SLOTS, SWITCH = 5, 4, 0.2  # defaults of `podium plan`
COLUMNS = (
    "search",
    "curves",
    "end, real",
    "forecast (lowest to highest)",
    "error",
    "within",
    "GPU s, real / forecast",
    "error",
    "suspensions, real / forecast",
)


@dataclass(frozen=True, slots=True)
class Run:
    """Outcome of a job.

    `end`: seconds from its creation; `gpu_seconds`: how long its trials held GPUs; `step_seconds`: median seconds of
    training for a step; `exported`: the trace that `podium export` writes.
    """

    end: float
    gpu_seconds: float
    suspensions: int
    step_seconds: float
    exported: Trace


@dataclass(frozen=True, slots=True)
class Figure:
    """A real figure, and the lowest, median and highest of the forecast's samples."""

    real: float
    low: float
    median: float
    high: float

    @property
    def error(self) -> float:
        """Error of the median relative to the real figure; above 0: the forecast was too high."""
        return (self.median - self.real) / self.real if self.real else float(self.median != 0.0)

    @property
    def within(self) -> bool:
        return self.low <= self.real <= self.high


@dataclass(frozen=True, slots=True)
class Forecasted:
    """One forecast of a job beside its run. `curves`: what the forecast was made from, in words."""

    curves: str
    end: Figure
    gpu_seconds: Figure
    suspensions: Figure

    def row(self, number: int) -> str:
        """Return one row of the table."""
        end, used, switched = self.end, self.gpu_seconds, self.suspensions
        cells = (
            f"{number} | {self.curves} | {end.real:.0f} s",
            f"{end.median:.0f} s ({end.low:.0f} to {end.high:.0f}) | {end.error:+.1%} | {_yes(end)}",
            f"{used.real:.0f} / {used.median:.0f} | {used.error:+.1%}",
            f"{switched.real:.0f} / {switched.median:.0f} ({switched.low:.0f} to {switched.high:.0f})",
        )
        return f"| {' | '.join(cells)} |"


def run_of(snapshot: JobSnapshot, origin: float) -> Run:
    """Return the outcome of a job.

    `origin`: when it was created. Kubernetes keeps its end in whole seconds.
    """
    last = max(end_of(trial) for trial in snapshot.trials if trial.status.finished_at is not None)
    finished = snapshot.job.status.finished_at
    end = last if finished is None else moment(finished.timestamp(), last, float("inf"))
    return Run(
        end=end - origin,
        gpu_seconds=sum(trial.status.gpu_seconds for trial in snapshot.trials),
        suspensions=sum(trial.status.suspensions.count for trial in snapshot.trials),
        step_seconds=_step_seconds(snapshot.trials),
        exported=trace_of(snapshot),
    )


def _step_seconds(trials: Sequence[HyperParamTrial]) -> float:
    return median(
        (held(trial, b.time) - held(trial, a.time)) / (b.step - a.step)
        for trial in trials
        for a, b in pairwise(trial.status.curve.points)
    )


def forecasted(view: JobView, gpus: int, nodes: int, run: Run, last: Run | None = None) -> Forecasted:
    """Forecast a job that freezes its trials, as the example does.

    `view`: the job, with times from its creation. `last`: the search that the forecast is made from; None: the bundled
    curves and the run's own seconds of a step.
    """
    place = ClusterSpec(even_nodes(gpus, nodes, SLOTS), switch_method("freeze", None, None, None, SWITCH))
    asked = replace(view, uid=f"forecast-{view.key.name}")
    curves, step = (bundled_trace(), run.step_seconds) if last is None else (last.exported, None)
    scores = [one.score for one in plan_forecast(asked, curves, place, SEEDS, step).own]
    return Forecasted(
        f"bundled, {step:.2f} s a step" if step is not None else f"export of {curves.task}",
        Figure(run.end, *low_median_high([score.end for score in scores])),
        Figure(run.gpu_seconds, *low_median_high([score.gpu_seconds for score in scores])),
        Figure(float(run.suspensions), *low_median_high([float(score.suspensions) for score in scores])),
    )


def section(forecasts: Sequence[tuple[int, Forecasted]], gpus: int, nodes: int) -> list[str]:
    """Return the section of the page. `forecasts`: each forecast with the number of its search."""
    return [
        "\n## The forecast\n",
        f"`podium plan JOB.yaml --gpus {gpus} --nodes {nodes} --step-seconds S` for the same jobs, against the",
        "cluster, before anything similar has run. The forecast has the job, the GPUs, and S. S is the run's own",
        "median seconds of a step, which the owner would have to guess. The forecast uses the bundled curves of",
        "the example",
        f"({SEEDS} samples) and the usual times of pods and switches, nothing of the run.",
        "`podium plan JOB.yaml LAST.jsonl` has the curves that `podium export` wrote of another search: the previous",
        "one, and for the first one the last. Errors are of the median. Within: from the lowest to the highest of the",
        "samples.\n",
        f"| {' | '.join(COLUMNS)} |",
        f"|{' --- |' * len(COLUMNS)}",
        *(one.row(number) for number, one in forecasts),
    ]


def result(forecasts: Sequence[Forecasted]) -> dict[str, list[str] | list[float] | list[bool]]:
    """Return this part of RESULT."""
    return {
        "curves": [one.curves for one in forecasts],
        "end_error": [round(one.end.error, 3) for one in forecasts],
        "end_within": [one.end.within for one in forecasts],
        "gpu_seconds_error": [round(one.gpu_seconds.error, 3) for one in forecasts],
        "suspensions_error": [round(one.suspensions.error, 3) for one in forecasts],
    }


def _yes(figure: Figure) -> str:
    return "yes" if figure.within else "NO"
