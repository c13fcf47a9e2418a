"""Progress of commands that take longer than two seconds: one line on standard error, only on a terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

DELAY = 2.0  # seconds until the line appears: most commands have ended by then
Advance = Callable[[], None]


@contextmanager
def progress(text: str, total: int | None = None, console: Console | None = None) -> Iterator[Advance]:
    """Show a bar of `total` parts, or a spinner if their number is not known, during the block.

    The block calls the function after each part. The line disappears at the end, so it never mixes with the result.
    """
    shown = console or Console(stderr=True)
    if not shown.is_terminal:
        yield lambda: None
        return
    counted = [BarColumn(), MofNCompleteColumn()] if total is not None else []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), *counted, TimeElapsedColumn())
    line = Progress(*columns, console=shown, transient=True)
    task = line.add_task(text, total=total)
    timer = threading.Timer(DELAY, line.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda: line.advance(task)
    finally:
        timer.cancel()
        timer.join()
        line.stop()
