"""Leader election: at most one candidate leads, whatever the network and the clocks do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.aio.client import Configuration

from podium_cluster.client import Api, ApiError
from podium_cluster.leader import (
    DEADLINE_SECONDS,
    LEASE_SECONDS,
    REQUEST_SECONDS,
    RETRY_SECONDS,
    Election,
    LeadershipLostError,
)
from podium_cluster.resources import PODS


class LeaseServer:
    """One Lease with optimistic concurrency; `faults` says what happens to the next requests."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.faults: list[tuple[str, float]] = []

    def _arrive(self) -> str:
        fault, delay = self.faults.pop(0) if self.faults else ("", 0.0)
        self.now += delay
        if fault == "lost":
            raise ApiError(0, "Timeout", "the request was lost")
        return fault

    def _store(self, spec: Mapping[str, Any], fault: str) -> dict[str, Any]:
        self.version += 1
        self.lease = {"metadata": {"resourceVersion": str(self.version)}, "spec": dict(spec)}
        if fault == "answer lost":
            raise ApiError(0, "Timeout", "the answer was lost")
        return self.lease

    async def get(self, *_: object) -> dict[str, Any]:
        fault = self._arrive()
        if fault == "answer lost":
            raise ApiError(0, "Timeout", "the answer was lost")
        if self.lease is None:
            raise ApiError(404, "NotFound", "no Lease")
        return self.lease

    async def review(self, _: object) -> dict[str, Any]:
        return {"userInfo": {"username": "system:serviceaccount:podium-system:podium-operator", "uid": "u-1"}}

    async def create(self, _: object, body: Mapping[str, Any], *, manager: str) -> dict[str, Any]:
        fault = self._arrive()
        if self.lease is not None:
            raise ApiError(409, "AlreadyExists", "another candidate created it")
        return self._store(body["spec"], fault)

    async def patch(self, *arguments: Any, manager: str) -> dict[str, Any]:
        fault, patch = self._arrive(), arguments[-1]
        if self.lease is None or patch["metadata"]["resourceVersion"] != str(self.version):
            raise ApiError(409, "Conflict", "it was changed")
        return self._store(patch["spec"], fault)


def candidate(server: LeaseServer, name: str, offset: float = 0.0) -> Election:
    api: Any = server
    return Election(api, "podium-operator", "podium-system", name, monotonic=lambda: server.now + offset)


def attempt(election: Election) -> bool:
    return asyncio.run(election.attempt())


def test_the_first_candidate_leads_and_keeps_the_lease() -> None:
    server = LeaseServer()
    first, second = candidate(server, "a"), candidate(server, "b")
    assert attempt(first)
    for _ in range(20):
        server.now += RETRY_SECONDS
        assert (attempt(first), attempt(second)) == (True, False)
    assert second.standing_by
    assert not first.standing_by


def test_a_silent_leader_is_replaced_after_the_lease() -> None:
    server = LeaseServer()
    first, second = candidate(server, "a"), candidate(server, "b", offset=1e6)
    assert attempt(first)
    assert not attempt(second)
    server.now += LEASE_SECONDS - 0.1
    assert not attempt(second)
    server.now += 0.1
    assert attempt(second)
    assert not first.leads()
    assert not attempt(first)


def test_a_leader_that_ends_is_replaced_at_once() -> None:
    server = LeaseServer()
    first, second = candidate(server, "a"), candidate(server, "b")
    assert attempt(first)
    asyncio.run(first.release())
    assert not first.leads()
    assert attempt(second)


def test_a_restarted_container_takes_its_own_lease_back() -> None:
    server = LeaseServer()
    assert attempt(candidate(server, "a"))
    assert attempt(candidate(server, "a"))


@pytest.mark.parametrize("fault", ["lost", "answer lost"])
def test_a_leader_that_cannot_renew_stops_at_its_deadline(fault: str) -> None:
    server = LeaseServer()
    first = candidate(server, "a")
    assert attempt(first)
    server.now += DEADLINE_SECONDS - 0.1
    server.faults = [(fault, 0.0)]
    assert attempt(first)
    server.now += 0.1
    server.faults = [(fault, 0.0)]
    assert not attempt(first)


def test_holding_ends_when_another_candidate_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    server = LeaseServer()
    first, second = candidate(server, "a"), candidate(server, "b")
    assert attempt(first)

    async def sleep(seconds: float) -> None:
        server.now += LEASE_SECONDS
        await second.attempt()
        server.now += LEASE_SECONDS
        await second.attempt()

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(LeadershipLostError, match="b leads now"):
        asyncio.run(first.hold())


STEPS = st.tuples(
    st.integers(0, 2),
    st.floats(0.0, 6.0),
    st.lists(
        st.tuples(st.sampled_from(["", "", "lost", "answer lost"]), st.floats(0.0, RETRY_SECONDS)),
        min_size=2,
        max_size=2,
    ),
)


@given(st.lists(STEPS, max_size=60), st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3))
def test_no_write_of_an_old_leader_meets_a_new_one(steps: list[Any], offsets: list[float]) -> None:
    """A write that is sent while a candidate leads ends within REQUEST_SECONDS, before another one leads."""
    server = LeaseServer()
    elections = [candidate(server, name, offset) for name, offset in zip("abc", offsets, strict=True)]
    last_led = [-1e12] * 3
    for number, pause, faults in steps:
        until = server.now + pause
        while server.now < until:
            server.now = min(server.now + 0.5, until)
            for other, election in enumerate(elections):
                if election.leads():
                    last_led[other] = server.now
        led = elections[number].leads()
        server.faults = list(faults)
        attempt(elections[number])
        server.faults = []
        assert sum(election.leads() for election in elections) <= 1
        if elections[number].leads() and not led:
            others = [at for other, at in enumerate(last_led) if other != number]
            assert all(server.now - at >= REQUEST_SECONDS for at in others)


def test_a_fenced_client_writes_only_while_it_leads() -> None:
    sent: list[str] = []

    class Session:
        configuration, rest_client = Configuration(), None

        async def param_serialize(self, *_: object, **__: object) -> Any:
            sent.append("sent")
            raise ApiError(500, "Stop", "the request would be sent now")

    session: Any = Session()
    api, leads = Api(session, 10.0), [False]
    api.fence(lambda: leads[0], 6.0)
    for write in (lambda: api.delete(PODS, "a", "b"), lambda: api.create(PODS, {"metadata": {}}, manager="m")):
        with pytest.raises(ApiError, match="NotLeader"):
            asyncio.run(write())
    assert sent == []
    with pytest.raises(ApiError, match="Stop"):
        asyncio.run(api.get(PODS, "a", "b"))
    leads[0] = True
    with pytest.raises(ApiError, match="Stop"):
        asyncio.run(api.delete(PODS, "a", "b"))
