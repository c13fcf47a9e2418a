"""Metrics of the cluster as the last reconcile observed it: gauges, and counters of lost work.

`status_writer` sets them after each reconcile.

A job has metrics of its own while it has not ended, and for some minutes afterwards, so that its last values are
scraped. `MAX_JOBS` limits their number: a namespace can hold thousands of jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from podium_core.domain.keys import TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.planning.slots.gpu_reservations import Pool
from podium_core.schema.job import HyperParamJob
from podium_core.schema.job_status import ENDED
from podium_operator.act.postponed_actions import exceeds_quota
from podium_operator.metrics import JobGauges, Metrics
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.observation import Observation
from podium_operator.observe.trial_state import TrialState

MAX_JOBS = 200
LINGER_SECONDS = 300.0  # after the end of a job: several scrapes, also at an interval of a minute
PHASES = ("Pending", "Running", "Suspended", "Succeeded", "Failed", "Refused")
STATES = ("pending", "running", "suspended", "succeeded", "failed")


def export(metrics: Metrics, cluster: ClusterState, observations: Mapping[TrialKey, Observation]) -> None:
    """Set the gauges of trials, jobs and agents."""
    phases = Counter(observation.phase for observation in observations.values())
    for phase in TrialPhase:
        metrics.trials.labels(phase.value).set(phases[phase])
    jobs: Counter[str] = Counter(job.status.phase for job in cluster.jobs)
    for name in PHASES:
        metrics.jobs.labels(name).set(jobs[name])
    metrics.agent_responsive.clear()
    for node in cluster.nodes:
        name = node.metadata.name
        metrics.agent_responsive.labels(name).set(name not in cluster.unresponsive)
    _export_jobs(metrics.job, shown(cluster.jobs, cluster.now))


def export_refused_pods(metrics: Metrics, trials: Mapping[TrialKey, str], reservations: Mapping[Pool, str]) -> None:
    """Set the number of pods that the API server refuses for now, given its messages."""
    refused = [(key.namespace, "trial", _cause(text)) for key, text in trials.items()]
    refused += [(pool.namespace, "reservation", _cause(text)) for pool, text in reservations.items()]
    metrics.refused_pods.clear()
    for labels, count in Counter(refused).items():
        metrics.refused_pods.labels(*labels).set(count)


def _cause(message: str) -> str:
    return "quota" if exceeds_quota(message) else "other"


def shown(jobs: Iterable[HyperParamJob], now: float) -> tuple[HyperParamJob, ...]:
    """Return the at most MAX_JOBS jobs that have metrics of their own.

    Those that have not ended come first, then the latest ones.
    """
    recent = [job for job in jobs if job.status.phase not in ENDED or _ended_recently(job, now)]
    recent.sort(key=lambda job: (job.status.phase in ENDED, -job.metadata.created, job.metadata.uid))
    return tuple(recent[:MAX_JOBS])


def _ended_recently(job: HyperParamJob, now: float) -> bool:
    finished = job.status.finished_at
    return finished is not None and now - finished.timestamp() < LINGER_SECONDS


def _export_jobs(gauges: JobGauges, jobs: tuple[HyperParamJob, ...]) -> None:
    gauges.clear()
    for job in jobs:
        status, labels = job.status, (job.metadata.namespace, job.metadata.name)
        for state in STATES:
            gauges.trials.labels(*labels, state).set(getattr(status.trials, state))
        gauges.max_trials.labels(*labels).set(job.spec.trials.max)
        gauges.gpu_seconds.labels(*labels, "training").set(status.gpu_seconds.training)
        gauges.gpu_seconds.labels(*labels, "switching").set(status.gpu_seconds.switching)
        gauges.suspensions.labels(*labels).set(status.suspensions)
        if status.best is not None:
            gauges.best_value.labels(*labels).set(status.best.value)
        if status.eta is not None:
            gauges.end.labels(*labels).set(status.eta.timestamp())
    gauges.shown.set(len(jobs))


@dataclass(frozen=True, slots=True)
class _Totals:
    count: int
    gpu_seconds: float


class LostWorkCounter:
    """Counters of lost work. What was lost before this operator started is not counted again."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._before: dict[str, _Totals] = {}  # by the uid of the trial

    def count(self, trials: Iterable[TrialState]) -> None:
        """Add what the trials lost since the last call."""
        totals: dict[str, _Totals] = {}
        for trial in trials:
            lost = trial.status.lost_work
            now = totals[trial.metadata.uid] = _Totals(lost.count, lost.gpu_seconds)
            before = self._before.get(trial.metadata.uid, now)
            namespace = trial.metadata.namespace
            # a counter that appears with its first loss has no increase, so no alert would notice that loss
            self._metrics.lost_work.labels(namespace).inc(max(0, now.count - before.count))
            self._metrics.lost_gpu_seconds.labels(namespace).inc(max(0.0, now.gpu_seconds - before.gpu_seconds))
        self._before = totals
