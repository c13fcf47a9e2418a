"""Page of one trial: its curve, why it runs or waits, its suspensions, checkpoints, lost work and log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.pages.page import Extra, Fragment, fragment
from podium_dashboard.pages.search import highlighted, line, thinned
from podium_dashboard.sources.source import LogTail
from podium_dashboard.state import State
from podium_views import additional_metrics, charts, formatting
from podium_views.job_snapshot import JobSnapshot, run_queue_of
from podium_views.model import LEVELS, build

MAX_OTHERS = 60  # curves of other trials behind that of this one
MAX_ALLOCATIONS = 20


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """The place of a trial in the run queue of one GPU, and the holder of that GPU."""

    gpu: str
    position: str
    reason: str
    holder: str
    holder_reason: str


def fragments(state: State, namespace: str, name: str, now: datetime, extra: Extra) -> tuple[Fragment, ...]:
    """Return the fragments of the page; none if there is no such trial."""
    found = state.trial(namespace, name)
    snapshot = None if found is None else state.snapshot(found[0].key, now)
    if found is None or snapshot is None:
        return ()
    trial = found[1]
    report = thinned(build(snapshot))
    own = [row for row in report.trials if row.name == name]
    others = [row for row in report.trials if row.name != name][:MAX_OTHERS]
    shown = highlighted(replace(report, trials=(*own, *others)), name)
    values = {"trial": trial, "status": trial.status, "report": report, "now": snapshot.now}
    head = fragment(
        "head",
        "trial_head.html.j2",
        line=line(snapshot, trial, 0),
        places=queue_places(snapshot, trial),
        requests=[request for request in ("suspend", "pinned", "stopped") if getattr(trial.spec, request)],
        metrics=additional_metrics.sentences(snapshot.job, trial),
        **values,
    )
    note = "Thin lines: other trials of the search." if others else ""
    curve = {"title": "Learning curve", "drawing": charts.curves(shown), "note": note, "report": report}
    allocations = [
        (
            ", ".join(snapshot.gpu_name(uuid) for uuid in one.gpus),
            one.start,
            formatting.since(one.start, one.end or snapshot.now) + ("" if one.end else " and continues"),
        )
        for one in trial.status.allocations[: -MAX_ALLOCATIONS - 1 : -1]
    ]
    return (
        head,
        fragment("curve", "card.html.j2", with_legend=False, levels=LEVELS, **curve),
        fragment("history", "trial_history.html.j2", allocations=allocations, **values),
        fragment("events", "events.html.j2", events=extra.events),
        fragment("log", "log.html.j2", log=extra.log or LogTail()),
    )


def queue_places(snapshot: JobSnapshot, trial: HyperParamTrial) -> list[QueuePlace]:
    """Return the place of the trial on each of its GPUs."""
    places = []
    for node, gpu in snapshot.gpus:
        if gpu.uuid not in trial.status.gpus:
            continue
        queue = run_queue_of(node, gpu.uuid)
        own = next((entry for entry in queue if entry.uid == trial.metadata.uid), None)
        holder = gpu.holder
        held, rival = "none", None
        if holder is not None:
            mine = holder.uid == trial.metadata.uid
            name = "this trial" if mine else formatting.full_name(holder.namespace, holder.trial)
            if not mine:
                rival = next((entry for entry in queue if entry.uid == holder.uid), None)
            held = f"{name}, for {formatting.since(holder.since, snapshot.now)}"
        places.append(
            QueuePlace(
                gpu=snapshot.gpu_name(gpu.uuid),
                position=formatting.NOTHING if own is None else f"{queue.index(own) + 1} of {len(queue)}",
                reason="" if own is None else formatting.cause(own.reason, own.message),
                holder=held,
                holder_reason="" if rival is None else formatting.cause(rival.reason, rival.message),
            )
        )
    return places
