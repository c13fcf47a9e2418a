"""What the parts of bench-theory share: how a page of results is written, and the command line of a part that is run
alone. Called by bench_theory_*.py.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from theory_bars import missed

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True, slots=True)
class Size:
    """The option that makes a part smaller, for a quick try: a keyword of its `run`."""

    option: str
    default: int
    says: str


def page(part: str) -> Path:
    """Where the part's tables are; its plot lies beside them, as .png."""
    return RESULTS / f"bench-theory-{part}.md"


def write(part: str, title: str, tables: str, plot: str, found: dict[str, Any]) -> None:
    """The page: heading, the command that repeats it, tables, plot (by its caption), RESULT line."""
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}"
    command = " ".join(["python", str(Path("benchmarks", Path(sys.argv[0]).name)), *sys.argv[1:]])
    path = page(part)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"# bench-theory: {title}\n\n`{command}` on {machine}.\n\n{tables}\n\n![{plot}]({path.stem}.png)\n\n"
        f"```\nRESULT {json.dumps(found)}\n```\n"
    )


def alone(part: str, about: str | None, run: Callable[..., dict[str, Any]], size: Size | None = None) -> int:
    """Runs the part, prints its page and its figures. The exit code: 1 where it misses one of its bars."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if size is not None:
        text = f"{size.says} (default: {size.default})"
        parser.add_argument(f"--{size.option}", type=int, default=size.default, help=text)
    found = run(**vars(parser.parse_args()))
    print(page(part).read_text())
    for line in missed(part, found):
        print(line, file=sys.stderr)
    print(f"RESULT {json.dumps(found)}")
    return 1 if missed(part, found) else 0
