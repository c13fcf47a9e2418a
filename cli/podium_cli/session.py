"""From the cluster options of a command line to an open API client, and from API errors to a "no". Used by commands."""

from __future__ import annotations

import argparse
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
from podium_cli.job_picture import JOB_LABEL, JobPicture, of_job
from podium_cli.objects import parse_job, parse_node, parse_trial
from podium_cluster.client import Api, ApiError, connect
from podium_cluster.kubeconfig import ClusterTarget, find_target, kubeconfig_paths
from podium_cluster.resources import GPUNODES, JOBS, TRIALS, Resource
from podium_cluster.settings import ClusterSettings

MANAGER = "podium-cli"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Session:
    """Which cluster and namespace a command speaks to."""

    namespace: str
    settings: ClusterSettings
    told: ClusterTarget

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Session:
        (kubeconfig,) = kubeconfig_paths(Path(arguments.kubeconfig)) if arguments.kubeconfig else (None,)
        if kubeconfig is not None and not os.path.isfile(kubeconfig):
            raise CliError(Exit.USAGE, "KubeconfigMissing", f"--kubeconfig {kubeconfig}: no such file")
        given = {"kubeconfig": kubeconfig, "context": arguments.context}
        try:
            settings = ClusterSettings().model_copy(update={key: one for key, one in given.items() if one is not None})
        except ValidationError as error:
            raise CliError(Exit.USAGE, "InvalidSettings", f"PODIUM_* in the environment: {error}") from error
        told = find_target(settings.kubeconfig, settings.context)
        return cls(arguments.namespace or told.namespace, settings, told)

    @asynccontextmanager
    async def api(self) -> AsyncIterator[Api]:
        opened = connect(self.settings, self.told)
        try:
            api = await opened.__aenter__()
        except Exception as error:  # whatever a kubeconfig can be wrong in: the sentence of its reader is what helps
            message = f"{_what_is_wrong(self.told, error)}; name a cluster with --kubeconfig or $KUBECONFIG"
            raise CliError(Exit.CLUSTER, "ClusterUnreachable", message) from error
        try:
            yield api
        finally:
            await opened.__aexit__(None, None, None)

    async def picture(self, api: Api, job: str) -> JobPicture:
        """The job and all that belongs to it, as it is now."""
        found = parse_job(await fetch(api, JOBS, job, self.namespace))
        trials = await api.list(TRIALS, self.namespace, labels=f"{JOB_LABEL}={job}")
        nodes = await gpu_nodes(api)
        return JobPicture(
            found,
            of_job(found, [parse_trial(item) for item in trials["items"]]),
            tuple(parse_node(item) for item in nodes),
            datetime.now(UTC),
        )


async def fetch(api: Api, resource: Resource, name: str, namespace: str | None) -> dict[str, Any]:
    """One object; a missing one is told apart from a missing Podium."""
    try:
        return await api.get(resource, name, namespace)
    except ApiError as error:
        if not error.not_found:
            raise
        if kind_missing(error):
            raise CliError(Exit.NOT_FOUND, "PodiumNotInstalled", f"this cluster knows no {resource.kind}") from error
        where = f" in namespace {namespace}" if namespace else ""
        raise CliError(
            Exit.NOT_FOUND, f"{resource.kind}NotFound", f"there is no {resource.kind} {name}{where}"
        ) from error


def kind_missing(error: ApiError) -> bool:
    """404 of a path that the server does not serve (no such CRD), not of an object."""
    return error.not_found and "page not found" in error.message


async def gpu_nodes(api: Api) -> list[dict[str, Any]]:
    """All GPUNodes, or none for a tenant who may not read them: the rest of a view does not need them."""
    try:
        items: list[dict[str, Any]] = (await api.list(GPUNODES))["items"]
    except ApiError as error:
        if error.status != 403:
            raise
        return []
    return items


def carry_out(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's conversation with the cluster; what the API says no to becomes a sentence with its cure."""
    try:
        return asyncio.run(work)
    except ApiError as error:
        if error.status == 0:
            message = f"{error.message}; is the cluster up, and is it the one meant (--kubeconfig, --context)?"
        elif error.status in (401, 403):
            message = f"{error.message}; see `kubectl auth can-i`"
        elif kind_missing(error):
            message = "this cluster has no Podium (its CRDs are missing): install the chart"
        else:
            message = error.message
        raise CliError(Exit.CLUSTER, error.reason, message) from error


def _what_is_wrong(told: ClusterTarget, error: Exception) -> str:
    """Why no cluster was found, and in which file: its reader names none, and stumbles over what is no kubeconfig."""
    if told.account:
        return f"this pod's own account: {error}"
    if not told.files:
        return f'$KUBECONFIG, "{os.environ["KUBECONFIG"]}", names no file'
    named = os.pathsep.join(map(str, told.files))
    if not any(os.path.exists(path) for path in told.files):  # Path's own raises where it may not look
        return f"there is no kubeconfig at {named}"
    if isinstance(error, (AttributeError, TypeError, KeyError)):
        return f"{named} is no kubeconfig"
    return f"{named}: {' '.join(str(error).split())}"
