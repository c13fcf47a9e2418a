"""`podium logs` against an API server: one attempt, a requeue, broken connections, and what has no log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from api_server import ApiServer, kubeconfig_of, serving, status, with_version

from podium_cli.exit_codes import Exit
from podium_cli.logs import cluster_log
from podium_cli.main import run
from podium_cli.samples import search_at

LINES = [(f"2026-01-15T09:30:0{second}.000000000Z", f"line {second}") for second in range(6)]
Logs = Callable[..., tuple[Exit, str, str]]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with serving() as started:
        started.put(*map(with_version, search_at(100)))
        yield started


@pytest.fixture
def logs(
    server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Logs:
    """`logs("digits-9", "-f")` runs the command and returns exit code, output and notes."""
    monkeypatch.setattr(cluster_log, "POLL_SECONDS", 0.01)
    kubeconfig = str(kubeconfig_of(server, tmp_path))

    def call(*arguments: str) -> tuple[Exit, str, str]:
        code = run(["logs", *arguments, "--kubeconfig", kubeconfig])
        return code, *capsys.readouterr()

    return call


def pod(attempt: int, state: str = "running", **details: Any) -> dict[str, Any]:
    """Return a pod of digits-9 with a sidecar behind its main container."""
    statuses = [
        {"name": "sidecar", "state": {"running": {}}},
        {"name": "train", "state": {state: details}},
    ]
    return with_version(
        {
            "kind": "Pod",
            "metadata": {"name": f"digits-9-{attempt}", "namespace": "default"},
            "spec": {"containers": [{"name": "train"}, {"name": "sidecar"}]},
            "status": {"phase": "Running", "containerStatuses": statuses},
        }
    )


def trial(server: ApiServer, **changes: Any) -> None:
    """Change the status of digits-9."""
    old = next(one for one in server.objects if one["metadata"]["name"] == "digits-9")
    server.put(old | {"status": old["status"] | changes})


def text(lines: list[tuple[str, str]] = LINES) -> str:
    return "".join(f"{time} {line}\n" for time, line in lines)


def plain(lines: list[tuple[str, str]] = LINES) -> str:
    return "".join(f"{line}\n" for _, line in lines)


def since(request: web.Request, lines: list[tuple[str, str]] = LINES) -> list[tuple[str, str]]:
    """Return the lines that a kubelet sends: from the whole second of `sinceTime`."""
    start = request.query.get("sinceTime", "")[:19]
    return [line for line in lines if line[0][:19] >= start]


def test_a_log_is_printed_without_times_unless_they_are_wanted(server: ApiServer, logs: Logs) -> None:
    queries = []

    async def log(request: web.Request) -> web.Response:
        queries.append(dict(request.query))
        return web.Response(text=text())

    server.log = log
    server.put(pod(0))
    assert logs("digits-9") == (Exit.OK, plain(), "")
    assert logs("digits-9", "--timestamps") == (Exit.OK, text(), "")
    assert logs("digits-9", "--tail", "3", "--since", "1h30m") == (Exit.OK, plain(), "")
    first = {"container": "train", "timestamps": "true"}
    assert queries == [first, first, first | {"tailLines": "3", "sinceSeconds": "5400"}]


def test_a_followed_log_continues_with_the_next_attempt_and_ends_with_the_trial(server: ApiServer, logs: Logs) -> None:
    queries = []

    async def log(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        if "digits-9-0/" in request.path:
            await response.write(text(LINES[:3]).encode())
            server.remove("Pod", "digits-9-0")  # a requeue
            trial(server, phase="Requeued", reason="SlotReclaimed", attempt=0, pod=None)
        else:
            queries.append(set(request.query))
            await response.write(text(since(request, LINES[3:])).encode())
            server.put(pod(1, "terminated", exitCode=0))
            trial(server, phase="Succeeded", attempt=1)
        return response

    def requeue(path: str) -> None:
        """Start the next attempt once the command has seen that the trial waits for it."""
        if path.endswith("/digits-9") and server.requests.count(path) == 6:
            server.put(pod(1))
            trial(server, phase="Running", reason="TimeSliceStarted", attempt=1, pod="digits-9-1")

    server.log, server.before = log, requeue
    server.put(pod(0))
    code, out, err = logs("digits-9", "-f", "--tail", "3")
    assert (code, out) == (Exit.OK, plain())
    assert "digits-9 is Requeued (SlotReclaimed" in err
    assert "podium: note: attempt 1 of digits-9\n" in err
    assert queries[0] == {"container", "timestamps", "follow"}, "--tail is for the first attempt"


def test_a_broken_connection_neither_repeats_nor_omits_a_line(
    server: ApiServer, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_log.Backoff, "pause", lambda self, after=0.0: setattr(self, "failures", 1) or 0.0)
    same = [(LINES[2][0], f"line {letter}") for letter in "abc"]
    lines = [*LINES[:2], *same, *LINES[3:]]
    calls = []

    async def log(request: web.Request) -> web.StreamResponse:
        calls.append(dict(request.query))
        if len(calls) == 2:
            return status(503, "ServiceUnavailable", "the kubelet does not answer")
        response = web.StreamResponse()
        await response.prepare(request)
        mine = since(request, lines)
        if len(calls) == 1:
            await response.write(text(mine[:4]).encode() + b"2026-01-15T09:30:02.0")
            await asyncio.sleep(0)
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(text(mine).encode())
        return response

    server.log = log
    server.put(pod(0, "terminated", exitCode=0))
    trial(server, phase="Succeeded")
    code, out, err = logs("digits-9", "-f")
    assert (code, out) == (Exit.OK, plain(lines))
    assert "the kubelet does not answer; trying again" in err
    assert calls[-1]["sinceTime"] == LINES[2][0]


def test_a_silent_log_is_followed_beyond_one_connection(
    server: ApiServer, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_log, "CONNECTION_SECONDS", 0.2)
    calls = []

    async def log(request: web.Request) -> web.StreamResponse:
        calls.append(request)
        if len(calls) < 3:  # as a kubelet: no headers before the first line
            await asyncio.sleep(5)
        server.put(pod(0, "terminated", exitCode=0))
        trial(server, phase="Succeeded")
        return web.Response(text=text())

    server.log = log
    server.put(pod(0))
    assert logs("digits-9", "-f") == (Exit.OK, plain(), "")


def test_a_server_that_refuses_for_long_ends_the_command(
    server: ApiServer, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_log, "MAX_FAILURES", 2)

    async def log(request: web.Request) -> web.StreamResponse:
        return status(500, "InternalError", "no route to the kubelet")

    server.log = log
    server.put(pod(0))
    code, out, err = logs("digits-9", "-f")
    assert (code, out) == (Exit.CLUSTER, "")
    assert err.endswith("podium: InternalError: no route to the kubelet\n")


def test_the_previous_attempt_is_read_while_its_pod_exists(server: ApiServer, logs: Logs) -> None:
    async def log(request: web.Request) -> web.Response:
        return web.Response(text=f"2026-01-15T09:30:00Z {request.path.split('/')[-2]}\n")

    server.log = log
    assert logs("digits-9", "--previous")[2].startswith("podium: NoPreviousAttempt: digits-9 is in its first attempt")
    trial(server, attempt=1, pod="digits-9-1")
    server.put(pod(0, "terminated", exitCode=1), pod(1))
    assert logs("digits-9", "-p") == (Exit.OK, "digits-9-0\n", "")
    assert logs("digits-9", "--attempt", "0", "-f") == (Exit.OK, "digits-9-0\n", "")
    assert logs("digits-9") == (Exit.OK, "digits-9-1\n", "")
    server.remove("Pod", "digits-9-0")
    code, _, err = logs("digits-9", "-p")
    assert code is Exit.NOT_FOUND
    assert "LogGone: " in err
    assert "the pod of attempt 0 does not exist any more" in err
    assert (
        "NoSuchAttempt: --attempt: digits-9 has had the attempts 0 to 1 (got 2)"
        in logs("digits-9", "--attempt", "2")[2]
    )


def test_what_has_no_log_yet_is_explained(server: ApiServer, logs: Logs) -> None:
    trial(server, phase="Pending", reason="WaitingForSlot", message="all slots are taken", pod=None)
    code, _, err = logs("digits-9")
    assert code is Exit.NOT_FOUND
    assert "LogNotReady: digits-9 is Pending (WaitingForSlot: all slots are taken); it has no pod" in err
    server.put(pod(0, "waiting", reason="PodInitializing"))
    trial(server, phase="Gated", reason="WaitingForTimeSlice", message="")
    code, _, err = logs("digits-9")
    assert code is Exit.NOT_FOUND
    assert "digits-9 is Gated (WaitingForTimeSlice); its container has not started (PodInitializing)" in err
    assert logs("digits-99")[0] is Exit.NOT_FOUND


def test_a_refusal_of_the_server_names_the_cure(server: ApiServer, logs: Logs) -> None:
    async def log(request: web.Request) -> web.Response:
        return status(403, "Forbidden", 'pods "digits-9-0" is forbidden: User "u" cannot get resource "pods/log"')

    server.log = log
    server.put(pod(0))
    code, _, err = logs("digits-9", "-f")
    assert code is Exit.CLUSTER
    assert 'cannot get resource "pods/log"; see `kubectl auth can-i`' in err


@pytest.mark.parametrize("arguments", [["--previous", "--attempt", "0"], ["--since", "5"], ["--since", "-5m"]])
def test_invalid_options_are_refused(arguments: list[str], logs: Logs) -> None:
    assert logs("digits-9", *arguments)[0] is Exit.USAGE
