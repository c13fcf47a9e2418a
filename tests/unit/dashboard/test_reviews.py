"""Reviews of tokens and rights: every failure refuses, answers are kept for a while, and all is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client as kube_client

from podium_cluster.client import Api
from podium_dashboard import remembered
from podium_dashboard.callers import reviews
from podium_dashboard.callers.reviews import Identity, Reviews
from podium_dashboard.remembered import Remembered
from podium_dashboard.server.viewer import RefusedError

USER = {"username": "ada", "uid": "1", "groups": ["g"], "extra": {"scopes": ["a", "b"]}}
ADA = Identity("ada", "1", ("g",), (("scopes", ("a", "b")),))
Answer = Callable[[str, dict[str, Any]], Any]


class Asked:
    """Reviews against a server that gives the answers of a test."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.specs: list[dict[str, Any]] = []
        self.at_once = 0
        self.most_at_once = 0

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.specs.append(body["spec"])
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            found = self.answer(request.path.rpartition("/")[2], body["spec"])
            found = await found if asyncio.iscoroutine(found) else found
        finally:
            self.at_once -= 1
        return found if isinstance(found, web.Response) else web.json_response({"status": found})

    def play(self, test: Callable[[Reviews], Awaitable[None]], timeout: float = 20.0) -> None:
        """Run a test against the server."""

        async def main() -> None:
            app = web.Application()
            app.router.add_post("/{path:.*}", self.handle)
            async with TestServer(app) as server:
                configuration = kube_client.Configuration(host=str(server.make_url("")).rstrip("/"))
                async with kube_client.ApiClient(configuration) as client:
                    await test(Reviews(Api(client, timeout)))

        asyncio.run(main())


def allowing(*namespaces: str, nodes: bool = False) -> Answer:
    """Return the answers of a cluster in which ada may list searches in these namespaces."""

    def answer(kind: str, spec: dict[str, Any]) -> Any:
        if kind == "tokenreviews":
            return {"authenticated": spec["token"] == "good", "user": USER}
        asked = spec["resourceAttributes"]
        if asked["resource"] == "gpunodes":
            return {"allowed": nodes}
        return {"allowed": asked.get("namespace", "") in namespaces}

    return answer


def test_the_identity_of_a_token_is_asked_once_in_a_while() -> None:
    asked = Asked(allowing())

    async def test(reviews: Reviews) -> None:
        found = await asyncio.gather(*(reviews.identify("good") for _ in range(50)))
        assert set(found) == {ADA}
        assert asked.specs == [{"token": "good"}]

    asked.play(test)


@pytest.mark.parametrize("token", ["", " ", "a b", "a\nb", "ä", "a;b", "x" * (reviews.MAX_TOKEN + 1), "=", "a=b"])
def test_text_that_is_no_token_is_refused_without_a_question(token: str) -> None:
    asked = Asked(allowing())

    async def test(reviews: Reviews) -> None:
        with pytest.raises(RefusedError, match="not a bearer token") as refused:
            await reviews.identify(token)
        assert refused.value.status == 401

    asked.play(test)
    assert asked.specs == []


@pytest.mark.parametrize(
    "status",
    [
        {"authenticated": False, "user": USER},
        {"user": USER},
        {"authenticated": "true", "user": USER},
        {"authenticated": True},
        {"authenticated": True, "user": {"username": ""}},
        {"authenticated": True, "user": {"username": 7}},
        {"authenticated": True, "user": "ada"},
    ],
)
def test_only_an_authenticated_user_with_a_name_is_one(status: dict[str, Any]) -> None:
    async def test(reviews: Reviews) -> None:
        with pytest.raises(RefusedError, match="does not accept the token") as refused:
            await reviews.identify("good")
        assert refused.value.status == 401

    Asked(lambda kind, spec: status).play(test)


