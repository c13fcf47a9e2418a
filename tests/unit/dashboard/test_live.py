"""The page while it lives: values of a real `podium run`, many browsers, slow browsers, and bounded memory."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from dashboard_scene import DEADLINE, Dashboard, Stream, dashboard, wait_until, write_objects
from local_scene import Scene

from podium_views import formatting

MAX_STREAMS = 200
SECONDS_TO_PAGE = 2.0
BOUND = 64 << 20  # bytes by which the memory may grow


def test_the_page_of_a_running_search_gets_a_new_value_within_two_seconds(tmp_path: Path) -> None:
    """The delay is that from the file of the runner to the event in the browser, for each value that arrives."""
    scene = Scene(tmp_path)
    scene.write("--pause=0.7", "--steps=1000", checkpoint=False, trials={"max": 1, "maxSteps": 1000})
    stored = scene.run_folder / "objects" / "trial-0.json"
    written: dict[str, float] = {}
    delays: dict[str, float] = {}
    with scene.running("--cpus", "1"):
        wait_until(stored.exists, "the trial is stored")
        with dashboard(str(tmp_path / "podium-runs")) as shown:
            stream = Stream(shown, "/searches/default/tiny")

            def enough() -> bool:
                best = json.loads(stored.read_text())["status"].get("best")
                if best is not None:
                    written.setdefault(formatting.number(best["value"]), time.time())
                for moment, name, html in tuple(stream.arrivals):
                    value = best_shown(html) if name == "head" else ""
                    if value in written:
                        delays.setdefault(value, moment - written[value])
                return len(delays) >= 4 and min(delays.values()) < SECONDS_TO_PAGE

            wait_until(enough, "values arrive within two seconds")
            log = shown.get("/trials/default/tiny-0").text
    print(f"delays of {len(delays)} values: {[round(delay, 2) for delay in delays.values()]} s")
    assert re.search(r"&#34;step&#34;: [0-9]", log), "the log of the trial is on its page"


def best_shown(html: str) -> str:
    found = re.search(r'id="best-value">([^<]*)<', html)
    return "" if found is None else found[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_objects(tmp_path, 60.0)
    return tmp_path


@contextmanager
def raw_stream(shown: Dashboard, path: str = "/live/searches/default/digits") -> Iterator[socket.socket]:
    """Open a stream without reading it."""
    with socket.create_connection(("127.0.0.1", shown.port), timeout=DEADLINE) as opened:
        cookie = shown.cookie["Cookie"]
        opened.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())
        yield opened


def read_until(opened: socket.socket, wanted: bytes) -> bytes:
    content = b""
    while wanted not in content:
        chunk = opened.recv(1 << 16)
        assert chunk, f"the stream ended before {wanted!r}: {content[-300:]!r}"
        content = content[-200_000:] + chunk
    return content


def read_to_newest(opened: socket.socket, wanted: bytes) -> None:
    """Read up to this text, or to the end: a browser that has read nothing for too long is disconnected."""
    content, chunk = b"", b"?"
    while chunk and wanted not in content:
        try:
            chunk = opened.recv(1 << 16)
        except ConnectionResetError:
            return
        content = content[-200_000:] + chunk


def test_two_hundred_browsers_get_a_change_and_a_further_one_is_refused(folder: Path) -> None:
    with dashboard(str(folder)) as shown, ExitStack() as stack:
        shown.get("/searches/default/digits")
        before = shown.resident()
        streams = [stack.enter_context(raw_stream(shown)) for _ in range(MAX_STREAMS)]
        for opened in streams:
            assert b" 200 " in read_until(opened, b"event: fragments").partition(b"\r\n")[0]
        with raw_stream(shown) as refused:
            assert b" 503 " in read_until(refused, b"\r\n\r\n")
        assert shown.get("/").status_code == 200, "pages are served beside the streams"
        write_objects(folder, 600.0)
        for opened in streams:
            read_until(opened, b"Succeeded")
        growth = shown.resident() - before
        print(f"200 browsers: {growth / 2**20:.1f} MiB more")
        assert growth < BOUND
        streams[0].close()
        wait_until(lambda: _accepted(shown), "a place is free again")


def _accepted(shown: Dashboard) -> bool:
    with raw_stream(shown) as opened:
        return b" 200 " in opened.recv(1 << 12)


def test_a_browser_that_does_not_read_gets_the_newest_state_and_costs_no_memory(folder: Path) -> None:
    with dashboard(str(folder)) as shown, ExitStack() as stack:
        slow = [stack.enter_context(raw_stream(shown)) for _ in range(20)]
        quick = Stream(shown, "/searches/default/digits")
        wait_until(lambda: "head" in quick.parts, "the first state")
        before = shown.resident()
        for elapsed in range(61, 181, 4):
            count = len(quick.arrivals)
            write_objects(folder, float(elapsed), {"digits": {"status": {"message": f"change {elapsed} "}}})
            wait_until(lambda count=count: len(quick.arrivals) > count, "the change arrives")
        growth = shown.resident() - before
        print(f"30 changes, 20 browsers that do not read: {growth / 2**20:.1f} MiB more")
        assert growth < BOUND
        assert "change 177 " in wait_until(lambda: "change 177 " in quick.parts["head"] and quick.parts["head"], "last")
        for opened in slow:
            read_to_newest(opened, b"change 177 ")


@pytest.mark.parametrize("head", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"GET /" + b"x" * (1 << 16)])
def test_connections_without_a_whole_request_end(folder: Path, head: bytes) -> None:
    with dashboard(str(folder)) as shown, socket.create_connection(("127.0.0.1", shown.port), DEADLINE) as opened:
        opened.sendall(head)
        with_end = b"?"
        try:
            while with_end:
                with_end = opened.recv(1 << 12)
        except ConnectionResetError:
            return
