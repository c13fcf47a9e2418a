"""Output of `podium get trials`: a row for each trial, as a table and as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.table import Table
from rich.text import Text

from podium_cli.structured import items
from podium_cli.views.plain_table import plain_table
from podium_core.schema.trial import HyperParamTrial
from podium_views import additional_metrics, formatting
from podium_views.job_snapshot import JobSnapshot, present_rank
from podium_views.progress import why

Order = Callable[[JobSnapshot], tuple[HyperParamTrial, ...]]
ORDERS: dict[str, Order] = {
    "rank": lambda snapshot: snapshot.by_rank,
    "value": lambda snapshot: snapshot.by_value,
    "predicted": lambda snapshot: _descending(snapshot, lambda trial: _predicted(snapshot, trial)),
    "number": lambda snapshot: snapshot.trials,
    "steps": lambda snapshot: _descending(snapshot, lambda trial: trial.status.last_step),
    "gpu-seconds": lambda snapshot: _descending(snapshot, lambda trial: trial.status.gpu_seconds),
    "suspensions": lambda snapshot: _descending(snapshot, lambda trial: trial.status.suspensions.count),
}


def trials_table(snapshot: JobSnapshot, sort_by: str) -> Table:
    """Return a row for each trial, with a column for the latest value of each additional metric.

    With several objectives, a column marks the trials of the Pareto front.
    """
    metrics = additional_metrics.names(snapshot.job)
    heads = ["TRIAL", "PHASE", "GPU", "RANK", "STEP", "VALUE", "BEST", "PREDICTED", "GPU-S", "SUSPENSIONS"]
    families = ["PARENT", "GENERATION"] if any(trial.spec.parent for trial in snapshot.trials) else []
    several, front = snapshot.job.spec.objectives is not None, {one.trial for one in snapshot.front}
    marks = ["FRONT"] if several else []
    table = plain_table(*heads, *families, *map(formatting.clean, metrics), *marks, "PARAMETERS", "WHY")
    for trial in ORDERS[sort_by](snapshot):
        status = trial.status
        table.add_row(
            Text(trial.metadata.name),
            Text(status.phase.value),
            Text(",".join(snapshot.gpu_name(uuid) for uuid in status.gpus) or formatting.NOTHING),
            Text(formatting.NOTHING if (rank := present_rank(trial)) is None else str(rank)),
            Text(formatting.step(status.last_step)),
            Text(formatting.number(status.last_value)),
            Text(formatting.number(status.best.value if status.best else None)),
            Text(formatting.number(status.predicted.value if status.predicted else None)),
            Text(f"{status.gpu_seconds:.1f}"),
            Text(str(status.suspensions.count)),
            *map(Text, _origin(trial) if families else ()),
            *(Text(additional_metrics.latest(trial, metric)) for metric in metrics),
            *([Text("yes" if trial.metadata.name in front else formatting.NOTHING)] if several else []),
            Text(formatting.parameters(trial.spec.parameters)),
            Text(why(trial)),
        )
    return table


def trials_data(snapshot: JobSnapshot, sort_by: str) -> dict[str, Any]:
    """Return the same for programs; unknown values are null."""
    front = {one.trial: one.values for one in snapshot.front}

    def row(trial: HyperParamTrial) -> dict[str, Any]:
        data = trial_data(snapshot, trial)
        return data if snapshot.job.spec.objectives is None else {**data, "front": front.get(trial.metadata.name)}

    return items(map(row, ORDERS[sort_by](snapshot)))


def trial_data(snapshot: JobSnapshot, trial: HyperParamTrial) -> dict[str, Any]:
    """Return one trial for programs."""
    status = trial.status
    metrics = {one.metric: one.model_dump(mode="json", by_alias=True) for one in status.additional_metrics}
    return {
        "namespace": trial.metadata.namespace,
        "name": trial.metadata.name,
        "job": trial.spec.job,
        "number": trial.spec.number,
        "parameters": dict(trial.spec.parameters),
        "parent": trial.spec.parent.model_dump(mode="json", by_alias=True) if trial.spec.parent else None,
        "phase": status.phase.value,
        "reason": status.reason,
        "message": status.message,
        "rank": present_rank(trial),
        "gpus": [{"name": snapshot.gpu_name(uuid), "uuid": uuid} for uuid in status.gpus],
        "step": status.last_step,
        "value": status.last_value,
        "best": status.best.model_dump(mode="json") if status.best else None,
        "predicted": status.predicted.model_dump(mode="json") if status.predicted else None,
        "additionalMetrics": metrics,
        "gpuSeconds": status.gpu_seconds,
        "suspensions": status.suspensions.count,
        "pod": status.pod,
        "node": status.node,
        "attempt": status.attempt,
    }


def _origin(trial: HyperParamTrial) -> tuple[str, str]:
    """Return the parent of a trial and its generation."""
    parent = trial.spec.parent
    return (formatting.NOTHING, "0") if parent is None else (parent.name, str(parent.generation))


def _predicted(snapshot: JobSnapshot, trial: HyperParamTrial) -> float | None:
    """Return the predicted value with the sign for which larger is better."""
    predicted = trial.status.predicted
    if predicted is None:
        return None
    return predicted.value if snapshot.maximize else -predicted.value


def _descending(
    snapshot: JobSnapshot, figure: Callable[[HyperParamTrial], float | None]
) -> tuple[HyperParamTrial, ...]:
    """Return the trials by a figure: the largest first, unknown last, ties by number."""

    def key(trial: HyperParamTrial) -> tuple[float, int]:
        known = figure(trial)
        return (float("inf") if known is None else -known, trial.spec.number)

    return tuple(sorted(snapshot.trials, key=key))
