"""Where benchmarks write their pages, and the facts that pages state: command, machine, commit."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path("benchmarks", "results")  # in the folder from which the benchmark is called
Say = Callable[[str], None]


def add_out(parser: argparse.ArgumentParser) -> None:
    """Add `--out`, the folder of the result files."""
    text = f"folder for the result files (default: {RESULTS} in the current folder)"
    parser.add_argument("--out", type=_folder, default=str(RESULTS), metavar="FOLDER", help=text)


def _folder(text: str) -> Path:
    """Return the folder; raise ArgumentTypeError where no file could be written, which is better known at the start."""
    path = Path(text)
    above = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    if not above.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: {above} is a file; name a folder (make: OUT=)")
    if not os.access(above, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text}: {above} is not writable; name another folder (make: OUT=)")
    return path


def write_page(path: Path, text: str) -> None:
    """Write `text` to `path`; create the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def result_line(result: Mapping[str, Any]) -> str:
    """Return the last line that every benchmark prints."""
    return f"RESULT {json.dumps(result)}"


def command() -> str:
    """Return the command that repeats this run, without its folder: `python -m MODULE OPTIONS`."""
    spec = sys.modules["__main__"].__spec__
    name = Path(sys.argv[0]).stem if spec is None else spec.name
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_out(parser)
    _, options = parser.parse_known_args(sys.argv[1:])
    return shlex.join(["python", "-m", name, *options])


def machine() -> str:
    """Return the number of cores and the operating system."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.release()}"


def commit() -> str:
    """Return the short hash of the checked-out commit; empty outside of a Git repository."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip()
