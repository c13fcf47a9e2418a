"""Status of a trial as the operator writes it: a pure function of what is stored, observed and planned.

It holds only the operator's own fields: server-side apply keeps the agent's apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from podium_core.attempts.unread_log import unread_message
from podium_core.curves.prediction.final_value import Forecast
from podium_core.domain.actions import EndTrial, TrialRank
from podium_core.domain.gpu_memory import GPU_MEMORY_EXCEEDED
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.pod_view import WorkerView
from podium_core.domain.snapshot import Point
from podium_core.schema.job import Direction, HyperParamJob
from podium_core.schema.trial import Migration, Rebalanced
from podium_operator.observe.observation import Observation
from podium_operator.observe.trial_state import TrialState

Manifest = dict[str, Any]
METRICS_UNAVAILABLE = "MetricsUnavailable"
MAX_NODES = 4


def timestamp(seconds: float) -> str:
    """Return the time as RFC 3339 writes it, in UTC and whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class TrialReport:
    """Decisions of a reconcile about a trial.

    - `ranking`: rank and its reason
    - `end`: the planner ended the trial in this reconcile
    - `predicted`: forecast of the final value while the trial runs
    - `migration`: its live migration
    - `rebalanced`: its last move by rebalancing
    """

    ranking: TrialRank | None = None
    end: EndTrial | None = None
    predicted: Forecast | None = None
    migration: Migration | None = None
    rebalanced: Rebalanced | None = None


def trial_status(
    trial: TrialState, job: HyperParamJob | None, observation: Observation, report: TrialReport, now: float
) -> Manifest:
    """Return the operator's part of the status."""
    ranking, end = report.ranking, report.end
    stored = trial.status
    phase = end.phase if end else observation.phase
    if job is not None and job.spec.gpus.per_trial == 0:
        ranking = _unranked(ranking)
    reason, message = _reason_and_message(trial, observation, ranking, end)
    status: Manifest = {
        "phase": phase.value,
        "reason": reason,
        "message": message,
        "attempt": observation.attempts.number,
        "failures": observation.attempts.failures,
    }
    disruptions = observation.attempts.disruptions
    if disruptions is not None:
        status["disruptions"] = disruptions.model_dump(mode="json", by_alias=True, exclude_none=True)
    if report.migration is not None:
        status["migration"] = report.migration.model_dump(mode="json", by_alias=True)
    if report.rebalanced is not None:
        status["rebalanced"] = report.rebalanced.model_dump(mode="json", by_alias=True)
    if phase in FINAL:
        # a finished trial keeps its node, GPUs and last rank
        status |= _kept_fields(trial)
        ended = observation.ended_at if observation.ended_at is not None and end is None else now
        status["finishedAt"] = _iso(stored.finished_at) or timestamp(ended)
    elif ranking is not None and ranking.rank:
        status["rank"] = ranking.rank
    nodes = _nodes(stored.nodes, observation.node)
    if nodes:
        status["nodes"] = nodes
    pod = observation.pod
    if pod is not None:
        status["pod"] = pod.name
        if observation.node:
            status["node"] = observation.node
        if observation.gpus:
            status["gpus"] = list(observation.gpus)
        if observation.workers and not status.get("workers"):
            status["workers"] = [_worker(one) for one in observation.workers]
    started = _iso(stored.started_at) or (
        timestamp(now) if observation.started or phase is TrialPhase.SUCCEEDED else None
    )
    if started:
        status["startedAt"] = started
    best = _best(trial, job)
    if best is not None:
        status["best"] = {"step": best.step, "value": best.value}
    if report.predicted is not None and phase not in FINAL:
        status["predicted"] = {
            "value": report.predicted.median,
            "low": report.predicted.low,
            "high": report.predicted.high,
        }
    conditions = _memory_conditions(trial, observation, now)
    if phase is TrialPhase.SUCCEEDED and job is not None:
        conditions += _metrics_conditions(trial, job, status["finishedAt"])
    elif phase not in FINAL and job is not None:
        conditions += _unread_conditions(trial, job, now)
    if conditions:
        status["conditions"] = conditions
    return status


def _worker(worker: WorkerView) -> Manifest:
    return {
        "rank": worker.rank,
        "pod": worker.name,
        **({"node": worker.node} if worker.node else {}),
        **({"gpus": list(worker.gpus)} if worker.gpus else {}),
    }


