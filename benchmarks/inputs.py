"""Recorded curves and traces that benchmarks read: those of `benchmarks/data`, or files that the user names.

A file that is missing or malformed ends the benchmark with one line that names the file and the option.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from podium_simulator.traces.trace import Trace, TraceError, bundled_trace, load_all

DATA = Path(__file__).resolve().parent / "data"
CURVES = DATA / "curves"
TASKSET = tuple(CURVES / f"taskset-imdb-{name}.jsonl.gz" for name in (
    "patch128-lstm128-avg-bs64", "patch32-gru128-bs128", "patch32-irnn64-relu-last-bs128", "patch32-vrnn128-tanh-bs128",
))  # fmt: skip
PODS = DATA / "openb" / "openb_pod_list_default.csv"
NODES = DATA / "openb" / "openb_node_list_gpu_node.csv"
PHILLY = DATA / "philly" / "philly.csv.gz"
EXAMPLE = "example"  # stands for the curves of examples/digits, which are part of the simulator


def add_curves(parser: argparse.ArgumentParser, default: Sequence[Path], what: str) -> None:
    """Add `--curves`: files, folders, or the word `example`."""
    text = f"files or folders of recorded curves, or `{EXAMPLE}` for those of examples/digits (default: {what})"
    parser.add_argument("--curves", nargs="+", type=Path, default=list(default), metavar="PATH", help=text)


def curve_files(given: Sequence[Path]) -> tuple[Path, ...]:
    """Return `given` as paths that exist; empty for the example's curves.

    Ends the program where a path is missing.
    """
    if [str(path) for path in given] == [EXAMPLE]:
        return ()
    for path in given:
        require(path, "--curves (make: CURVES=)")
        if path.is_dir() and not list(path.glob("*.jsonl*")):
            raise SystemExit(f"{path}: no file *.jsonl or *.jsonl.gz; name another with --curves (make: CURVES=)")
    return tuple(given)


def load_curves(given: Sequence[Path]) -> tuple[Trace, ...]:
    """Return the traces of these paths; for none, the example's.

    Ends the program where one cannot be read.
    """
    try:
        return load_all(given) if given else (bundled_trace(),)
    except (TraceError, OSError) as error:
        raise SystemExit(f"--curves: {error}") from None


def positive(text: str) -> int:
    """Return a number of repetitions, for `type=` of an option; raises ArgumentTypeError below 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; give a whole number of 1 or more")
    return number


def require(path: Path, option: str) -> Path:
    """Return `path`; end the program where it does not exist. `option`: which option names another file."""
    if not path.exists():
        raise SystemExit(
            f"{path}: no such file or folder; name another with {option}, or restore it from the repository"
        )
    return path


def require_file(path: Path, option: str) -> Path:
    """Return `path`; end the program where it is missing or a folder.

    `option`: which option names another file.
    """
    if require(path, option).is_dir():
        raise SystemExit(f"{path}: a folder; name a file with {option}")
    return path
