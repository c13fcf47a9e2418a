"""Page of one search: curves, holders of the GPUs, parameters, lineage, and every trial with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.pages.importance import importance_card
from podium_dashboard.pages.page import Extra, Fragment, fragment
from podium_dashboard.pages.parallel import parallel_coordinates
from podium_dashboard.pages.searches import expected_end
from podium_dashboard.pages.waiting import waiting_card
from podium_dashboard.state import State
from podium_views import charts, formatting, pareto, progress
from podium_views.decision import newest_decision
from podium_views.job_snapshot import JobSnapshot, present_rank
from podium_views.lineage import lineage
from podium_views.model import LEVELS, JobReport, build
from podium_views.trial_row import TrialRow

MAX_CURVES = 200  # drawn at once: the best trials
MAX_POINTS = 120  # of one curve
MAX_BARS = 400  # of one GPU: the newest allocations
MAX_ROWS = 200  # of the table


@dataclass(frozen=True, slots=True)
class TrialLine:
    """One trial in the table."""

    name: str
    level: int
    phase: str
    why: str
    rank: str
    gpu: str
    step: str
    value: str
    best: str
    predicted: str
    gpu_seconds: str
    suspensions: int
    lost: str
    parameters: str


def fragments(state: State, key: tuple[str, str], now: datetime, extra: Extra) -> tuple[Fragment, ...]:
    """Return the fragments of the page; none if there is no such search."""
    snapshot = state.snapshot(key, now)
    if snapshot is None:
        return ()
    report = build(snapshot)
    drawn = thinned(report)
    head = fragment(
        "head",
        "search_head.html.j2",
        report=report,
        decision=newest_decision(snapshot),
        fraction=progress.fraction_done(snapshot),
        end=expected_end(snapshot.job, snapshot.now),
        gpu_hours=snapshot.job.status.gpu_hours,
        lost=snapshot.job.status.lost_work,
    )
    parts = [head, waiting_card(extra.explanation, partial=state.partial)]
    cards = (
        ("curves", "Learning curves", charts.curves(drawn), True, _left_out(report, drawn)),
        ("front", "Pareto front", pareto.front(report.several), True, ""),
        ("gpus", "Holder of each GPU over time", charts.gantt(drawn), True, ""),
        ("best", f"Best {report.metric.name} so far", charts.best_so_far(report), False, ""),
        ("parallel", "Parameters and results", parallel_coordinates(drawn), True, "A line is one trial."),
        ("lineage", "Lineage", lineage(drawn), True, "A dashed line leads to a child."),
    )
    for name, title, drawing, with_legend, note in cards:
        values = {"title": title, "drawing": drawing, "note": note, "report": report, "levels": LEVELS}
        parts.append(fragment(name, "card.html.j2", with_legend=with_legend, **values))
    parts.insert(-1, importance_card(extra.importance))
    levels = {one.name: one.level for one in report.trials}
    ranked = snapshot.by_rank
    rows = [line(snapshot, trial, levels.get(trial.metadata.name, LEVELS - 1)) for trial in ranked[:MAX_ROWS]]
    more = len(ranked) - len(rows)
    parts.append(fragment("trials", "trials.html.j2", rows=rows, more=more, namespace=key[0], search=key[1]))
    return tuple(parts)


def line(snapshot: JobSnapshot, trial: HyperParamTrial, level: int) -> TrialLine:
    """Return the row of one trial."""
    status = trial.status
    rank, predicted = present_rank(trial), status.predicted
    lost = status.lost_work.steps
    return TrialLine(
        name=trial.metadata.name,
        level=level,
        phase=status.phase.value,
        why=progress.why(trial),
        rank=formatting.NOTHING if rank is None else str(rank),
        gpu=", ".join(snapshot.gpu_name(uuid) for uuid in status.gpus) or formatting.NOTHING,
        step=formatting.step(status.last_step),
        value=formatting.number(status.last_value),
        best=formatting.number(status.best.value if status.best else None),
        predicted=formatting.NOTHING
        if predicted is None
        else f"{formatting.number(predicted.value)} ({formatting.number(predicted.low)} to "
        f"{formatting.number(predicted.high)})",
        gpu_seconds=formatting.number(status.gpu_seconds),
        suspensions=status.suspensions.count,
        lost=formatting.count(round(lost), "step") if lost else formatting.NOTHING,
        parameters=formatting.parameters(trial.spec.parameters),
    )


def thinned(report: JobReport) -> JobReport:
    """Return the report with a bounded number of curves, points and bars.

    Its drawings are sent often.
    """
    trials = tuple(replace(row, curve=_thin(row.curve, MAX_POINTS)) for row in report.trials[:MAX_CURVES])
    lanes = tuple(replace(lane, allocations=lane.allocations[-MAX_BARS:]) for lane in report.lanes)
    return replace(report, trials=trials, lanes=lanes)


def _thin(curve: Sequence[tuple[float, float]], most: int) -> tuple[tuple[float, float], ...]:
    """Return at most `most` points with equal gaps, the last one included."""
    gap = -(-len(curve) // most)
    if gap <= 1:
        return tuple(curve)
    return (*curve[:-1:gap][: most - 1], curve[-1])


def _left_out(report: JobReport, drawn: JobReport) -> str:
    missing = len(report.trials) - len(drawn.trials)
    return f"The best {len(drawn.trials)} trials; {missing} others are not drawn." if missing > 0 else ""


def highlighted(report: JobReport, name: str) -> JobReport:
    """Return the report with one trial in the colour of the best and the others in that of the worst."""
    rows: list[TrialRow] = [replace(one, level=0 if one.name == name else LEVELS - 1) for one in report.trials]
    return replace(report, trials=tuple(rows))
