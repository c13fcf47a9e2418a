"""One line a step, with its seconds; a spinner on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.status import Status

QUIET_SECONDS = 10.0
"""Without a terminal a long step says where it is this often."""


class Step:
    """A step that is under way. `detail` shows its latest line; `note` replaces what the last line says."""

    def __init__(self, title: str, console: Console, status: Status | None) -> None:
        self.title, self._console, self._status = title, console, status
        self._started = self._spoken = time.monotonic()
        self._note = ""
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def summary(self) -> str:
        return f"{self.title}{': ' + self._note if self._note else ''}"

    def note(self, text: str) -> None:
        self._note = text

    def detail(self, line: str) -> None:
        line = line.strip()[:100]
        with self._lock:
            if self._status is not None:
                self._status.update(f"{self.title} [{self.seconds:.0f} s] {line}".replace("[", "\\["))
            elif time.monotonic() - self._spoken >= QUIET_SECONDS:
                self._spoken = time.monotonic()
                self._console.print(f"  ... {self.title} {self.seconds:.0f} s: {line}", markup=False, highlight=False)


class Progress:
    """Prints to standard error, so that standard output stays free for what was asked for."""

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        self._console = Console(file=stream or sys.stderr, quiet=quiet, soft_wrap=True)
        self._busy = False

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Only the outermost step has the spinner: rich allows one at a time."""
        live = self._console.is_terminal and not self._busy
        if live:
            self._busy = True
            with self._console.status(title) as status:
                try:
                    yield from self._timed(Step(title, self._console, status))
                finally:
                    self._busy = False
        else:
            yield from self._timed(Step(title, self._console, None))

    def _timed(self, step: Step) -> Iterator[Step]:
        try:
            yield step
        except BaseException:
            self.say(f"FAIL {step.summary}  {step.seconds:.1f} s")
            raise
        self.say(f"  ok {step.summary}  {step.seconds:.1f} s")
