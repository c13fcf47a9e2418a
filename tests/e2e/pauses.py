"""How long trials are frozen and GPUs idle, by the cgroups and the records of the scripts, which are not Podium's."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

PERIOD = 0.1  # seconds between two looks


@dataclass(frozen=True, slots=True)
class Span:
    """A time with its bounds in seconds of the monotonic clock, which containers share with their node."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def meets(self, other: Span) -> bool:
        return self.start < other.end and self.end > other.start


def longest(spans: Iterable[Span], within: Span) -> float:
    """Return the seconds of the longest span that is at least partly within a time; 0 without one."""
    return max((span.seconds for span in spans if span.meets(within)), default=0.0)


def excess(spans: Iterable[Span], usual: float, causes: Sequence[Span]) -> float:
    """Return the most seconds by which a span is longer than usual and the causes that it meets; at least 0."""
    explained = ((span, usual + sum(cause.seconds for cause in causes if cause.meets(span))) for span in spans)
    return max((max(0.0, span.seconds - seconds) for span, seconds in explained), default=0.0)


def between(moments: Iterable[float]) -> list[Span]:
    """Return the spans between successive moments."""
    return [Span(one, other) for one, other in itertools.pairwise(sorted(moments))]


class FreezeWatch:
    """Looks at the cgroups of trials in a thread while it is entered.

    `files`: the file with the state of each trial's cgroup, and the content that means thawed.
    """

    def __init__(self, files: Mapping[Path, str]) -> None:
        self._files = files
        self._since: dict[Path, float] = {}
        self._over: list[Span] = []
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="freeze-watch", daemon=True)

    def __enter__(self) -> FreezeWatch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def spans(self) -> list[Span]:
        """The times in which a trial was frozen, also those that have not ended."""
        with self._lock:
            now = time.monotonic()
            return [*self._over, *(Span(since, now) for since in self._since.values())]

    def _run(self) -> None:
        while not self._ended.wait(PERIOD):
            for file, thawed in self._files.items():
                self._look(file, thawed)

    def _look(self, file: Path, thawed: str) -> None:
        try:
            frozen = file.read_text().strip() != thawed
        except OSError:  # the container has ended
            frozen = False
        with self._lock:
            if frozen:
                self._since.setdefault(file, time.monotonic())
            elif file in self._since:
                self._over.append(Span(self._since.pop(file), time.monotonic()))
