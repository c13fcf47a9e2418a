"""Reader that skips a line on which the parser fails, so that one line never keeps the later ones unread.

A trial may print anything, and a defect of the parser shows on a line that no test has foreseen. The agent, the
operator and local mode read logs through it. The fuzz tests do not, so that they see the error.
"""

from __future__ import annotations

from podium_core.logs.readings import ParsedLine, Reader

MAX_CONSECUTIVE = 1000  # failing lines, after which the error of the next one is raised


class SkippingReader:
    """Reader of lines. `skipped`: number of lines on which the parser failed."""

    def __init__(self, parse: Reader, max_consecutive: int | None = None) -> None:
        """Raise the parser's error once it has failed on this many consecutive lines; None: never."""
        self.parse = parse
        self.skipped = 0
        self._max_consecutive = max_consecutive
        self._consecutive = 0
        self._last_error = ""

    def __call__(self, line: str) -> list[ParsedLine]:
        """Return what the line reports; nothing for a line on which the parser fails."""
        try:
            parsed = self.parse(line)
        except MemoryError:  # the process is short of memory: the line may be read later
            raise
        except Exception as error:
            if self._max_consecutive is not None and self._consecutive >= self._max_consecutive:
                raise
            self._consecutive += 1
            self.skipped += 1
            self._last_error = repr(error)
            return []
        self._consecutive = 0
        return parsed

    def explain(self) -> str:
        """Return how many lines were skipped, and the last error; empty if there were none."""
        if not self.skipped:
            return ""
        lines = "1 line and skipped it" if self.skipped == 1 else f"{self.skipped} lines and skipped them"
        return f"the reader failed on {lines}, at last for {self._last_error}"
