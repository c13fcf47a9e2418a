"""Leader election by a Lease: of several replicas, one acts at a time.

The rules are those of client-go's `leaderelection`. A candidate takes the Lease if it has no holder, or if the holder
has not changed it for `LEASE_SECONDS`. The leader renews it every `RETRY_SECONDS`, and stops acting `DEADLINE_SECONDS`
after its last renewal. Each candidate measures these times with its own monotonic clock, from when it saw a change, so
wall clocks do not matter. Writes carry the resource version, so that two candidates cannot both take the Lease.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from podium_cluster import clock
from podium_cluster.client import Api, ApiError
from podium_cluster.leases import create_lease
from podium_cluster.resources import LEASES

LEASE_SECONDS = 15.0
DEADLINE_SECONDS = 8.0
RETRY_SECONDS = 2.0
REQUEST_SECONDS = 6.0  # for a leader's write: one that is sent at the deadline ends before the Lease does
MANAGER = "podium-leader"
log = logging.getLogger(__name__)
Manifest = dict[str, Any]


class LeadershipLostError(RuntimeError):
    """Another candidate leads, or the Lease could not be renewed in time."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The Lease as it was last seen, and when that state was first seen."""

    version: str
    holder: str
    at: float


def may_take(seen: Seen | None, identity: str, now: float) -> bool:
    """Return True if this candidate may take or renew the Lease."""
    return seen is None or seen.holder in ("", identity) or now - seen.at >= LEASE_SECONDS


class Election:
    """One candidate for the Lease `name`. `api` must have a request timeout of at most `REQUEST_SECONDS`."""

    def __init__(
        self, api: Api, name: str, namespace: str, identity: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._api, self._name, self._namespace, self._identity = api, name, namespace, identity
        self._monotonic = monotonic
        self._seen: Seen | None = None
        self._renewed: float | None = None

    def leads(self) -> bool:
        """Return True if this candidate may act now."""
        return self._renewed is not None and self._monotonic() - self._renewed < DEADLINE_SECONDS

    @property
    def standing_by(self) -> bool:
        """Whether another candidate holds the Lease, so that this one has nothing to do."""
        return self._seen is not None and self._seen.holder not in ("", self._identity)

    async def attempt(self) -> bool:
        """Read the Lease and take or renew it if that is allowed; return whether this candidate leads."""
        try:
            await self._read()
            if may_take(self._seen, self._identity, self._monotonic()):
                asked = self._monotonic()  # the Lease may be written at once or only at the end of the request
                await self._write(self._identity)
                self._renewed = asked
        except ApiError as error:
            log.warning("Lease %s/%s: %s", self._namespace, self._name, error)
        return self.leads()

    async def acquire(self) -> None:
        """Wait until this candidate leads."""
        while True:
            if await self.attempt():
                break
            await asyncio.sleep(RETRY_SECONDS)
        log.info("%s leads (Lease %s/%s)", self._identity, self._namespace, self._name)

    async def hold(self) -> None:
        """Renew the Lease; raises LeadershipLostError if another candidate has it, or at the deadline."""
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            await self.attempt()
            if self.standing_by:
                assert self._seen is not None
                raise LeadershipLostError(f"{self._seen.holder} leads now (Lease {self._namespace}/{self._name})")
            if not self.leads():
                raise LeadershipLostError(
                    f"the Lease {self._namespace}/{self._name} was not renewed for {DEADLINE_SECONDS:g} s"
                )

    async def release(self) -> None:
        """Give the Lease up, so that another candidate takes it at once; call it after the last write."""
        if not self.leads():
            return
        self._renewed = None
        try:
            await self._write("")
        except ApiError as error:
            log.warning("the Lease %s/%s was not released: %s", self._namespace, self._name, error)

    async def _read(self) -> None:
        try:
            lease = await self._api.get(LEASES, self._name, self._namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            self._seen = None
            return
        self._note(lease)

    async def _write(self, holder: str) -> None:
        spec = {"holderIdentity": holder, "leaseDurationSeconds": round(LEASE_SECONDS), "renewTime": clock.micro_time()}
        if self._seen is None:
            self._note(await create_lease(self._api, self._name, self._namespace, spec, manager=MANAGER))
            return
        # with the resource version, a patch of an object that another candidate changed fails
        patch = {"metadata": {"resourceVersion": self._seen.version}, "spec": spec}
        self._note(await self._api.patch(LEASES, self._name, self._namespace, patch, manager=MANAGER))

    def _note(self, lease: Manifest) -> None:
        version, holder = lease["metadata"]["resourceVersion"], lease.get("spec", {}).get("holderIdentity") or ""
        if self._seen is None or (version, holder) != (self._seen.version, self._seen.holder):
            self._seen = Seen(version, holder, self._monotonic())
