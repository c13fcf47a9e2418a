"""Page of all searches. The status of each job is enough for it, so it is quick with ten thousand trials."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from podium_core.schema.job import HyperParamJob
from podium_core.schema.job_status import ENDED
from podium_dashboard.pages.page import Fragment, fragment
from podium_dashboard.state import Search, State
from podium_views import formatting
from podium_views.progress import gpus_in_use

MAX_ROWS = 200


@dataclass(frozen=True, slots=True)
class SearchRow:
    """One search in the table."""

    namespace: str
    name: str
    phase: str
    why: str
    policy: str
    done: int
    max_trials: int
    running: int
    metric: str
    best: str
    best_trial: str
    gpus: int
    gpu_hours: float
    age: str
    end: str


@dataclass(frozen=True, slots=True)
class Overview:
    """Figures of all searches together."""

    active: int
    searches: int
    running: int
    waiting: int
    gpus: int
    held: int
    unhealthy: int
    gpu_hours: float


def fragments(state: State, now: datetime) -> tuple[Fragment, ...]:
    """Return the fragments of the page."""
    at = state.stopped or now
    rows = [row(search, at) for search in state.searches[:MAX_ROWS]]
    return (
        fragment("overview", "overview.html.j2", overview=overview(state)),
        fragment("searches", "searches.html.j2", rows=rows, more=len(state.searches) - len(rows), ready=state.ready),
    )


def overview(state: State) -> Overview:
    """Return the sums."""
    jobs = [search.job for search in state.searches]
    gpus = [gpu for node in state.nodes for gpu in node.status.gpus]
    return Overview(
        active=sum(job.status.phase not in ENDED for job in jobs),
        searches=len(jobs),
        running=sum(job.status.trials.running for job in jobs),
        waiting=sum(job.status.trials.pending + job.status.trials.suspended for job in jobs),
        gpus=len(gpus),
        held=sum(gpu.holder is not None for gpu in gpus),
        unhealthy=sum(gpu.health == "Unhealthy" for gpu in gpus),
        gpu_hours=sum(job.status.gpu_hours for job in jobs),
    )


def row(search: Search, now: datetime) -> SearchRow:
    """Return the row of one search."""
    job, status = search.job, search.job.status
    several = job.spec.objectives is not None
    best = status.best
    front = f"front of {len(status.pareto_front)}" if several else formatting.NOTHING
    return SearchRow(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        phase=status.phase,
        why=formatting.cause(status.reason, status.message),
        policy=job.spec.policy.name,
        done=search.done,
        max_trials=status.trials.total(job.spec.trials.max),
        running=status.trials.running,
        metric=", ".join(one.metric for one in job.spec.objectives or (job.spec.objective,)),
        best=formatting.number(best.value) if best else front,
        best_trial=best.trial if best else "",
        gpus=gpus_in_use(job),
        gpu_hours=status.gpu_hours,
        age=formatting.age(job.metadata.creation_timestamp, now),
        end=expected_end(job, now),
    )


def expected_end(job: HyperParamJob, now: datetime) -> str:
    """Return how long the search lasted, or when it is expected to end."""
    status = job.status
    if status.finished_at is not None:
        return f"took {formatting.since(status.started_at, status.finished_at)}"
    if status.eta is None:
        return "unknown"
    left = (status.eta - now).total_seconds()
    return f"in {formatting.duration(left)}" if left >= 1 else "soon"
