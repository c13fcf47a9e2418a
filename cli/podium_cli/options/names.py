"""Names that the shell completes: jobs, trials and nodes of the cluster, within a bounded time."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import typer

from podium_cluster.resources import GPUNODES, JOBS, TRIALS, Resource

if TYPE_CHECKING:
    from podium_cli.session import Session

SECONDS = 2.0  # for which a person waits after the tab key


def job_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the HyperParamJobs that start with `incomplete`."""
    return _names(ctx, JOBS, incomplete)


def trial_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the HyperParamTrials that start with `incomplete`."""
    return _names(ctx, TRIALS, incomplete)


def node_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the GPUNodes that start with `incomplete`."""
    return _names(ctx, GPUNODES, incomplete)


def _names(ctx: typer.Context, resource: Resource, incomplete: str) -> list[str]:
    """Return the names of the objects; none if the cluster does not answer in time."""
    from podium_cli.session import Session  # commands that read files need no client of the API server

    logging.disable()  # a line of the client's log would disturb the command line
    try:
        session = Session.of(*(ctx.params.get(name) for name in ("namespace", "kubeconfig", "context")))
        names = asyncio.run(asyncio.wait_for(_list(session, resource), SECONDS))
    except Exception:  # whatever is wrong, the command itself reports it
        return []
    return [name for name in names if name.startswith(incomplete)]


async def _list(session: Session, resource: Resource) -> list[str]:
    async with session.api() as api:
        items = (await api.list(resource, None if resource is GPUNODES else session.namespace))["items"]
    return sorted(item["metadata"]["name"] for item in items)
