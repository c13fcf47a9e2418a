"""Leases that remain when Podium is uninstalled; the chart's last hook runs this module, which deletes them.

An uninstalled component loses its rights before it can release its Lease. The component of a new installation would
wait until that Lease expires.
"""

from __future__ import annotations

import asyncio
import logging

from pydantic import Field

from podium_cluster.client import Api, connect
from podium_cluster.component.startup import read_settings
from podium_cluster.resources import LEASES
from podium_cluster.settings import ClusterSettings
from podium_core.placement.node_parser import LEASE_PREFIX

OPERATOR_LEASE = "podium-operator"
log = logging.getLogger(__name__)


class LeaseSettings(ClusterSettings):
    """Settings of the hook."""

    scheduler_lease: str = Field("podium-scheduler", description="name of the scheduler's Lease")


def is_own(name: str, scheduler_lease: str) -> bool:
    """Return whether the Lease of this name is that of a component of Podium. Pure."""
    return name in (OPERATOR_LEASE, scheduler_lease) or name.startswith(LEASE_PREFIX)


async def delete_leases(api: Api, namespace: str, scheduler_lease: str) -> None:
    """Delete Podium's Leases in its namespace, and no others. Raises ApiError."""
    for lease in (await api.list(LEASES, namespace))["items"]:
        name = lease["metadata"]["name"]
        if is_own(name, scheduler_lease):
            await api.delete(LEASES, name, namespace)
            log.info("deleted Lease %s/%s", namespace, name)


async def _delete_all(settings: LeaseSettings) -> None:
    async with connect(settings) as api:
        await delete_leases(api, settings.namespace, settings.scheduler_lease)


def main() -> None:
    """Delete the Leases that an uninstalled Podium left."""
    about = "Delete the Leases of Podium's components, after an uninstallation."
    asyncio.run(_delete_all(read_settings(LeaseSettings, "python -m podium_operator.cleanup.leases", about)))


if __name__ == "__main__":
    main()
