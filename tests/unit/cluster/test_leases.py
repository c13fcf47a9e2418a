"""A new Lease belongs to the service account that creates it, and is deleted with it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from podium_cluster.client import Api, ApiError
from podium_cluster.leases import create_lease, owner_from
from podium_cluster.resources import LEASES, SELF_REVIEWS, Resource

OWNER = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "podium-agent", "uid": "u-1"}


class Server:
    """Answers a SelfSubjectReview with `answer`, and keeps what is created."""

    def __init__(self, answer: dict[str, Any] | ApiError) -> None:
        self._answer = answer
        self.created: list[dict[str, Any]] = []

    async def review(self, resource: Resource) -> dict[str, Any]:
        assert resource == SELF_REVIEWS
        if isinstance(self._answer, ApiError):
            raise self._answer
        return self._answer

    async def create(self, resource: Resource, body: dict[str, Any], *, manager: str) -> dict[str, Any]:
        assert (resource, manager) == (LEASES, "me")
        self.created.append(body)
        return body


def subject(user: object = "system:serviceaccount:podium-system:podium-agent", uid: object = "u-1") -> dict[str, Any]:
    return {"userInfo": {"username": user, "uid": uid}}


def metadata_of(answer: dict[str, Any] | ApiError) -> dict[str, Any]:
    """Return the metadata of a Lease that is created by the caller of this answer."""
    server = Server(answer)
    asyncio.run(create_lease(cast(Api, server), "one", "podium-system", {"holderIdentity": "a"}, manager="me"))
    (body,) = server.created
    assert (body["kind"], body["spec"]) == ("Lease", {"holderIdentity": "a"})
    return dict(body["metadata"])


def test_the_account_owns_the_lease() -> None:
    assert metadata_of(subject()) == {"name": "one", "namespace": "podium-system", "ownerReferences": [OWNER]}


@pytest.mark.parametrize(
    "answer",
    [
        subject("kubernetes-admin"),
        subject("system:serviceaccount:other:podium-agent"),  # an owner in another namespace does not exist there
        subject(uid=""),
        subject(uid=None),
        subject(user=7),
        {"userInfo": []},
        {},
        ApiError(403, "Forbidden", "not allowed to ask"),
    ],
)
def test_a_lease_of_anyone_else_has_no_owner(answer: dict[str, Any] | ApiError) -> None:
    assert metadata_of(answer) == {"name": "one", "namespace": "podium-system"}


def test_a_lease_is_not_created_without_its_owner_if_the_server_is_away_for_a_moment() -> None:
    with pytest.raises(ApiError, match="away"):
        metadata_of(ApiError(503, "ServiceUnavailable", "away"))


def test_the_owner_is_named_as_the_api_server_names_accounts() -> None:
    assert owner_from(subject(), "podium-system") == OWNER
    assert owner_from(subject(), "podium") is None
