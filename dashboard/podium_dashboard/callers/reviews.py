"""The identity of a caller and what it may read, by the API server's TokenReview and SubjectAccessReview."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import ACCESS_REVIEWS, GPUNODES, JOBS, TOKEN_REVIEWS, TRIALS, Resource
from podium_dashboard.remembered import Remembered
from podium_dashboard.rights import Rights
from podium_dashboard.server.viewer import RefusedError

TOKEN_SECONDS = 30.0  # for which an accepted token is not checked again
REFUSED_SECONDS = 5.0  # the same for a refused one
RIGHT_SECONDS = 15.0  # the same for an answer about a right, and for the rights that follow from the answers
MAX_TOKEN = 8192  # characters
MAX_TOKENS, MAX_ANSWERS, MAX_RIGHTS = 1000, 20_000, 1000  # that are kept
MAX_NAMESPACES = 500  # whose rights are asked for one caller
CHECKS_AT_ONCE, CHECKS_WAITING = 8, 64  # of tokens: anyone can send some
QUESTIONS_AT_ONCE = 16
TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as the API server knows it."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """Whether an identity may list a kind in a namespace; an empty namespace means all."""

    identity: Identity
    resource: Resource
    namespace: str


class Reviews:
    """Asks the API server, with short memories. Every failure of the API server refuses."""

    def __init__(self, api: Api) -> None:
        """Prepare; the account of `api` needs the right to create both reviews."""
        self._api = api
        self._waiting = 0
        self._checks = asyncio.Semaphore(CHECKS_AT_ONCE)
        self._questions = asyncio.Semaphore(QUESTIONS_AT_ONCE)
        self._identities: Remembered[str, Identity | None] = Remembered(
            self._review_token, lambda found: REFUSED_SECONDS if found is None else TOKEN_SECONDS, MAX_TOKENS
        )
        self._answers: Remembered[Question, bool] = Remembered(self._review_access, _seconds_of_a_right, MAX_ANSWERS)
        self._rights: Remembered[tuple[Identity, frozenset[str]], Rights] = Remembered(
            self._find_rights, _seconds_of_a_right, MAX_RIGHTS
        )

    async def identify(self, token: str) -> Identity:
        """Return whose token it is. Raises RefusedError for an invalid or expired one."""
        if len(token) > MAX_TOKEN or TOKEN.fullmatch(token) is None:
            raise RefusedError(401, f"This is not a bearer token: it has other characters, or more than {MAX_TOKEN}.")
        identity = await self._identities.get(token)
        if identity is None:
            raise RefusedError(401, "The API server does not accept the token. It may have expired: create a new one.")
        return identity

    async def rights(self, identity: Identity, namespaces: Iterable[str]) -> Rights:
        """Return what an identity may read of these namespaces. Raises RefusedError if the check fails."""
        return await self._rights.get((identity, frozenset(namespaces)))

    async def _find_rights(self, key: tuple[Identity, frozenset[str]]) -> Rights:
        identity, namespaces = key
        everywhere, nodes = await asyncio.gather(
            self._reads(identity, ""), self._answers.get(Question(identity, GPUNODES, ""))
        )
        if everywhere:
            return Rights(None, nodes)
        asked = sorted(namespaces)[:MAX_NAMESPACES]
        seen = await asyncio.gather(*(self._reads(identity, one) for one in asked))
        allowed = frozenset(one for one, may in zip(asked, seen, strict=True) if may)
        return Rights(allowed, nodes, len(namespaces) - len(asked))

    async def _reads(self, identity: Identity, namespace: str) -> bool:
        """Return whether the identity may list both jobs and trials."""
        jobs = await self._answers.get(Question(identity, JOBS, namespace))
        return jobs and await self._answers.get(Question(identity, TRIALS, namespace))

    async def _review_token(self, token: str) -> Identity | None:
        if self._waiting >= CHECKS_WAITING:
            raise RefusedError(503, "Too many tokens are being checked; try again in a few seconds.")
        self._waiting += 1
        try:
            async with self._checks:
                status = await self._ask(TOKEN_REVIEWS, {"token": token}, "whose token this is")
        finally:
            self._waiting -= 1
        return _identity(status.get("user")) if status.get("authenticated") is True else None

    async def _review_access(self, question: Question) -> bool:
        identity, resource = question.identity, question.resource
        attributes = {"verb": "list", "group": resource.group, "resource": resource.plural}
        if question.namespace:
            attributes["namespace"] = question.namespace
        spec: dict[str, Any] = {
            "user": identity.user,
            "uid": identity.uid,
            "groups": list(identity.groups),
            "extra": {key: list(values) for key, values in identity.extra},
            "resourceAttributes": attributes,
        }
        async with self._questions:
            status = await self._ask(ACCESS_REVIEWS, spec, f"whether {identity.user} may list {resource.plural}")
        return status.get("allowed") is True and status.get("denied") is not True

    async def _ask(self, resource: Resource, spec: Mapping[str, Any], what: str) -> Mapping[str, Any]:
        try:
            return await self._api.review(resource, spec)
        except ApiError as error:
            text = f"The API server does not answer {what}: {error.message}. Try again; nothing is shown meanwhile."
            raise RefusedError(503, text) from error


def _seconds_of_a_right(_: object) -> float:
    return RIGHT_SECONDS


def _identity(user: object) -> Identity | None:
    """Return the user of a TokenReview; None if it has no name."""
    if not isinstance(user, dict) or not isinstance(user.get("username"), str) or not user["username"]:
        return None
    extra = user.get("extra") or {}
    return Identity(
        user=user["username"],
        uid=str(user.get("uid") or ""),
        groups=tuple(map(str, user.get("groups") or ())),
        extra=tuple(sorted((str(key), tuple(map(str, values or ()))) for key, values in extra.items())),
    )
