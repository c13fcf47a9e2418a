"""The finalizer on jobs whose folders are to be removed with them, set before the first pod and taken off at the end.

Used by the handlers and by `cleanup`. `python -m podium_operator.jobs.finalizers` takes it off every job: the chart's
hook
runs it before an uninstallation, since without an operator a job could not be deleted any more.
"""

from __future__ import annotations

import asyncio
import logging

from podium_cluster.client import Api, connect
from podium_cluster.resources import JOBS
from podium_cluster.settings import ClusterSettings
from podium_cluster.startup import read_settings
from podium_core.schema.base import ObjectMeta
from podium_core.schema.checkpointing import checkpoint_outlives_pod
from podium_core.schema.job import JobSpec

FINALIZER = "podium.dev/checkpoints"
ORPHAN = "orphan"  # Kubernetes' own, of `kubectl delete --cascade=orphan`, until its children are taken from it
MANAGER = "podium-operator-checkpoints"
log = logging.getLogger(__name__)


def wanted(spec: JobSpec) -> bool:
    """Whether something is left of this job that has to be removed."""
    return checkpoint_outlives_pod(spec) and spec.checkpoint is not None and not spec.checkpoint.retain


def waits(meta: ObjectMeta) -> bool:
    """The job is deleted, and waits for us."""
    return meta.deletion_timestamp is not None and FINALIZER in meta.finalizers


async def hold(api: Api, namespace: str, name: str) -> None:
    """Server-side apply: the list is a set, other owners' finalizers stay. Raises ApiError."""
    await _apply(api, namespace, name, [FINALIZER])


async def release(api: Api, namespace: str, name: str) -> None:
    await _apply(api, namespace, name, [])


async def _apply(api: Api, namespace: str, name: str, finalizers: list[str]) -> None:
    meta = {"name": name, "namespace": namespace, "finalizers": finalizers}
    await api.apply(JOBS, {"metadata": meta}, manager=MANAGER)


async def _release_all(settings: ClusterSettings) -> None:
    async with connect(settings) as api:
        for job in (await api.list(JOBS))["items"]:
            meta = job["metadata"]
            if FINALIZER in meta.get("finalizers", []):
                await release(api, meta["namespace"], meta["name"])
                log.info("job %s/%s can be deleted without an operator", meta["namespace"], meta["name"])


def main() -> None:
    about = "Takes Podium's finalizer off every job, so that it can be deleted when there is no operator."
    asyncio.run(_release_all(read_settings(ClusterSettings, "python -m podium_operator.jobs.finalizers", about)))


if __name__ == "__main__":
    main()
