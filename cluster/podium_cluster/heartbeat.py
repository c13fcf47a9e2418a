"""The heartbeat of a component as a Lease, by which other components recognise old telemetry."""

from __future__ import annotations

import asyncio
import logging

from podium_cluster import clock
from podium_cluster.backoff import Backoff
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import LEASES

log = logging.getLogger(__name__)
FIRST_RETRY = 2.0  # shortened by up to a half: at most one request a second


async def send_heartbeats(api: Api, *, name: str, namespace: str, holder: str, seconds: int, manager: str) -> None:
    """Renew the Lease `name` every `seconds` until cancelled; it expires after four times that.

    A renewal that fails is repeated sooner: a component that is cut off for a moment must not seem to be gone.
    """
    backoff = Backoff(first=FIRST_RETRY, longest=max(FIRST_RETRY, seconds / 2))
    while True:
        pause: float = seconds
        manifest = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds * 4, "renewTime": clock.micro_time()},
        }
        try:
            await api.apply(LEASES, manifest, manager=manager)
            backoff.reset()
        except ApiError as error:
            pause = min(pause, backoff.pause(error.retry_after))
            log.warning("heartbeat %s/%s not renewed, trying again in %.1f s: %s", namespace, name, pause, error)
        await asyncio.sleep(pause)
