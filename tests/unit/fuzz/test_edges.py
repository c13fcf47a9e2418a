"""Fuzz targets of what others send to Podium's servers, and answer to its clients: an answer, or its own error.

`make fuzz` runs 100,000 cases of each (`tools/fuzz.py`). The short form runs 200.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fuzzing import answered, fuzz, places
from hypothesis import strategies as st
from starlette.datastructures import Headers
from starlette.requests import Request
from uvicorn import Config
from uvicorn.server import ServerState

from podium_agent.deviceplugin.slots import AllocationRefusedError, check_allocation
from podium_agent.migration.errors import MigrationError
from podium_agent.migration.kubelet import ContainerRef, archive_path, error_from_response
from podium_agent.migration.runtimes import parse as parse_runtime
from podium_agent.observe.logs.cri import LONGEST_LINE, Assembler
from podium_agent.observe.pods import parse as parse_pod
from podium_agent.observe.sources.push import MAX_QUEUED, PushQueues
from podium_agent.observe.sources.push_server import PushServer
from podium_agent.report.checkpoints import report_in_hello
from podium_agent.schedule.gate import Gates
from podium_cluster.access.answers import check_event, check_list, check_object, parse_object, read_lines
from podium_cluster.errors import ApiError
from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.pages.page import parse_path
from podium_dashboard.server import connections
from podium_dashboard.server.access import cookies, host_name
from podium_dashboard.server.actions import parse_action
from podium_dashboard.server.forms import MAX_FIELDS, is_same_origin, read_form
from podium_dashboard.server.sign_in import bearer_token, is_encrypted
from podium_dashboard.server.viewer import RefusedError
from podium_extender.server import bounded_protocol
from podium_extender.verbs.request import RequestParser, parse_whole
from podium_extender.verbs.wire import PreemptArgs, RequestError, parse


def made_of(*pieces: bytes, longest: int = 20) -> st.SearchStrategy[bytes]:
    """Return bytes made of these pieces and of any others."""
    return st.lists(st.sampled_from(pieces) | st.binary(max_size=4), max_size=longest).map(b"".join)


ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.sampled_from([0, -1, 10**30, 10**400, "", "a", "\0", "\ud800", "1Gi", "1e999999", "2026-01-31T12:00:00Z", "-"])
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def changed(good: Any) -> st.SearchStrategy[Any]:
    """Return this value with up to three parts replaced."""

    def change(changes: list[tuple[tuple[Any, ...], Any]]) -> Any:
        result = json.loads(json.dumps(good))
        for path, value in changes:
            if not path:
                return value
            node = result
            with contextlib.suppress(KeyError, IndexError, TypeError):  # an earlier change removed the place
                for part in path[:-1]:
                    node = node[part]
                node[path[-1]] = value
        return result

    return st.lists(st.tuples(st.sampled_from(places(good)), ODD), max_size=3).map(change)


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def cut(bodies: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Return these bodies, some of them cut off."""
    return bodies | st.tuples(bodies, st.integers(0, 200)).map(lambda one: one[0][: one[1]])


POD = {
    "metadata": {
        "name": "p",
        "namespace": "n",
        "uid": "u",
        "labels": {"podium.dev/trial": "t", "podium.dev/job": "j", "podium.dev/attempt": "1"},
        "annotations": {"podium.dev/gpu-memory": "1Gi", "podium.dev/metrics": "{}", "podium.dev/gpu-state": "{}"},
        "ownerReferences": [
            {
                "apiVersion": "podium.dev/v1alpha1",
                "kind": "HyperParamTrial",
                "name": "t",
                "uid": "x",
                "controller": True,
            }
        ],
        "deletionTimestamp": "2026-01-31T12:00:00Z",
        "deletionGracePeriodSeconds": 30,
        "resourceVersion": "7",
    },
    "spec": {
        "nodeName": "a",
        "priority": 1,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "podium.dev/gpu": "1", "memory": "1Gi"}}}],
        "initContainers": [{"name": "gate", "env": [{"name": "A", "value": "b"}]}],
    },
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {"name": "c", "containerID": "containerd://" + "a" * 64, "state": {"running": {"startedAt": None}}}
        ],
        "conditions": [{"type": "Ready", "status": "True", "reason": "", "lastTransitionTime": None}],
    },
}


