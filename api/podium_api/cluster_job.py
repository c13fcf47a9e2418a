"""A search on a cluster: a HyperParamJob that Podium's operator works on, read and changed through the API server."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from podium_api.backend import Objects
from podium_api.errors import SearchError
from podium_cluster.access.kubeconfig import find_target
from podium_cluster.client import Api, ApiError, connect
from podium_cluster.resources import JOBS, TRIALS
from podium_cluster.settings import ClusterSettings
from podium_core.schema.job import HyperParamJob
from podium_core.schema.job_status import ENDED
from podium_core.schema.trial import JOB_LABEL, HyperParamTrial

MANAGER = "podium-python"
T = TypeVar("T")


class Cluster:
    """The cluster and namespace of a kubeconfig, chosen by kubectl's rules."""

    def __init__(self, namespace: str | None, kubeconfig: str | None, context: str | None) -> None:
        path = None if kubeconfig is None else Path(kubeconfig).expanduser()
        if path is not None and not path.is_file():
            raise SearchError("KubeconfigMissing", f"kubeconfig {path}: no such file")
        changes = {key: one for key, one in (("kubeconfig", path), ("context", context)) if one is not None}
        self._settings = ClusterSettings().model_copy(update=changes)
        self._target = find_target(self._settings.kubeconfig, self._settings.context)
        self.namespace = namespace or self._target.namespace

    def call(self, work: Callable[[Api], Awaitable[T]]) -> T:
        """Run `work` with a client and return its result.

        A thread of its own has the event loop: in a notebook, the caller's thread already runs one.
        """

        async def run() -> T:
            async with connect(self._settings, self._target) as api:
                return await work(api)

        with ThreadPoolExecutor(1) as thread:
            try:
                return thread.submit(asyncio.run, run()).result()
            except ApiError as error:
                text = f"{error.message}; is the cluster the right one?"
                raise SearchError(error.reason, text, transient=error.transient) from error
            except OSError as error:
                text = f"{error}; give kubeconfig, or set $KUBECONFIG"
                raise SearchError("ClusterUnreachable", text, transient=True) from error

    def job_names(self) -> list[str]:
        """Return the names of the namespace's jobs."""
        listed = self.call(lambda api: api.list(JOBS, self.namespace))
        return sorted(str(item["metadata"]["name"]) for item in listed["items"])

    def job(self, name: str) -> ClusterJob:
        """Return the job of that name, whether it exists or not."""
        return ClusterJob(self, name)


class ClusterJob:
    """One HyperParamJob."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self.place = f"namespace {cluster.namespace}"

    def create(self, manifest: Mapping[str, Any]) -> None:
        """Create the job; one of this name must not exist."""
        namespaced = {**manifest, "metadata": {**manifest["metadata"], "namespace": self._cluster.namespace}}
        self._cluster.call(lambda api: api.create(JOBS, namespaced, manager=MANAGER))

    def read(self) -> Objects:
        """Return the job and its trials."""

        async def fetch(api: Api) -> Objects:
            job = HyperParamJob.model_validate(await api.get(JOBS, self._name, self._cluster.namespace))
            listed = await api.list(TRIALS, self._cluster.namespace, labels=f"{JOB_LABEL}={self._name}")
            trials = [HyperParamTrial.model_validate(item) for item in listed["items"]]
            mine = sorted((one for one in trials if one.spec.job == self._name), key=lambda one: one.spec.number)
            return Objects(job, tuple(mine), running=job.status.phase not in ENDED)

        return self._cluster.call(fetch)

    def log(self, trial: HyperParamTrial, lines: int) -> str:
        """Return the last lines of the trial's current pod; empty if it has none any more."""
        pod, cursor = trial.status.pod, trial.status.log_cursor
        if pod is None:
            return ""
        container = "train" if cursor is None or not cursor.container else cursor.container

        async def fetch(api: Api) -> str:
            try:
                return await api.logs(pod, self._cluster.namespace, container)
            except ApiError as error:
                if error.status in (400, 404):  # not started yet, or deleted
                    return ""
                raise

        return "\n".join(deque(self._cluster.call(fetch).splitlines(), maxlen=lines))

    def suspend(self) -> None:
        """Let the trials give up their GPUs; they keep their progress."""
        self._patch({"suspend": True})

    def resume(self) -> None:
        """Continue a suspended job."""
        self._patch({"suspend": False})

    def stop(self) -> None:
        """End all trials and keep their results, by a deadline that the job's creation has passed already."""
        created = self.read().job.metadata.creation_timestamp
        if created is None:
            raise SearchError("ObjectUnreadable", f"HyperParamJob {self._name} has no creation time")
        self._patch({"budget": {"deadline": created.isoformat()}, "suspend": False})

    def _patch(self, spec: Mapping[str, Any]) -> None:
        namespace = self._cluster.namespace
        self._cluster.call(lambda api: api.patch(JOBS, self._name, namespace, {"spec": spec}, manager=MANAGER))
