"""Deletion of finished jobs after `ttlSecondsAfterFinished`, as for Kubernetes' own Jobs.

Their trials and pods are deleted with them, and their checkpoint folders as for every deleted job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS
from podium_core.schema.job import HyperParamJob
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.snapshot import is_finished

log = logging.getLogger(__name__)
MAX_DELETIONS = 16  # in one reconcile


def expired(jobs: Iterable[HyperParamJob], now: float) -> list[HyperParamJob]:
    """Return the finished jobs whose `ttlSecondsAfterFinished` is over at `now`, in seconds since 1970."""
    return [job for job in jobs if _is_expired(job, now)]


def _is_expired(job: HyperParamJob, now: float) -> bool:
    ttl, finished = job.spec.ttl_seconds_after_finished, job.status.finished_at
    if ttl is None or finished is None or job.metadata.deletion_timestamp is not None or not is_finished(job):
        return False
    return now - finished.timestamp() >= ttl


async def delete_expired(api: Api, cluster: ClusterState) -> None:
    """Delete expired jobs, a few in each reconcile; a refused deletion is tried again in the next one."""
    for job in expired(cluster.jobs, cluster.now)[:MAX_DELETIONS]:
        meta = job.metadata
        try:
            await api.delete(JOBS, meta.name, meta.namespace, uid=meta.uid)
            log.info("job %s/%s was deleted: its ttlSecondsAfterFinished is over", meta.namespace, meta.name)
        except ApiError as error:
            log.warning("job %s/%s was not deleted: %s", meta.namespace, meta.name, error)
