"""Finalizer on jobs whose checkpoint folders are removed with them: set before the first pod, removed at the end.

The handlers and `cleanup` use it. `python -m podium_operator.jobs.finalizers` removes it from every job. The chart's
hook runs that before an uninstallation: without an operator, no job could be deleted any more.
"""

from __future__ import annotations

import asyncio
import logging

from podium_cluster.client import Api, connect
from podium_cluster.component.startup import read_settings
from podium_cluster.resources import JOBS
from podium_cluster.settings import ClusterSettings
from podium_core.schema.base import ObjectMeta
from podium_core.schema.checkpointing import checkpoint_outlives_pod
from podium_core.schema.job import JobSpec

FINALIZER = "podium.dev/checkpoints"
ORPHAN = (
    "orphan"  # Kubernetes' own finalizer for `kubectl delete --cascade=orphan`, until the job's children are released
)
MANAGER = "podium-operator-checkpoints"
log = logging.getLogger(__name__)


def needs_finalizer(spec: JobSpec) -> bool:
    """Return True if the job leaves a checkpoint folder that has to be removed."""
    return checkpoint_outlives_pod(spec) and spec.checkpoint is not None and not spec.checkpoint.retain


def awaits_cleanup(meta: ObjectMeta) -> bool:
    """Return True if the job is deleted and waits for Podium's clean-up."""
    return meta.deletion_timestamp is not None and FINALIZER in meta.finalizers


async def add_finalizer(api: Api, namespace: str, name: str) -> None:
    """Add the finalizer by server-side apply, beside those of other owners. Raises ApiError."""
    await _apply(api, namespace, name, [FINALIZER])


async def remove_finalizer(api: Api, namespace: str, name: str) -> None:
    """Remove the finalizer. Raises ApiError."""
    await _apply(api, namespace, name, [])


async def _apply(api: Api, namespace: str, name: str, finalizers: list[str]) -> None:
    meta = {"name": name, "namespace": namespace, "finalizers": finalizers}
    await api.apply(JOBS, {"metadata": meta}, manager=MANAGER)


async def _release_all(settings: ClusterSettings) -> None:
    async with connect(settings) as api:
        for job in (await api.list(JOBS))["items"]:
            meta = job["metadata"]
            if FINALIZER in meta.get("finalizers", []):
                await remove_finalizer(api, meta["namespace"], meta["name"])
                log.info("job %s/%s can now be deleted without an operator", meta["namespace"], meta["name"])


def main() -> None:
    """Remove the finalizer from every job."""
    about = "Remove Podium's finalizer from every job, so that jobs can be deleted without an operator."
    asyncio.run(_release_all(read_settings(ClusterSettings, "python -m podium_operator.jobs.finalizers", about)))


if __name__ == "__main__":
    main()
