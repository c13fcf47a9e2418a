"""Output of `podium get jobs`: a row for each job, as a table and as data. A job's own status is enough for it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from podium_cli.structured import items, time
from podium_cli.views.plain_table import plain_table
from podium_cli.views.watch import JOB_STYLE
from podium_core.schema.job import HyperParamJob
from podium_views import formatting
from podium_views.progress import gpus_in_use, trials_done


def in_order(jobs: Iterable[HyperParamJob]) -> list[HyperParamJob]:
    """Return the jobs by namespace and name, as kubectl lists objects."""
    return sorted(jobs, key=lambda job: (job.metadata.namespace, job.metadata.name))


def table(jobs: Iterable[HyperParamJob], now: datetime) -> Table:
    """Return a row for each job."""
    view = plain_table(
        "NAMESPACE", "NAME", "PHASE", "DONE", "RUNNING", "BEST", "BEST-TRIAL", "GPUS", "GPU-HOURS", "AGE", "ETA"
    )
    for job in jobs:
        status, best = job.status, job.status.best
        front = "" if job.spec.objectives is None else f"front of {len(status.pareto_front)}"
        view.add_row(
            Text(job.metadata.namespace),
            Text(job.metadata.name),
            Text(status.phase, style=JOB_STYLE.get(status.phase, "")),
            Text(f"{trials_done(job)}/{status.trials.total(job.spec.trials.max)}"),
            Text(str(status.trials.running)),
            Text(formatting.number(best.value if best else None)),
            Text(best.trial if best else front or formatting.NOTHING),
            Text(str(gpus_in_use(job))),
            Text(f"{status.gpu_hours:.2f}"),
            Text(formatting.age(job.metadata.creation_timestamp, now)),
            Text(_eta(job, now)),
        )
    return view


def data(jobs: Iterable[HyperParamJob]) -> dict[str, Any]:
    """Return the same for programs; unknown values are null."""
    return items(_row(job) for job in jobs)


def _row(job: HyperParamJob) -> dict[str, Any]:
    status, best = job.status, job.status.best
    return {
        "namespace": job.metadata.namespace,
        "name": job.metadata.name,
        "phase": status.phase,
        "reason": status.reason,
        "message": status.message,
        "trials": {"done": trials_done(job), "max": job.spec.trials.max, "running": status.trials.running},
        **_goal(job),
        "best": None if best is None else best.model_dump(mode="json"),
        "gpus": gpus_in_use(job),
        "gpuHours": status.gpu_hours,
        "createdAt": time(job.metadata.creation_timestamp),
        "finishedAt": time(status.finished_at),
        "eta": time(status.eta),
    }


def _goal(job: HyperParamJob) -> dict[str, Any]:
    """Return the objective, or several of them and their Pareto front."""
    listed = job.spec.objectives
    if listed is None:
        return {"metric": job.spec.objective.metric, "direction": job.spec.objective.direction.value}
    return {
        "objectives": [one.model_dump(mode="json") for one in listed],
        "paretoFront": [one.model_dump(mode="json") for one in job.status.pareto_front],
    }


def _eta(job: HyperParamJob, now: datetime) -> str:
    status = job.status
    if status.finished_at is not None or status.eta is None:
        return formatting.NOTHING
    left = (status.eta - now).total_seconds()
    return formatting.duration(left) if left >= 1 else "now"
