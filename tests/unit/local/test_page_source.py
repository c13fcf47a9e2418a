"""Pages of metrics on this machine: only the trial's own, within a size and a time."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.page_reader import FETCH_SECONDS, MAX_PAGE
from podium_local.metrics.page_source import PageSource
from podium_local.processes.listening import free_port, listening_address

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
Answer = Callable[[socket.socket], None]


@contextmanager
def served(answer: Answer, address: str = "127.0.0.1") -> Iterator[int]:
    """Accept connections in this process, and yield the port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.recv(1 << 16)
                        answer(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def source(port: int, pid: int | None = None) -> PageSource:
    given = {"metric": "acc", "direction": "maximize", "container": "main", "source": "prometheus", "path": "/metrics"}
    return PageSource(MetricsConfig.model_validate(given | {"port": port}), lambda: pid or os.getpid())


def read_once(page: PageSource) -> list[str]:
    """Return the lines of one read of the page, and fail if it takes much longer than it may."""
    end = time.monotonic() + 30 * FETCH_SECONDS
    page.read(1.0, complete=False)
    while page._fetch is not None:
        assert time.monotonic() < end
        lines = page.read(2.0, complete=True).lines
        if lines:
            assert [line.time for line in lines] == [2.0]
            return [line.text for line in lines]
        time.sleep(0.01)
    return []


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "0.0.0.0"])
def test_a_page_is_read_at_the_address_where_the_trial_listens(address: str) -> None:
    try:
        with served(lambda one: one.sendall(HEAD + b"step 3\nacc 0.5\n"), address) as port:
            page = source(port)
            assert read_once(page) == ['{"step": 3.0, "values": {"acc": 0.5}}']
            assert page.explain() == ""
    except OSError:
        if address != "::1":
            raise
        pytest.skip("this machine has no IPv6")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda one: one.sendall(b"HTTP/1.1 404 No\r\n\r\n"), "the answer is HTTP 404"),
        (lambda one: one.sendall(b"SSH-2.0\r\n"), "the answer is not HTTP"),
        (lambda one: one.sendall(HEAD + b"x" * (MAX_PAGE + 1)), f"more than {MAX_PAGE} bytes"),
        (lambda one: one.sendall(HEAD + b"loss 1\n"), "the page has no sample acc"),
    ],
)
def test_a_page_that_cannot_be_read_is_explained(answer: Answer, why: str) -> None:
    with served(answer) as port:
        page = source(port)
        assert read_once(page) == []
        assert why in page.explain()
        assert f"port {port}" in page.explain()


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nX: ", HEAD])
def test_a_page_that_comes_slowly_ends_in_time(begin: bytes) -> None:
    ended = threading.Event()

    def drip(one: socket.socket) -> None:
        one.sendall(begin)
        while not ended.wait(0.1):
            one.sendall(b"a")

    try:
        with served(drip) as port:
            page, since = source(port), time.monotonic()
            assert read_once(page) == []
            assert time.monotonic() - since < 10 * FETCH_SECONDS
            assert "no complete answer within 2 s" in page.explain()
            ended.set()
    finally:
        ended.set()


def test_a_page_of_another_program_is_not_read() -> None:
    other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        with served(lambda one: one.sendall(HEAD + b"step 3\nacc 0.5\n")) as port:
            page = source(port, other.pid)
            assert read_once(page) == []
            assert f"no process of the trial listens at port {port}" in page.explain()
    finally:
        other.kill()
        other.wait()


def test_a_trial_that_cannot_answer_is_not_asked() -> None:
    page = PageSource(source(1)._metrics, lambda: None)
    assert page.read(1.0, complete=False).lines == ()
    assert page._fetch is None


def test_a_free_port_is_free() -> None:
    port = free_port(())
    assert listening_address(port, [os.getpid()]) is None
    assert free_port({port}) != port
