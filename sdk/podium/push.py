"""Reports of a training script to Podium's agent over a Unix socket; `podium.trial.report` uses it.

It needs only the standard library and Python 3.8 or newer. A report returns at once: a thread sends it, and keeps it
until the agent has stored it in the trial's status. Without an agent at most KEPT reports are kept, of which every
second one is dropped then. The protocol is documented in podium_agent/observe/sources/push_server.py.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import socket
import sys
import threading
import time
from typing import NamedTuple

__all__ = ["Push", "push"]

KEPT = 1000  # reports in memory
MAX_REPORT = 4096  # bytes of one report
PAUSES = (0.1, 0.3, 1.0, 3.0)  # seconds between two attempts to connect
EXIT_SECONDS = 5.0  # that the end of the script waits for the agent
CONNECT_SECONDS = 2.0


class _Report(NamedTuple):
    number: int
    at: float
    text: str


class Push:
    """Reports of this process; `session` tells them from those of other processes of the trial."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._session = os.urandom(8).hex()
        self._owner = os.getpid()
        self._changed = threading.Condition()
        self._reports: list[_Report] = []
        self._number = 0
        self._ending = False
        self._warned = False
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._thread: threading.Thread | None = None

    def add(self, text: str) -> None:
        """Keep a report and wake the thread that sends it."""
        if len(text) > MAX_REPORT:
            raise ValueError(f"ReportTooLong: {len(text)} bytes in one report; report fewer metrics at a time")
        with self._changed:
            self._number += 1
            self._reports.append(_Report(self._number, time.monotonic(), text))
            if len(self._reports) > KEPT:
                self._reports = [*self._reports[: KEPT // 2 : 2], *self._reports[KEPT // 2 :]]
                if not self._warned:
                    self._warned = True
                    text = f"podium.trial: the agent does not answer at {self._path}; dropping some reports"
                    print(text, file=sys.stderr)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="podium-push", daemon=True)
                self._thread.start()
        self._ring()

    def finish(self, seconds: float = EXIT_SECONDS) -> bool:
        """Wait until all reports are stored; return whether they are."""
        if os.getpid() != self._owner:
            return True
        end = time.monotonic() + seconds
        with self._changed:
            self._ending = True
            self._ring()
            while self._reports and (left := end - time.monotonic()) > 0.0:
                self._changed.wait(left)
            return not self._reports

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # it has been woken already
            self._wake.send(b"x")

    def _run(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                    connection.settimeout(CONNECT_SECONDS)
                    connection.connect(self._path)
                    connection.sendall(f"push {self._session}\n".encode())
                    self._talk(connection)
            except OSError:
                pass  # no agent: it is being restarted, or this is not a trial
            failures = 0 if time.monotonic() - began > PAUSES[-1] else failures + 1
            time.sleep(PAUSES[min(failures, len(PAUSES)) - 1] if failures else PAUSES[0])

    def _talk(self, connection: socket.socket) -> None:
        """Send reports and read acknowledgements until the connection ends; raises OSError."""
        sent, received, asked = -1, b"", False
        while True:
            readable, _, _ = select.select([connection, self._woken], [], [])
            if self._woken in readable:
                self._woken.recv(4096)
            if connection in readable:
                data = connection.recv(4096)
                if not data:
                    return
                *lines, received = (received + data[-256:]).split(b"\n")
                for line in lines:
                    if line.startswith(b"stored ") and line[7:].isdigit():
                        sent = max(sent, int(line[7:]))
                        self._stored(int(line[7:]))
            if sent < 0:
                continue  # the first answer tells what an earlier agent stored
            with self._changed:
                waiting = [report for report in self._reports if report.number > sent]
                ending = self._ending and bool(self._reports)
            now = time.monotonic()
            for report in waiting:
                connection.sendall(f"{report.number} {now - report.at:.3f} {report.text}\n".encode())
                sent = report.number
            if ending and (waiting or not asked):
                asked = True
                connection.sendall(b"end\n")

    def _stored(self, number: int) -> None:
        with self._changed:
            self._reports = [report for report in self._reports if report.number > number]
            self._changed.notify_all()


_push: Push | None = None
_lock = threading.Lock()


def _forked() -> None:
    """Begin again in a forked process: a thread of its parent may have held the lock."""
    global _push, _lock
    _push, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def push(path: str, text: str) -> None:
    """Send one report, a JSON object, to the agent's socket."""
    global _push
    with _lock:
        if _push is None:
            _push = Push(path)
            atexit.register(_push.finish)
        here = _push
    here.add(text)
