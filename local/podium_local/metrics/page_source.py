"""A page of metrics that a trial serves on this machine, in Prometheus' text format.

Only a socket at which a process of the trial itself listens is read: another program, or a trial of another search,
may have the port. Each read has a thread of its own and ends within a time limit, so that a trial that does not answer
delays nothing.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote

from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.batch import STREAM, Batch, LogLine, Position
from podium_core.sources.page_reader import FETCH_SECONDS, HEADERS, MAX_PAGE, TOO_LONG, TOO_SLOW, PageReader
from podium_local.processes.listening import listening_address
from podium_local.processes.process_tree import all_processes, tree

RETRY_SECONDS = 1.0  # until the next try while the trial does not listen yet
PIECE = 1 << 16
_SAFE = "/?&=%:@!$'()*+,;~"  # characters of a path that are sent as they are


class PageSource:
    """Source of the samples on the page of one attempt."""

    def __init__(self, metrics: MetricsConfig, answering: Callable[[], int | None]) -> None:
        """`answering` returns the pid of the attempt's process; None while it cannot answer."""
        self._pages = PageReader(metrics)
        self.parse = self._pages.parse
        self.position = Position()  # a page has only its present values
        self._metrics = metrics
        self._answering = answering
        self._fetch: PageFetch | None = None
        self._next_at = 0.0

    def read(self, now: float, *, complete: bool) -> Batch:
        """Return what the last read of the page yielded, and begin the next one if it is due."""
        pid, at, fetch = self._answering(), time.monotonic(), self._fetch
        lines: tuple[LogLine, ...] = ()
        if fetch is not None and fetch.done.is_set():
            self._fetch = None
            lines = self._taken(fetch, now, suspended=pid is None)
        elif fetch is not None and at >= fetch.deadline:
            fetch.give_up()
        if self._fetch is None and pid is not None and not complete and at >= self._next_at:
            self._next_at = at + self._metrics.period_seconds
            self._fetch = PageFetch(self._metrics.port, self._metrics.path, pid)
        return Batch(lines, self.position, False)

    def explain(self) -> str:
        """Return what was read and why it yields no value."""
        return self._pages.explain(self._metrics.port)

    def close(self) -> None:
        """Give up the read under way."""
        if self._fetch is not None:
            self._fetch.give_up()
            self._fetch = None

    def _taken(self, fetch: PageFetch, now: float, *, suspended: bool) -> tuple[LogLine, ...]:
        if fetch.page is None:
            if not suspended:  # otherwise it could not answer any more
                self._pages.trouble = fetch.trouble
            if not fetch.listening:
                self._next_at = time.monotonic() + RETRY_SECONDS
            return ()
        line = self._pages.read(fetch.page)
        return () if line is None else (LogLine(now, STREAM, line, 0, 0),)


class PageFetch:
    """One read of a page, in a thread.

    After `done`, `page` is the page, or `trouble` tells why there is none.
    """

    def __init__(self, port: int, path: str, pid: int) -> None:
        self.page: bytes | None = None
        self.trouble = ""
        self.listening = True
        self.done = threading.Event()
        self.deadline = time.monotonic() + FETCH_SECONDS
        self._connection: http.client.HTTPConnection | None = None
        self._given_up = False
        threading.Thread(target=self._run, args=(port, path, pid), name="metrics-page", daemon=True).start()

    def give_up(self) -> None:
        """End the read: the thread notices that the connection is closed."""
        self._given_up = True
        connection = self._connection
        if connection is not None and isinstance(connection.sock, socket.socket):
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _run(self, port: int, path: str, pid: int) -> None:
        try:
            self._read(port, path, pid)
        except TimeoutError:
            self.trouble = TOO_SLOW
        except OSError as error:
            self.trouble = TOO_SLOW if self._given_up else f"connection failed: {error.strerror or error}"
        except Exception as error:  # a page may hold anything: the next one may be readable
            self.trouble = TOO_SLOW if self._given_up else f"the answer is not HTTP ({type(error).__name__})"
        finally:
            if self._connection is not None:
                self._connection.close()
            self.done.set()

    def _read(self, port: int, path: str, pid: int) -> None:
        address = listening_address(port, tree(pid, all_processes()))
        if address is None:
            self.listening = False
            self.trouble = f"no process of the trial listens at port {port}"
            return
        self._connection = http.client.HTTPConnection(address, port, timeout=FETCH_SECONDS)
        self._connection.request("GET", quote(path, safe=_SAFE), headers=HEADERS)
        response = self._connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            self.trouble = f"the answer is HTTP {response.status}, not 200"
            return
        page = bytearray()
        while piece := response.read1(PIECE):
            page += piece
            if len(page) > MAX_PAGE:
                self.trouble = TOO_LONG
                return
            if time.monotonic() > self.deadline:
                self.trouble = TOO_SLOW
                return
        if self._given_up:  # the end of the connection looks like the end of the page
            self.trouble = TOO_SLOW
            return
        self.page = bytes(page)
