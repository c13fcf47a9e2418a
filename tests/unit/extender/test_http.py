"""The verbs over real connections: responses in order, limits, and clear errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from malformed import GOLDEN, recorded

from podium_cluster.resources import GPUNODES, PODS, TRIALS
from podium_cluster.watch import wait_all_synced
from podium_core.placement.policies.registry import DEFAULT, placement_policy
from podium_extender.app import create_app
from podium_extender.metrics import Metrics
from podium_extender.server.bounded_protocol import BoundedProtocol
from podium_extender.server.limits import ConcurrencyLimit
from podium_extender.state.node_cache import NodeCache
from podium_extender.verbs.decisions import NodeEvaluator
from podium_extender.verbs.handlers import Verbs

LIMIT = 2**18
Caches = Callable[..., NodeCache]
Reply = tuple[int, Any]
QUESTION = json.dumps({"Pod": {"metadata": {"name": "p", "uid": "u"}, "spec": {}}, "NodeNames": ["a"]}).encode()


class Connection:
    """A connection of a client that keeps it open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, path: str, body: bytes, method: str = "POST", **headers: str) -> None:
        fields = {"Host": "extender", "Content-Length": str(len(body))} | {
            k.replace("_", "-"): v for k, v in headers.items()
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    async def reply(self) -> Reply:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        return int(head.split()[1]), json.loads(await self.reader.readexactly(length))


class Server:
    """A uvicorn server of the extender."""

    def __init__(self, node_cache: NodeCache, max_requests: int) -> None:
        self.node_cache, self.metrics, self.concurrency = node_cache, Metrics(), ConcurrencyLimit(max_requests)
        self.verbs = Verbs(node_cache, self.metrics, NodeEvaluator(placement_policy(DEFAULT), 60.0))
        self.app = create_app(self.verbs, self.metrics, self.concurrency, LIMIT)
        config = uvicorn.Config(
            self.app, port=0, http=BoundedProtocol, log_config=None, access_log=False, lifespan="off"
        )
        self.uvicorn = uvicorn.Server(config)
        self._connections: list[Connection] = []

    async def connect(self) -> Connection:
        port = self.uvicorn.servers[0].sockets[0].getsockname()[1]
        self._connections.append(Connection(*await asyncio.open_connection("127.0.0.1", port)))
        return self._connections[-1]

    def hang_up(self) -> None:
        for connection in self._connections:
            connection.writer.close()

    def counted(self, verb: str, status: int) -> float | None:
        labels = {"verb": verb, "status": str(status)}
        return self.metrics.registry.get_sample_value("podium_extender_requests_total", labels)


@asynccontextmanager
async def serving(caches: Caches, objects: Mapping[Any, Any], max_requests: int = 32) -> AsyncIterator[Server]:
    node_cache = caches(objects)
    runs = [asyncio.create_task(cache.run()) for cache in node_cache.caches.values()]
    await wait_all_synced(node_cache.caches.values())
    server = Server(node_cache, max_requests)
    config = server.uvicorn.config
    config.load()
    server.uvicorn.lifespan = config.lifespan_class(config)
    await server.uvicorn.startup()
    try:
        yield server
    finally:
        server.hang_up()
        await server.uvicorn.shutdown()
        for run in runs:
            run.cancel()


def run(caches: Caches, story: Callable[[Server], Awaitable[None]], **named: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(300), serving(caches, named.pop("objects", {}), **named) as server:
            await story(server)

    asyncio.run(main())


def golden(name: str) -> dict[Any, Any]:
    sitting = json.loads((GOLDEN / "trials.json").read_text())
    nodes = json.loads((GOLDEN / "gpunodes.json").read_text())[name]
    return {GPUNODES: nodes, PODS: sitting["pods"], TRIALS: sitting["trials"]}


def test_recorded_requests_get_the_same_responses_as_without_a_connection(caches: Caches) -> None:
    async def story(server: Server) -> None:
        connection = await server.connect()
        transport = httpx.ASGITransport(server.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://extender") as client:
            for verb, request in recorded():
                if verb == "preempt":
                    continue  # an answer bears on the next
                body = json.dumps(request).encode()
                connection.send(f"/{verb}", body)
                direct = await client.post(f"/{verb}", content=body)
                assert await connection.reply() == (direct.status_code, direct.json())
                assert direct.status_code == 200

    run(caches, story, objects=golden("filter"))


def test_preempt_over_a_connection(caches: Caches) -> None:
    async def story(server: Server) -> None:
        connection = await server.connect()
        asked = next(request for verb, request in recorded() if verb == "preempt" and request["NodeNameToMetaVictims"])
        connection.send("/preempt", json.dumps(asked).encode())
        status, answer = await connection.reply()
        assert (status, list(answer)) == (200, ["NodeNameToMetaVictims"])

    run(caches, story, objects=golden("preempt"))


def test_requests_of_one_connection_are_answered_in_their_order(caches: Caches) -> None:
    async def story(server: Server) -> None:
        connection = await server.connect()
        for path in ("/filter", "/prioritize", "/nowhere", "/filter", "/prioritize"):
            connection.send(path, QUESTION)
        replies = [await connection.reply() for _ in range(5)]
        assert [status for status, _ in replies] == [200, 200, 404, 200, 200]
        assert replies[0][1]["NodeNames"] == replies[3][1]["NodeNames"] == ["a"]
        assert replies[1][1] == replies[4][1] == [{"Host": "a", "Score": 5}]
        assert (server.counted("filter", 200), server.counted("other", 404)) == (2, 1)

    run(caches, story)


def test_the_last_pods_node_is_evaluated_before_the_next_request(caches: Caches) -> None:
    async def story(server: Server) -> None:
        connection = await server.connect()
        asked = next(request for verb, request in recorded() if verb == "prioritize" and request["NodeNames"])
        connection.send("/prioritize", json.dumps(asked).encode())
        _, rows = await connection.reply()
        best = max(rows, key=lambda row: row["Score"])["Host"]
        connection.send("/nowhere", b"")
        await connection.reply()
        meta = asked["Pod"]["metadata"]
        assert list(server.node_cache._assumed.on(best)) == [(meta["namespace"], meta["name"])]
        assert not server.node_cache._changed

    run(caches, story, objects=golden("filter"))


def test_a_request_that_arrives_in_pieces(caches: Caches) -> None:
    async def story(server: Server) -> None:
        connection = await server.connect()
        names = [f"node-{number:05d}" for number in range(10_000)]
        body = json.dumps({"Pod": {"metadata": {}, "spec": {}}, "NodeNames": names}).encode()
        half = len(body) // 2
        connection.send("/filter", body[:half], Content_Length=str(len(body)))
        await connection.writer.drain()
        connection.writer.write(body[half:])
        status, answer = await connection.reply()
        assert (status, answer["NodeNames"]) == (200, names)

    run(caches, story)


@pytest.mark.parametrize(
    ("path", "body", "status", "expected"),
    [
        ("/filter", b"{", 400, "body: Invalid JSON"),
        ("/prioritize", b"{}", 400, "Pod: Field required"),
        ("/preempt", b"null", 400, "should be an object"),
        ("/filter", b"x" * (3 * LIMIT), 413, "PODIUM_BODY_LIMIT"),
        ("/bind", b"{}", 404, "POST /filter"),
    ],
    ids=["no JSON", "no pod", "null", "too large", "no verb"],
)
def test_an_error_is_explained(caches: Caches, path: str, body: bytes, status: int, expected: str) -> None:
    async def story(server: Server) -> None:
        connection = await server.connect()
        connection.send(path, body)
        got, answer = await connection.reply()
        assert got == status
        assert expected in answer["Error"]
        connection.send("/filter", QUESTION)
        assert (await connection.reply())[0] == 200

    run(caches, story)


def test_expect_100_continue_is_supported(caches: Caches) -> None:
    """kube-scheduler does not use it."""

    async def story(server: Server) -> None:
        connection = await server.connect()
        connection.send("/filter", b"", Expect="100-continue", Content_Length=str(len(QUESTION)))
        assert b" 100 " in await connection.reader.readuntil(b"\r\n\r\n")
        connection.writer.write(QUESTION)
        assert (await connection.reply())[0] == 200

    run(caches, story)


@pytest.mark.parametrize("line", ["HTTP/1.0\r\nConnection: keep-alive", "HTTP/1.1\r\nConnection: close"])
def test_a_connection_without_keep_alive_is_closed_after_the_response(caches: Caches, line: str) -> None:
    async def story(server: Server) -> None:
        connection = await server.connect()
        head = f"POST /filter {line}\r\nHost: extender\r\nContent-Length: {len(QUESTION)}\r\n\r\n"
        connection.writer.write(head.encode() + QUESTION)
        answer = await connection.reader.read()
        assert b"\r\nconnection: close\r\n" in answer
        assert b'"NodeNames":["a"]' in answer

    run(caches, story)


@pytest.mark.parametrize(("method", "path"), [("GET", "/filter"), ("PUT", "/filter"), ("POST", "/filter/../preempt")])
def test_other_methods_and_paths_are_explained(caches: Caches, method: str, path: str) -> None:
    async def story(server: Server) -> None:
        connection = await server.connect()
        connection.send(path, QUESTION, method=method)
        status, answer = await connection.reply()
        assert status in (404, 405)
        assert "POST /filter" in answer["Error"]
        connection.send("/filter", QUESTION)
        assert (await connection.reply())[0] == 200

    run(caches, story)


def test_a_chunked_body(caches: Caches) -> None:
    async def story(server: Server) -> None:
        connection = await server.connect()
        head = b"POST /filter HTTP/1.1\r\nHost: extender\r\nTransfer-Encoding: chunked\r\n\r\n"
        pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (QUESTION[:9], QUESTION[9:])]
        connection.writer.write(head + b"".join(pieces) + b"0\r\n\r\n")
        assert (await connection.reply())[0] == 200
        connection.writer.write(head + (b"10000\r\n" + b"x" * 2**16 + b"\r\n") * 5)  # it does not end
        assert (await connection.reply())[0] == 413
        connection.writer.write(b"0\r\n\r\n")
        connection.send("/filter", QUESTION)
        assert (await connection.reply())[0] == 200

    run(caches, story)


def test_a_request_with_two_lengths_is_refused(caches: Caches) -> None:
    """Otherwise one side could read as a request what the other side sent as a body."""

    async def story(server: Server) -> None:
        connection = await server.connect()
        connection.send("/filter", QUESTION, Transfer_Encoding="chunked")
        assert (await connection.reader.read()).startswith(b"HTTP/1.1 400 ")
        assert server.counted("filter", 200) is None

    run(caches, story)


def test_too_many_requests_are_refused_at_once(caches: Caches) -> None:
    """They arrive at the same moment. Requests above the limit get an error, and later requests are served again."""

    async def story(server: Server) -> None:
        async with server.concurrency.hold():  # a long request
            crowd = [await server.connect() for _ in range(3)]
            async with server.concurrency.hold():
                for connection in crowd:
                    connection.send("/filter", QUESTION)
                for connection in crowd:
                    status, answer = await connection.reply()
                    assert status == 503
                    assert "PODIUM_MAX_REQUESTS" in answer["Error"]
            crowd[0].send("/filter", QUESTION)
            assert (await crowd[0].reply())[0] == 200
        for connection in crowd * 2:
            connection.send("/filter", QUESTION)
            assert (await connection.reply())[0] == 200

    run(caches, story, max_requests=2)


def test_a_slow_request_counts_from_its_start(caches: Caches) -> None:
    """The limit bounds the memory for bodies, for any number of connections."""

    async def story(server: Server) -> None:
        slow, other = await server.connect(), await server.connect()

        async def until(status: int) -> None:
            answer = None
            while answer != status:
                other.send("/filter", QUESTION)
                answer, _ = await other.reply()

        slow.send("/filter", QUESTION[:9], Content_Length=str(len(QUESTION)))
        await until(503)
        slow.writer.write(QUESTION[9:])
        assert (await slow.reply())[0] == 200
        await until(200)
        slow.send("/filter", QUESTION[:9], Content_Length=str(len(QUESTION)))
        await until(503)
        slow.writer.close()
        await until(200)

    run(caches, story, max_requests=1)


def test_a_failing_verb_affects_only_its_response(caches: Caches, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(server: Server) -> None:
        def fails(*_: Any) -> bytes:
            raise RuntimeError("a defect")

        connection = await server.connect()
        with monkeypatch.context() as patch:
            patch.setattr(server.verbs, "answer", fails)
            connection.send("/filter", QUESTION)
            assert await connection.reply() == (500, {"Error": "Internal Server Error"})
        for _ in range(3):
            connection.send("/filter", QUESTION)
            assert (await connection.reply())[0] == 200
        assert server.counted("filter", 500) == 1

    run(caches, story, max_requests=1)
