"""Progress of long commands: on a terminal after a moment, nowhere else."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from podium_cli import progress as module
from podium_cli.progress import progress


class Screen(io.StringIO):
    """A file that signals the first time that a text was written to it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.seen = text, threading.Event()

    def write(self, part: str) -> int:
        """Write a part."""
        count = super().write(part)
        if self.text in self.getvalue():
            self.seen.set()
        return count


def terminal(screen: io.StringIO) -> Console:
    return Console(file=screen, force_terminal=True, width=80, color_system=None)


@pytest.mark.parametrize(("total", "text"), [(2, "1/2"), (None, "simulating")])
def test_a_long_command_shows_its_progress_and_removes_it(
    total: int | None, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DELAY", 0.0)
    screen = Screen(text)
    with progress("simulating", total, terminal(screen)) as advance:
        advance()
        assert screen.seen.wait(20)
    assert "simulating" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[2K"), "the line is erased at the end"


def test_a_short_command_and_a_pipe_show_nothing() -> None:
    screen = io.StringIO()
    with progress("simulating", 2, terminal(screen)) as advance:
        advance()
    assert "simulating" not in screen.getvalue()
    with progress("simulating", 2, Console(file=screen)) as advance:
        advance()
    assert "simulating" not in screen.getvalue()


def test_a_command_that_fails_removes_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELAY", 0.0)
    screen = Screen("simulating")

    def fail() -> None:
        with progress("simulating", 2, terminal(screen)):
            assert screen.seen.wait(20)
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        fail()
    assert screen.getvalue().endswith("\x1b[2K")
