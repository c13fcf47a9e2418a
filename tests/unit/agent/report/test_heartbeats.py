"""The heartbeat over a faulty transport, on virtual time: an agent that is reached now and then is not given up."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import aiohttp
import pytest
from faulty_server import Response
from kubernetes.aio.client import Configuration
from virtual_time import run

from podium_agent.report.node_reporter import send_heartbeats
from podium_cluster.client import Api, ApiError
from podium_core.domain.observe import AGENT_STALE_SECONDS

DAY = 86_400.0


class Leases:
    """Takes the place of the HTTP session of `Api`; `fails` decides about each request."""

    def __init__(self, fails: Callable[[], bool]) -> None:
        self.requests: list[float] = []
        self.renewals: list[float] = []
        self.rest_client = self
        self.configuration = Configuration()
        self._fails = fails

    async def param_serialize(self, method: str, path: str, **how: Any) -> tuple[str, str, Any, None, None]:
        return method, path, how["header_params"], None, None

    async def request(self, method: str, *_: Any, _request_timeout: Any, **__: Any) -> Response:
        now = asyncio.get_running_loop().time()
        self.requests.append(now)
        await asyncio.sleep(0.01)
        if self._fails():
            raise aiohttp.ClientConnectionError("refused")
        if method == "PATCH":
            self.renewals.append(now)
        return Response(200, self._lease(), now + _request_timeout.total)

    async def _lease(self) -> AsyncGenerator[bytes, None]:
        yield json.dumps({"metadata": {"name": "a", "uid": "u-1", "resourceVersion": "1"}, "status": {}}).encode()


def heartbeats(fails: Callable[[], bool], seconds: float) -> Leases:
    """Send heartbeats for so long."""
    leases = Leases(fails)

    async def scene() -> None:
        api = Api(cast(Any, leases), 10.0)
        beat = asyncio.ensure_future(send_heartbeats(api, node="a", namespace="n", seconds=10))
        await asyncio.sleep(seconds)
        assert not beat.done()
        beat.cancel()
        await asyncio.gather(beat, return_exceptions=True)

    run(scene())
    return leases


def stale_share(leases: Leases) -> float:
    """Return the share of a day in which the operator believes that the agent is gone."""
    gaps = [after - before for before, after in itertools.pairwise([0.0, *leases.renewals, DAY])]
    return sum(max(0.0, gap - AGENT_STALE_SECONDS) for gap in gaps) / DAY


def test_an_agent_whose_requests_often_fail_still_counts_as_there() -> None:
    chance = random.Random(0)
    assert stale_share(heartbeats(lambda: chance.random() < 0.5, DAY)) < 0.002


def test_a_server_that_is_away_gets_few_requests() -> None:
    leases = heartbeats(lambda: True, 3600.0)
    pauses = [after - before for before, after in itertools.pairwise(leases.requests)]
    assert min(pauses) >= 1.0
    assert len(leases.requests) <= 3600 / 2.5 + 2


def test_a_heartbeat_that_arrives_is_repeated_at_its_own_pace() -> None:
    creation = 2  # the question about its account, and the Lease
    assert len(heartbeats(lambda: False, 3600.0).requests) - creation in (360, 361)


class OneLease:
    """An API server with one Lease, which has an owner if it was created with one."""

    def __init__(self, lease: dict[str, Any] | None = None) -> None:
        self.lease = lease
        self.created = 0

    async def review(self, *_: object) -> dict[str, Any]:
        return {"userInfo": {"username": "system:serviceaccount:n:agent", "uid": "account"}}

    async def create(self, _: object, body: dict[str, Any], *, manager: str) -> dict[str, Any]:
        if self.lease is not None:
            raise ApiError(409, "AlreadyExists", "it exists")
        self.created += 1
        self.lease = {"metadata": {**body["metadata"], "uid": f"u-{self.created}"}}
        return self.lease

    async def apply(self, _: object, body: dict[str, Any], *, manager: str) -> dict[str, Any]:
        uid = body["metadata"].get("uid")
        if uid is not None and (self.lease is None or self.lease["metadata"]["uid"] != uid):
            raise ApiError(409, "Conflict", "uid mismatch")
        assert self.lease is not None, "an apply without uid creates a Lease without an owner"
        return self.lease


@pytest.mark.parametrize("before", [None, {"metadata": {"name": "podium-agent-a", "uid": "old"}}], ids=["new", "old"])
def test_a_lease_that_was_deleted_is_soon_created_again_with_its_owner(before: dict[str, Any] | None) -> None:
    """The Lease of an earlier installation is deleted a moment after the agents of the next one have found it."""
    server = OneLease(before)

    async def scene() -> None:
        beat = asyncio.ensure_future(send_heartbeats(cast(Any, server), node="a", namespace="n", seconds=10))
        await asyncio.sleep(5)
        assert server.lease is not None
        server.lease = None
        await asyncio.sleep(10)
        beat.cancel()
        await asyncio.gather(beat, return_exceptions=True)

    run(scene())
    assert server.lease is not None
    (owner,) = server.lease["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("ServiceAccount", "agent", "account")
