"""The real `podium dashboard` in a process of its own, objects for it, and readers of its stream and its HTML."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx

from podium_cli.samples import search_at

DEADLINE = 300.0  # seconds for any condition; a busy machine must not cause failures


def merge(target: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Put the changes into an object, field by field."""
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(target.get(key), dict):
            merge(target[key], value)
        else:
            target[key] = value


def write_objects(
    folder: Path, elapsed: float = 100.0, changes: Mapping[str, Mapping[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Write the synthetic search as kubectl would save it, in one atomic step; return the objects."""
    objects = search_at(elapsed)
    for one in objects:
        merge(one, (changes or {}).get(one["metadata"]["name"], {}))
    folder.mkdir(exist_ok=True)
    aside = folder / "all.new"
    aside.write_text(json.dumps({"kind": "List", "items": objects}, default=str))
    aside.replace(folder / "all.json")
    return objects


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A running dashboard: its address, its token and its process."""

    base: str
    token: str
    pid: int

    @property
    def port(self) -> int:
        """Return its port."""
        return int(self.base.rpartition(":")[2])

    @property
    def cookie(self) -> dict[str, str]:
        """Return the header of a browser that has opened the address."""
        return {"Cookie": f"podium-dashboard-{self.port}={self.token}"}

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Get a page as such a browser."""
        return httpx.get(self.base + path, headers={**self.cookie, **headers}, timeout=DEADLINE)

    def resident(self) -> int:
        """Return the bytes of memory that the process uses."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024


@contextmanager
def dashboard(*words: str, environ: Mapping[str, str] | None = None) -> Iterator[Dashboard]:
    """Run `podium dashboard` with these words on a free port during the block."""
    command = [sys.executable, "-m", "podium_cli.main", "dashboard", *words, "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environ or {})}
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"Dashboard: (http://127\.0\.0\.1:\d+)/\?token=(\S+)\n", line)
            assert found is not None, line + (process.stderr.read() if process.stderr else "")
            yield Dashboard(found[1], found[2], process.pid)
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, errors
    assert errors == ""


class Stream:
    """The events of one page, read by a thread, with the time at which each arrived."""

    def __init__(self, shown: Dashboard, path: str) -> None:
        self.parts: dict[str, str] = {}
        self.arrivals: list[tuple[float, str, str]] = []  # time, name of the part, HTML
        self.status = 0
        self._shown, self._path = shown, path
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        url = f"{self._shown.base}/live{self._path}"
        try:
            with httpx.stream("GET", url, headers=self._shown.cookie, timeout=DEADLINE) as response:
                self.status = response.status_code
                for line in response.iter_lines():
                    if line.startswith("data: ["):
                        for one in json.loads(line.removeprefix("data: ")):
                            self.parts[one["name"]] = one["html"]
                            self.arrivals.append((time.time(), one["name"], one["html"]))
        except httpx.HTTPError:
            return  # the server was stopped


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Return the first true value of the condition."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"never: {what}")


class Elements(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.text += data

    def names(self) -> set[str]:
        """Return the names of all elements."""
        return {name for name, _ in self.found}
