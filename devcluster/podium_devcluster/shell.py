"""Run a program with a time limit; a failure names the command and shows the end of what it said."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class CommandError(RuntimeError):
    """A program failed, was not found or ran past its limit."""

    def __init__(self, argv: Sequence[str], why: str, output: str) -> None:
        self.argv, self.why, self.output = tuple(argv), why, output
        shown = " ".join(argv)
        shown = shown if len(shown) <= 300 else shown[:297] + "..."
        end = "\n".join(output.strip().splitlines()[-15:])
        super().__init__(f"`{shown}` {why}" + (f":\n{end}" if end else ""))


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
) -> str:
    """Standard output of the program. With check=False a failure returns what it printed so far."""
    try:
        done = subprocess.run(
            argv, input=stdin, env=env, cwd=cwd, timeout=timeout, capture_output=True, text=True, errors="replace"
        )
    except FileNotFoundError as error:
        raise CommandError(argv, "was not found", "") from error
    except subprocess.TimeoutExpired as error:
        said = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else (error.stderr or "")
        raise CommandError(argv, f"did not end within {timeout:g} s", said) from error
    if check and done.returncode:
        raise CommandError(argv, f"failed with exit status {done.returncode}", done.stderr or done.stdout)
    return done.stdout


def succeeds(argv: Sequence[str], timeout: float = 10.0) -> bool:
    """Whether the program exists, ends in time and says 0."""
    try:
        run(argv, timeout=timeout)
    except CommandError:
        return False
    return True
