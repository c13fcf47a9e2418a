"""Command line of a benchmark: its docstring is the help, and a wrong option ends it with one line."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Parser of a benchmark's options. `about`: the help, shown as it is written."""

    def __init__(self, about: str | None) -> None:
        super().__init__(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.register("type", int, whole_number)
        self.register("type", float, number)

    def error(self, message: str) -> NoReturn:
        """End the program with exit code 2 and one line, without the usage."""
        self.exit(2, f"{self.prog}: {message}; --help lists the options\n")


def whole_number(text: str) -> int:
    """Return the whole number in `text`; raises ArgumentTypeError for anything else."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}; give a whole number") from None


def number(text: str) -> float:
    """Return the number in `text`; raises ArgumentTypeError for anything else."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}; give a number") from None