QUESTION = {"Pod": POD, "Nodes": None, "NodeNames": ["a", "b"]}
VICTIMS = {"Pod": POD, "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}}}


@fuzz(cut(changed(QUESTION).map(as_json)) | made_of(b'{"Pod":', b"{", b"}", b"[", b'"', b"null", b",", b"1e999"))
def test_questions_of_the_scheduler(body: bytes) -> None:
    quick = answered(lambda: RequestParser().parse(body), RequestError)
    whole = answered(lambda: parse_whole(body), RequestError)
    assert (quick is None) == (whole is None)
    assert quick is None or (quick.names, quick.pod) == (whole.names, whole.pod)


@fuzz(cut(changed(VICTIMS).map(as_json)))
def test_victims_of_the_scheduler(body: bytes) -> None:
    answered(lambda: parse(body, PreemptArgs), RequestError)


@fuzz(changed(POD))
def test_pods_of_a_tenant(pod: Any) -> None:
    if isinstance(pod, dict):
        answered(lambda: parse_pod(pod), ValueError)


TRIAL = {
    "metadata": {"name": "t", "namespace": "n", "uid": "u", "resourceVersion": "1", "labels": {"podium.dev/job": "j"}},
    "spec": {"parameters": {"lr": "0.1"}, "maxSteps": 10},
    "status": {
        "phase": "Running",
        "gpus": ["GPU-1"],
        "curve": {"steps": [1, 2], "values": [0.1, 0.2], "seconds": [1, 2]},
        "allocations": [{"gpus": ["GPU-1"], "start": "2026-01-31T12:00:00Z", "end": None}],
        "lostWork": {"steps": 1, "gpuSeconds": 2.5},
    },
}


@fuzz(changed(TRIAL))
def test_trials_with_a_forged_status(trial: Any) -> None:
    answered(lambda: HyperParamTrial.model_validate(trial), ValueError)


async def in_pieces(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


LIST = {"kind": "PodList", "metadata": {"resourceVersion": "9", "continue": ""}, "items": [POD, POD]}
EVENTS = [{"type": "ADDED", "object": POD}, {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}]
STATUS = {"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict", "message": "m", "details": {}}


@fuzz(
    cut(changed(LIST).map(as_json) | changed(STATUS).map(as_json) | changed(POD).map(as_json)) | st.binary(max_size=40)
)
def test_answers_of_an_api_server(body: bytes) -> None:
    for check in (check_object, check_list):
        answered(lambda check=check: check(parse_object(body, "GET /x"), "GET /x"), ApiError)  # type: ignore[misc]


@fuzz(st.lists(cut(changed(EVENTS[0]).map(as_json)) | changed(EVENTS[1]).map(as_json), max_size=3), st.integers(1, 400))
def test_events_of_a_watch(events: list[bytes], size: int) -> None:
    async def read() -> None:
        with contextlib.suppress(ApiError):
            async for line in read_lines(in_pieces(b"\n".join(events), size), 2000, "watch"):
                kind, payload = check_event(parse_object(line, "watch"), "watch")
                assert kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
                assert isinstance(payload["metadata"], dict)

    run(read())


LOOP = asyncio.new_event_loop()


def run(work: Any) -> Any:
    return LOOP.run_until_complete(work)


HELLO = made_of(b"gate\n", b"gate ", b"checkpoint", b"{", b"}", b'"', b"\n", b"\0", b"step", b"1")
REPORTS = made_of(b"push ", b"ab12", b"\n", b"1 0.5 {", b'"acc": 1}', b"2 1 {}\n", b"end\n", b"9" * 20, b"x" * 9000)


async def talked(talk: Any, sent: bytes) -> None:
    """Let a client send these bytes to one end of a real socket pair, end, and the server serve the other end."""
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=8192)
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError, ValueError):  # as `TrialSocket` does
            await asyncio.wait_for(talk("pod", reader, writer), 20)
        writer.transport.abort()
        await asyncio.sleep(0)


@fuzz(HELLO)
def test_gates(sent: bytes) -> None:
    report_in_hello(sent)
    gates = Gates(Path("/proc"), lambda: None)
    run(talked(gates._talk, sent))
    assert not gates.waiting("pod")


@fuzz(REPORTS | REPORTS.map(lambda sent: b"push ab12\n" + sent))
def test_pushed_metrics(sent: bytes) -> None:
    queues = PushQueues()
    queue = queues.open("pod")
    run(talked(PushServer(Path("/proc"), queues)._talk, sent))
    assert len(queue.records) <= MAX_QUEUED
    numbers = [one.number for one in queue.records]
    assert numbers == sorted(set(numbers))


class Wire(asyncio.Transport):
    """The sending side of a connection: it keeps what the server writes."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.closed = bytearray(), False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def write(self, data: Any) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the length of the body."""
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


