"""What all fuzz targets share: the number of cases, the CPU time that a case may take, and a folder for its files."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CASES = int(os.environ.get("PODIUM_FUZZ_CASES", "0"))
CPU_SECONDS = 5.0  # of one case; a usual one takes a few milliseconds, a quadratic reader minutes
LIMITS = settings(
    max_examples=CASES or 200,
    derandomize=not CASES,  # the short form always tries the same cases
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def fuzz(*strategies: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]) -> Callable[[Any], Any]:
    """Make a test a fuzz target: many cases, each with a limit of CPU time."""

    def decorate(test: Callable[..., None]) -> Any:
        @functools.wraps(test)
        def limited(*args: Any, **kwargs: Any) -> None:
            before = time.process_time()
            test(*args, **kwargs)
            used = time.process_time() - before
            assert used < CPU_SECONDS, f"a case took {used:.1f} s of CPU time"

        return LIMITS(given(*strategies, **named)(limited))

    return decorate


@functools.cache
def scratch() -> Path:
    """Return the folder for the files of the cases of this process; it is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="podium-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of each value inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in items for place in places(one, (*path, key)))]


def outcome(read: Callable[[], Any], *errors: type[Exception]) -> Any:
    """Return what was read, or None for a refusal, whose text must be one line of bounded length."""
    return _outcome(read, errors, 1000, one_line=True)


def answered(read: Callable[[], Any], *errors: type[Exception]) -> Any:
    """Return what was read, or None for a refusal, whose text must have a bounded length."""
    return _outcome(read, errors, 5000, one_line=False)


def _outcome(read: Callable[[], Any], errors: tuple[type[Exception], ...], longest: int, *, one_line: bool) -> Any:
    try:
        return read()
    except errors as error:
        text = str(error)
        assert 0 < len(text) <= longest
        assert text.isprintable() or not one_line
        return None