FAULTS: list[Answer] = [
    lambda kind, spec: web.json_response({"kind": "Status", "message": "no"}, status=500),
    lambda kind, spec: web.json_response({"kind": "Status", "message": "no"}, status=403),
    lambda kind, spec: web.json_response({}),
    lambda kind, spec: web.json_response({"status": []}),
    lambda kind, spec: web.Response(text="<html>"),
    lambda kind, spec: asyncio.sleep(60),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_of_the_api_server_refuses_and_is_not_kept(fault: Answer) -> None:
    asked = Asked(fault)

    async def test(reviews: Reviews) -> None:
        for question in (reviews.identify("good"), reviews.rights(ADA, ["a"])):
            with pytest.raises(RefusedError, match="The API server does not answer") as refused:
                await question
            assert refused.value.status == 503
        asked.answer = allowing("a")
        assert await reviews.identify("good") == ADA
        assert (await reviews.rights(ADA, ["a"])).namespaces == frozenset("a")

    asked.play(test, timeout=0.5)


def test_rights_are_those_of_each_namespace() -> None:
    asked = Asked(allowing("a", "c", nodes=True))

    async def test(reviews: Reviews) -> None:
        found = await reviews.rights(ADA, ["a", "b", "c"])
        assert (found.namespaces, found.nodes, found.unchecked) == (frozenset("ac"), True, 0)

    asked.play(test)
    assert all((spec["user"], spec["groups"], spec["extra"]) == ("ada", ["g"], USER["extra"]) for spec in asked.specs)
    assert {spec["resourceAttributes"]["verb"] for spec in asked.specs} == {"list"}


def test_both_kinds_have_to_be_allowed() -> None:
    def answer(kind: str, spec: dict[str, Any]) -> Any:
        return {"allowed": spec["resourceAttributes"]["resource"] == "hyperparamjobs"}

    async def test(reviews: Reviews) -> None:
        assert (await reviews.rights(ADA, ["a"])).namespaces == frozenset()

    Asked(answer).play(test)


def test_an_explicit_denial_outweighs() -> None:
    async def test(reviews: Reviews) -> None:
        found = await reviews.rights(ADA, ["a"])
        assert (found.namespaces, found.nodes) == (frozenset(), False)

    Asked(lambda kind, spec: {"allowed": True, "denied": True}).play(test)


def test_a_right_for_all_namespaces_is_one_question() -> None:
    asked = Asked(allowing("", nodes=True))

    async def test(reviews: Reviews) -> None:
        assert (await reviews.rights(ADA, map(str, range(100)))).namespaces is None

    asked.play(test)
    assert len(asked.specs) == 3


def test_many_namespaces_are_asked_in_turn_and_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "MAX_NAMESPACES", 60)
    asked = Asked(lambda kind, spec: _later({"allowed": "namespace" in spec["resourceAttributes"]}))

    async def test(checked: Reviews) -> None:
        found = await checked.rights(ADA, map(str, range(100)))
        assert found.namespaces is not None
        assert (len(found.namespaces), found.unchecked) == (60, 40)

    asked.play(test)
    assert asked.most_at_once <= reviews.QUESTIONS_AT_ONCE


async def _later(answer: Any) -> Any:
    await asyncio.sleep(0)
    return answer


def test_a_flood_of_tokens_is_refused_and_the_api_server_gets_few_at_once() -> None:
    asked = Asked(lambda kind, spec: asyncio.sleep(0.2, {"authenticated": False}))

    async def test(checked: Reviews) -> None:
        found = await asyncio.gather(*(checked.identify(f"t{one}") for one in range(500)), return_exceptions=True)
        codes = [one.status for one in found if isinstance(one, RefusedError)]
        assert len(codes) == 500
        assert codes.count(401) == reviews.CHECKS_WAITING

    asked.play(test)
    assert asked.most_at_once <= reviews.CHECKS_AT_ONCE


def test_answers_are_kept_for_their_time_and_in_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = 0.0
    monkeypatch.setattr(remembered, "time", SimpleNamespace(monotonic=lambda: passed))
    calls: list[int] = []

    async def ask(key: int) -> int:
        calls.append(key)
        return key

    async def play() -> None:
        nonlocal passed
        kept = Remembered(ask, lambda answer: 10.0, 3)
        for key in (1, 1, 2, 3, 4):
            assert await kept.get(key) == key
        assert (calls, len(kept)) == ([1, 2, 3, 4], 3)
        await kept.get(1)  # the oldest was dropped
        assert calls == [1, 2, 3, 4, 1]
        passed = 9.9
        await kept.get(4)
        assert len(calls) == 5
        passed = 10.0
        await kept.get(4)
        assert calls[5:] == [4]

    asyncio.run(play())
