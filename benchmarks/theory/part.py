"""The page and the command line that all parts of bench-theory share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.command_line import Parser
from benchmarks.output import add_out, command, machine, result_line, write_page
from benchmarks.theory.bars import missed


def page_path(out: Path, part: str) -> Path:
    """Return the page of a part; its plot is beside it, as .png."""
    return out / f"bench-theory-{part}.md"


def write(path: Path, title: str, tables: str, caption: str, figures: dict[str, Any]) -> None:
    """Write the page of a part: heading, command, tables, plot and RESULT line."""
    write_page(
        path,
        f"# bench-theory: {title}\n\n`{command()}` on {machine()}.\n\n{tables}\n\n![{caption}]({path.stem}.png)\n\n"
        f"```\n{result_line(figures)}\n```\n",
    )


def run_alone(
    part: str,
    about: str | None,
    run: Callable[..., dict[str, Any]],
    add_options: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> int:
    """Run one part alone, print its page and figures, and return the exit status (1: a missed bar).

    `add_options` adds the options that are keywords of `run`.
    """
    parser = Parser(about)
    add_options(parser)
    add_out(parser)
    options = parser.parse_args()
    figures = run(**vars(options))
    print(page_path(options.out, part).read_text(encoding="utf-8"))
    for line in missed(part, figures):
        print(line, file=sys.stderr)
    print(result_line(figures))
    return 1 if missed(part, figures) else 0
