"""The heartbeat of a component as a Lease: cheap to renew, read by others to tell old telemetry from new."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import LEASES

log = logging.getLogger(__name__)


async def beat(api: Api, *, name: str, namespace: str, holder: str, seconds: int, manager: str) -> None:
    """Renew Lease `name` every `seconds` until cancelled; it is stale after four times that."""
    while True:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        manifest = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds * 4, "renewTime": now},
        }
        try:
            await api.apply(LEASES, manifest, manager=manager)
        except ApiError as error:
            log.warning("heartbeat %s/%s not renewed: %s", namespace, name, error)
        await asyncio.sleep(seconds)
