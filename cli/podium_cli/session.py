"""Session of a command: an API client from the cluster options, and a CliError for each API error."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import parse_job, parse_node, parse_trial
from podium_cluster import clock
from podium_cluster.access.kubeconfig import ClusterTarget, find_target, kubeconfig_paths
from podium_cluster.client import Api, ApiError, connect
from podium_cluster.resources import GPUNODES, JOBS, TRIALS, Resource
from podium_cluster.settings import ClusterSettings
from podium_core.schema.trial import JOB_LABEL
from podium_views.job_snapshot import JobSnapshot, of_job

MANAGER = "podium-cli"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Session:
    """Cluster and namespace that a command uses."""

    namespace: str
    settings: ClusterSettings
    target: ClusterTarget

    @classmethod
    def of(cls, namespace: str | None, kubeconfig: str | None, context: str | None) -> Session:
        """Return the session that the cluster options of a command line describe."""
        (path,) = kubeconfig_paths(Path(kubeconfig)) if kubeconfig else (None,)
        if path is not None and not os.path.isfile(path):
            raise CliError(Exit.USAGE, "KubeconfigMissing", f"--kubeconfig {path}: no such file")
        given = {"kubeconfig": path, "context": context}
        try:
            settings = ClusterSettings().model_copy(update={key: one for key, one in given.items() if one is not None})
        except ValidationError as error:
            raise CliError(Exit.USAGE, "InvalidSettings", f"PODIUM_* in the environment: {error}") from error
        target = find_target(settings.kubeconfig, settings.context)
        return cls(namespace or target.namespace, settings, target)

    @asynccontextmanager
    async def api(self) -> AsyncIterator[Api]:
        """Open an API client for the duration of the block."""
        opened = connect(self.settings, self.target)
        try:
            api = await opened.__aenter__()
        except Exception as error:  # the reader of kubeconfigs raises many types; its sentence names the cause
            message = f"{_connection_problem(self.target, error)}; name a cluster with --kubeconfig or $KUBECONFIG"
            raise CliError(Exit.CLUSTER, "ClusterUnreachable", message) from error
        try:
            yield api
        finally:
            await opened.__aexit__(None, None, None)

    async def snapshot(self, api: Api, job: str) -> JobSnapshot:
        """Read the job, its trials and the GPUNodes from the API server."""
        parsed_job = parse_job(await fetch(api, JOBS, job, self.namespace))
        trials = await api.list(TRIALS, self.namespace, labels=f"{JOB_LABEL}={job}")
        nodes = await gpu_nodes(api)
        return JobSnapshot(
            parsed_job,
            of_job(parsed_job, [parse_trial(item) for item in trials["items"]]),
            tuple(parse_node(item) for item in nodes),
            datetime.fromtimestamp(clock.now(), UTC),
        )


async def fetch(api: Api, resource: Resource, name: str, namespace: str | None) -> dict[str, Any]:
    """Return one object; raise CliError if it is missing, or if the cluster has no Podium."""
    try:
        return await api.get(resource, name, namespace)
    except ApiError as error:
        if not error.not_found:
            raise
        if kind_missing(error):
            raise CliError(
                Exit.NOT_FOUND, "PodiumNotInstalled", f"this cluster has no {resource.kind}: install Podium's chart"
            ) from error
        where = f" in namespace {namespace}" if namespace else ""
        raise CliError(
            Exit.NOT_FOUND, f"{resource.kind}NotFound", f"there is no {resource.kind} {name}{where}"
        ) from error


def kind_missing(error: ApiError) -> bool:
    """Return whether the server does not serve this kind (no such CRD), rather than lack one object."""
    return error.not_found and "page not found" in error.message


async def gpu_nodes(api: Api) -> list[dict[str, Any]]:
    """Return all GPUNodes, or none if the caller may not read them; views work without them."""
    try:
        items: list[dict[str, Any]] = (await api.list(GPUNODES))["items"]
    except ApiError as error:
        if error.status != 403:
            raise
        return []
    return items


def run_with_cluster(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; an API error becomes a CliError with a sentence and a cure."""
    try:
        return asyncio.run(work)
    except ApiError as error:
        if error.status == 0:
            message = f"{error.message}; check that the cluster is up and that --kubeconfig and --context are right"
        elif error.status == 401:
            message = f"the cluster refuses the credentials ({error.message}); log in again, see `kubectl auth whoami`"
        elif error.status == 403:
            message = f"{error.message}; see `kubectl auth can-i`"
        elif kind_missing(error):
            message = "this cluster has no Podium (its CRDs are missing): install the chart"
        else:
            message = error.message
        raise CliError(Exit.CLUSTER, error.reason, message) from error


def _connection_problem(target: ClusterTarget, error: Exception) -> str:
    """Return why no cluster can be used, with the file, which the library's reader does not name."""
    if target.account:
        return f"this pod's own account: {error}"
    if not target.files:
        return f'$KUBECONFIG, "{os.environ["KUBECONFIG"]}", names no file'
    named = os.pathsep.join(map(str, target.files))
    # Path.exists would raise without permission for the folder
    if not any(os.path.exists(path) for path in target.files):
        return f"there is no kubeconfig at {named}"
    if isinstance(error, (AttributeError, TypeError, KeyError)):
        return f"{named} is not a kubeconfig"
    return f"{named}: {' '.join(str(error).split())}"
