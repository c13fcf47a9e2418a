"""The heartbeat of a component as a Lease, by which other components recognise old telemetry."""

from __future__ import annotations

import asyncio
import logging

from podium_cluster import clock
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import LEASES

log = logging.getLogger(__name__)


async def send_heartbeats(api: Api, *, name: str, namespace: str, holder: str, seconds: int, manager: str) -> None:
    """Renew the Lease `name` every `seconds` until cancelled; it expires after four times that."""
    while True:
        manifest = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds * 4, "renewTime": clock.micro_time()},
        }
        try:
            await api.apply(LEASES, manifest, manager=manager)
        except ApiError as error:
            log.warning("heartbeat %s/%s could not be renewed: %s", namespace, name, error)
        await asyncio.sleep(seconds)