def _memory_conditions(trial: TrialState, observation: Observation, now: float) -> list[Manifest]:
    """Return the condition that the trial ran out of GPU memory once; it stays: the next attempt gets whole GPUs."""
    stored = [one for one in trial.status.conditions if one.type == GPU_MEMORY_EXCEEDED]
    if stored:
        return [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in stored]
    if observation.reason != GPU_MEMORY_EXCEEDED or observation.phase not in (TrialPhase.REQUEUED, TrialPhase.FAILED):
        return []
    return [_condition(GPU_MEMORY_EXCEEDED, "OutOfMemory", observation.message, timestamp(now))]


def _metrics_conditions(trial: TrialState, job: HyperParamJob, since: str) -> list[Manifest]:
    """Return the condition of a trial that ended well without printing all of its metrics.

    Most often a metric's name is misspelled. Without the objective the trial is worthless.
    """
    objective, how = job.spec.objective, job.spec.metrics
    seen = {one.metric for one in trial.status.additional_metrics}
    never = [name for name in objective.additional_metrics if name not in seen]
    if not trial.points:
        reason, field, names = "ObjectiveMissing", "objective.metric", [objective.metric, *never]
    elif never:
        reason, field, names = "MetricsMissing", "objective.additionalMetrics", never
    else:
        return []
    if job.spec.objectives is not None:
        field = "objectives"
    listed = ", ".join(map(repr, names))
    if how.source == "stdout":
        message = (
            f"The trial ended and never printed {listed} (format {how.format}): compare "
            f"{field} and metrics with what `kubectl logs` shows."
        )
    else:
        message = (
            f"The trial ended and never reported {listed} (source {how.source}): compare {field} and "
            "metrics with what the script writes."
        )
    return [_condition(METRICS_UNAVAILABLE, reason, message, since)]


def _unread_conditions(trial: TrialState, job: HyperParamJob, now: float) -> list[Manifest]:
    """Return the condition of a running trial whose metrics yield no value of the objective, or none any more."""
    unread = trial.status.unread_log
    if unread is None:
        return []
    how, metric = job.spec.metrics, job.spec.objective.metric
    if trial.points:
        message = f"No value of {metric!r} was read after step {trial.points[-1].step:g}: {unread.reason}."
    else:
        message = unread_message(metric, how.source, how.format, unread)
    stored = next((one for one in trial.status.conditions if one.type == METRICS_UNAVAILABLE), None)
    since = stored.last_transition_time if stored is not None else None
    return [_condition(METRICS_UNAVAILABLE, "NoValueRead", message, _iso(since) or timestamp(now))]


def _condition(kind: str, reason: str, message: str, since: str) -> Manifest:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since}


def _unranked(ranking: TrialRank | None) -> TrialRank | None:
    """Return the rank entry of a trial without a GPU: it is not ranked, but why it has no pod yet still counts."""
    if ranking is None or ranking.reason != "NoGPUAssigned":
        return None if ranking is None else replace(ranking, rank=0)
    message = "The trial takes no GPU, so it is not ranked and never suspended."
    return replace(ranking, rank=0, reason="NotRanked", message=message)


def _reason_and_message(
    trial: TrialState, observation: Observation, ranking: TrialRank | None, end: EndTrial | None
) -> tuple[str, str]:
    if end is not None:
        return end.reason, end.message
    stored = trial.status
    if stored.phase in FINAL:
        return stored.reason, stored.message
    if observation.phase in FINAL or (
        observation.phase is TrialPhase.REQUEUED and stored.phase is not TrialPhase.REQUEUED
    ):
        return observation.reason, observation.message
    if ranking is None or observation.delays.problem:
        return observation.reason, observation.message
    return ranking.reason, ranking.message


def _nodes(stored: Sequence[str], node: str | None) -> list[str]:
    """Return the nodes whose agents may write: an agent reports the end of a pod after the next pod has a node."""
    if node is None:
        return list(stored)
    return [node, *(one for one in stored if one != node)][:MAX_NODES]


def _kept_fields(trial: TrialState) -> Manifest:
    stored = trial.status
    kept: Manifest = {}
    if stored.pod:
        kept["pod"] = stored.pod
    if stored.node:
        kept["node"] = stored.node
    if stored.gpus:
        kept["gpus"] = list(stored.gpus)
    if stored.workers:
        kept["workers"] = [one.model_dump(mode="json", exclude_defaults=True) for one in stored.workers]
    if stored.rank is not None:
        kept["rank"] = stored.rank
    return kept


def _best(trial: TrialState, job: HyperParamJob | None) -> Point | None:
    if job is None:
        return None
    return trial.best(job.spec.objective.direction is Direction.MAXIMIZE)


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None
