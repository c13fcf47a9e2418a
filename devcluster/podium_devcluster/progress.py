"""Progress of builds and starts on standard error: one line per step, with a spinner on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.text import Text

QUIET_SECONDS = 10.0
"""Without a terminal, the shortest time between two lines of one step."""
DETAIL_WIDTH = 80


def duration(seconds: float) -> str:
    """Return a duration as people write it: `42 s`, `3 min`, `2 min 05 s`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02} s" if rest else f"{minutes} min"


class Step:
    """A step that is under way.

    `detail` shows its latest line. `note` adds a text to its last line. `skip` marks it as skipped, for example
    because a download was not possible.
    """

    def __init__(
        self, title: str, console: Console, *, expected: float | None = None, outer: Step | None = None
    ) -> None:
        """`expected`: typical duration in seconds.

        `outer`: the step that this one is a part of; it shows the details.
        """
        self.title, self.expected, self.outer = title, expected, outer
        self.skipped = False
        self._console = console
        self._started = self._last_line = time.monotonic()
        self._note = self._detail = ""
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """The elapsed time in seconds."""
        return time.monotonic() - self._started

    @property
    def summary(self) -> str:
        """The title with the note."""
        return f"{self.title}{': ' + self._note if self._note else ''}"

    @property
    def elapsed(self) -> str:
        """The elapsed time, and the typical one where it is known: `42 s of about 2 min 30 s`."""
        expected = f" of about {duration(self.expected)}" if self.expected else ""
        return f"{duration(self.seconds)}{expected}"

    def note(self, text: str) -> None:
        """Set the text after the title in the step's last line."""
        self._note = text

    def skip(self, reason: str) -> None:
        """Mark the step as skipped: its last line starts with `skip` instead of `ok` and gives the reason."""
        self.skipped = True
        self._note = reason

    def detail(self, line: str) -> None:
        """Show what the step does now."""
        if self.outer is not None:
            self.outer.detail(line)
            return
        with self._lock:
            self._detail = line.strip()[:DETAIL_WIDTH]
            quiet = time.monotonic() - self._last_line
            if not self._console.is_terminal and quiet >= QUIET_SECONDS:
                self._last_line = time.monotonic()
                self._console.print(f"  ... {self.line()}", markup=False, highlight=False)

    def line(self) -> str:
        """Return title, elapsed time and detail."""
        detail = f": {self._detail}" if self._detail else ""
        return f"{self.title}  {self.elapsed}{detail}"

    def __rich__(self) -> Text:
        """Return the text beside the spinner; rich asks for it at each frame, so the elapsed time moves."""
        return Text(self.line(), no_wrap=True, overflow="ellipsis")


class Progress:
    """Prints to standard error, so that standard output carries results only."""

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        self._console = Console(file=stream or sys.stderr, quiet=quiet, soft_wrap=True)
        self._current: Step | None = None

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False, highlight=False)

    @contextmanager
    def step(self, title: str, expected: float | None = None) -> Iterator[Step]:
        """Run a step and print how it ended: `ok`, `skip` or `FAIL`.

        A step inside another one shares its spinner and prints a line only if it fails or is skipped.
        """
        step = Step(title, self._console, expected=expected, outer=self._current)
        if self._current is not None:
            yield from self._finish(step)
            return
        self._current = step
        try:
            if self._console.is_terminal:
                with self._console.status(step):
                    yield from self._finish(step)
            else:
                yield from self._finish(step)
        finally:
            self._current = None

    def _finish(self, step: Step) -> Iterator[Step]:
        try:
            yield step
        except BaseException:
            self.say(f"FAIL {step.summary}  {step.seconds:.1f} s")
            raise
        if step.skipped:
            self.say(f"skip {step.summary}")
        elif step.outer is None:
            self.say(f"  ok {step.summary}  {step.seconds:.1f} s")
