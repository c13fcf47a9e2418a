"""A running `podium dashboard`: its address, its memory and its CPU time, and what a page of it costs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DEADLINE = 600.0
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Shown:
    """A running dashboard: its address and its process."""

    base: str
    token: str
    pid: int

    @property
    def headers(self) -> dict[str, str]:
        """Return the header with the token."""
        return {"Authorization": f"Bearer {self.token}"}

    def mib(self, field: str) -> float:
        """Return VmRSS or VmHWM of the process in MiB."""
        found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) / 1024

    def cpu(self) -> float:
        """Return the CPU seconds that the process has used."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICK


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall and CPU seconds of one thing."""

    what: str
    wall: float
    cpu: float


@contextmanager
def dashboard(arguments: Sequence[str]) -> Iterator[Shown]:
    """Run the command with these arguments during the block."""
    words = ["-m", "podium_cli.main", "dashboard", *arguments, "--port", "0"]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            line = run.stdout.readline()
            found = re.fullmatch(r"Dashboard: (http://127\.0\.0\.1:\d+)/\?token=(\S+)\n", line)
            if found is None:
                raise SystemExit(f"podium dashboard printed no address: {line!r}")
            yield Shown(found[1], found[2], run.pid)
        finally:
            run.send_signal(signal.SIGINT)
            run.wait(60.0)


def timed_page(shown: Shown, what: str, path: str) -> Cost:
    """Get a page for the first time."""
    began, used = time.perf_counter(), shown.cpu()
    request = urllib.request.Request(shown.base + path, headers=shown.headers)
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        answer.read()
    return Cost(what, time.perf_counter() - began, shown.cpu() - used)