CONFIG = Config(echo, log_config=None, lifespan="off")
CONFIG.load()
WIRE = made_of(
    *(b"GET / HTTP/1.1\r\n", b"POST /filter HTTP/1.1\r\n", b"Host: a\r\n", b"\r\n", b"Content-Length: ", b"3\r\n"),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"2\r\nok\r\n",
        b"0\r\n\r\n",
        b"Expect: 100-continue\r\n",
        b"Upgrade: h2c\r\n",
    ),
    *(
        b"Upgrade: h2c\r\n",
        b"Connection: close\r\n",
        b"\0",
        b"%ff",
        b"HTTP/9.9",
        b"A: " + b"b" * 3000 + b"\r\n",
        b"-1\r\n",
        b"9" * 30,
    ),
)


@fuzz(st.sampled_from([bounded_protocol.BoundedProtocol, connections.BoundedProtocol]), st.lists(WIRE, max_size=4))
def test_bytes_on_an_http_connection(protocol: Any, pieces: list[bytes]) -> None:
    async def story() -> None:
        connection, wire = protocol(config=CONFIG, server_state=ServerState(), app_state={}), Wire()
        connection.connection_made(wire)
        for piece in pieces:
            if not wire.closed:
                connection.data_received(piece)
                await asyncio.sleep(0)
        for _ in range(4):
            await asyncio.sleep(0)
        assert not wire.sent or wire.sent.startswith(b"HTTP/1.1 ")
        assert b" 500 " not in wire.sent.split(b"\r\n")[0]
        connection.connection_lost(None)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    run(story())


TEXTS = made_of(
    b"/", b"searches", b"trials", b"what-if", b"actions/", b"stop", b"suspend", b"%2F", b"%", b"..", b"a", b"\0", b"?"
).map(lambda raw: raw.decode("latin-1"))
NAMES = ("host", "origin", "cookie", "authorization", "x-forwarded-proto", "sec-fetch-site", "content-type")
VALUES = made_of(
    *(b"Bearer ", b"a", b"podium-dashboard=", b"__Host-", b";", b'"', b"=", b"https", b"://", b"[::1]", b":80", b","),
    *(b"same-origin", b"application/x-www-form-urlencoded", b"]", b"\xb2", b"[", b"@"),
    longest=6,
)


@fuzz(
    TEXTS,
    st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=4),
    made_of(b"token=", b"a", b"&", b"%00", b"%", b"=", b";", b"x" * 2000),
)
def test_requests_of_a_browser(path: str, pairs: list[tuple[str, bytes]], body: bytes) -> None:
    ref, action = parse_path(path), parse_action(path)
    assert ref is None or parse_path(ref.path) == ref
    assert action is None or (action.namespace and action.name)
    scope = {"type": "http", "method": "POST", "headers": [(name.encode(), value) for name, value in pairs]}
    headers = Headers(scope=scope)
    answered(lambda: is_same_origin(headers), RefusedError)
    assert isinstance(is_encrypted(headers), bool)
    assert bearer_token(headers) != ""
    assert all(isinstance(value, str) for value in cookies(headers).values())
    assert isinstance(host_name(headers.get("host", "")), str)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    with contextlib.suppress(RefusedError):
        assert len(run(read_form(Request(scope, receive)))) <= MAX_FIELDS


REF = ContainerRef("n", "p", "c")


@fuzz(
    made_of(b'{"items":', b"[", b'"/var/lib/a.tar"', b"]", b"}", b"null", b"CRIU", b"not found", b"page not found"),
    st.integers(100, 599),
)
def test_answers_of_a_kubelet(body: bytes, status: int) -> None:
    text = body.decode(errors="replace")
    answered(lambda: archive_path(REF, text), MigrationError)
    assert len(str(error_from_response(REF, status, text))) <= 2000
    answered(lambda: parse_runtime(text), MigrationError)


@fuzz(st.lists(st.text(max_size=8) | st.sampled_from(["GPU-1::0", "GPU-1::1", "GPU-2::0", ""]), max_size=5))
def test_devices_that_a_kubelet_asks_for(devices: list[str]) -> None:
    given = answered(lambda: check_allocation(devices, {"GPU-1::0", "GPU-1::1", "GPU-2::0"}), AllocationRefusedError)
    assert given is None or set(given) <= {"GPU-1", "GPU-2"}


LOGS = made_of(
    *(b"2026-01-31T12:00:00.5Z ", b"stdout ", b"stderr ", b"F ", b"P ", b"F:tag ", b"\n", b"acc=0.5", b"9999-", b"\0")
)


@fuzz(st.lists(LOGS, max_size=6), st.integers(0, 2**60))
def test_files_of_a_container_runtime(pieces: list[bytes], offset: int) -> None:
    assembler, lines = Assembler(offset), []
    for piece in pieces:
        lines += assembler.feed(piece)
        assert offset <= assembler.safe <= assembler.read
    whole = Assembler(offset)
    assert whole.feed(b"".join(pieces)) == lines
    assert all(len(line.text) <= LONGEST_LINE and line.start < line.end <= assembler.read for line in lines)
