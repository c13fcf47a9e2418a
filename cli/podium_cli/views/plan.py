"""Output of `podium plan`: heading, table, assumptions and data of a forecast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rich.table import Table

from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import JobView
from podium_simulator.system.results.comparison import SearchResult, SearchScore
from podium_simulator.system.results.forecast import JobForecast, low_median_high
from podium_views import formatting

Figure = Callable[[SearchScore], float | None]
HOUR = 3600.0
MARKS = (0.25, 0.5, 0.75)  # of the time to the end


def heading(forecast: JobForecast) -> str:
    """Return a sentence with the job, its policy and the curves."""
    view, searches = forecast.view, formatting.count(len(forecast.own), "simulated search", "simulated searches")
    left = formatting.left_out(forecast.trace, "the forecast is made from the others")
    return (
        f"{formatting.clean(view.key.name)}: {formatting.count(view.limits.max_trials, 'trial')} under {view.policy}, "
        "forecast from "
        f"{searches} on curves of {formatting.search(forecast.trace)}{'.' if left else ''}{left}"
    )


def table(forecast: JobForecast) -> Table:
    """Return median and range over the simulated searches, and the median of the same searches under fifo."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "MEDIAN", "FROM", "TO", "UNDER FIFO"):
        made.add_column(name, no_wrap=True, justify="right" if name else "left")
    migrates = forecast.cluster.method.migrates and bool(forecast.cluster.drains)
    for name, of, read in _rows(forecast.view, migrates=migrates):
        low, median, high = _spread(forecast.own, of)
        made.add_row(name, read(median), read(low), read(high), read(_spread(forecast.fifo, of)[1]))
    for share in MARKS:
        values = [value for run in forecast.own if (value := best_at(run, share)) is not None]
        cells = [formatting.number(value) for value in low_median_high(values)] if values else [formatting.NOTHING] * 3
        made.add_row(f"best after {share:.0%} of the time", cells[1], cells[0], cells[2], "")
    cut = [sum(t.phase is TrialPhase.EARLY_STOPPED for t in run.outcome.trials) for run in forecast.own]
    low, median, high = low_median_high([float(n) for n in cut])
    made.add_row("trials stopped early", *(formatting.number(n) for n in (median, low, high)), "")
    return made


def ends(forecast: JobForecast) -> str:
    """Return why the searches ended, the most frequent reason first."""
    return f"ended by {_reasons(forecast.own)}; under fifo by {_reasons(forecast.fifo)}"


def _reasons(runs: Sequence[SearchResult]) -> str:
    counts = Counter(run.outcome.only.reason for run in runs).most_common()
    return counts[0][0] if len(counts) == 1 else ", ".join(f"{reason} ({times})" for reason, times in counts)


def assumptions(forecast: JobForecast) -> list[str]:
    """Return the assumptions of the forecast as a list."""
    return ["assumptions:", *(f"- {formatting.clean(line)}" for line in forecast.assumptions)]


def best_at(run: SearchResult, share: float) -> float | None:
    """Return the best value after this share of the time to the end; None if there is none yet."""
    known = [value for time, value in run.improvements if time <= share * run.score.end]
    return known[-1] if known else None


def data(forecast: JobForecast) -> dict[str, object]:
    """Return the forecast for programs: each simulated search under the job's policy and under fifo.

    Times are seconds; null means never.
    """
    return {
        "job": forecast.view.key.name,
        "policy": forecast.view.policy,
        "curves": forecast.trace.task,
        "metric": forecast.trace.metric,
        "goal": forecast.trace.goal,
        "leftOut": forecast.trace.left_out,
        "assumptions": forecast.assumptions,
        "searches": [
            {"seed": own.seed, "own": _plain(own), "fifo": _plain(fifo)}
            for own, fifo in zip(forecast.own, forecast.fifo, strict=True)
        ],
    }


def _plain(run: SearchResult) -> dict[str, object]:
    score = run.score
    return {
        "endSeconds": score.end,
        "reason": run.outcome.only.reason,
        "nearBestSeconds": score.near_best,
        "best": score.best,
        "gpuHours": score.gpu_seconds / HOUR,
        "overheadShare": score.overhead,
        "suspensions": score.suspensions,
        "checkpoints": score.checkpoints,
        "migrations": score.migrations,
        "bestAt": {f"{share:g}": best_at(run, share) for share in MARKS},
    }


def _rows(view: JobView, *, migrates: bool) -> list[tuple[str, Figure, Callable[[float | None], str]]]:
    def hours(value: float | None) -> str:
        return formatting.NOTHING if value is None else f"{value / HOUR:.2f}"

    def percent(value: float | None) -> str:
        return formatting.NOTHING if value is None else f"{100 * value:.1f} %"

    def never(value: float | None) -> str:
        return "never" if value is None else formatting.duration(value)

    def whole(value: float | None) -> str:
        return formatting.NOTHING if value is None else f"{value:.0f}"

    return [
        ("job ends after", lambda s: s.end, never),
        ("within 1 % of the best after", lambda s: s.near_best, never),
        ("best value", lambda s: s.best, formatting.number),
        ("GPU hours", lambda s: s.gpu_seconds, hours),
        ("share of them not training", lambda s: s.overhead, percent),
        (
            "checkpoints" if view.abilities.checkpointable and not view.abilities.suspendable else "suspensions",
            lambda s: float(s.suspensions + s.checkpoints),
            whole,
        ),
        *([("live migrations", lambda s: float(s.migrations), whole)] if migrates else []),
    ]


def _spread(runs: Sequence[SearchResult], of: Figure) -> tuple[float | None, float | None, float | None]:
    """Return low, median and high; None means never and counts as later than every time."""
    values = [of(run.score) for run in runs]
    there = sorted(value for value in values if value is not None)
    if not there:
        return None, None, None
    low, median, high = low_median_high(there)
    missing = len(values) - len(there)
    return low, (median if 2 * missing < len(values) else None), (high if not missing else None)
