"""`podium watch --sample`: the live table of the synthetic search, several times as fast as it would be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

from rich.console import Console
from rich.live import Live

from podium_cli import samples
from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import snapshot_of
from podium_cli.views.watch import changes, view
from podium_views.job_snapshot import JobSnapshot

SPEED = 8.0  # seconds of the search in one second
FRAME = 0.25  # seconds between two snapshots
FIXED_LINES = 10  # of the screen besides GPUs and trials, as in `podium watch`


def show_sample(console: Console, *, lines: bool, timeout: float | None) -> None:
    """Show the search from its start to its end, as a live table or as a line for each change."""
    if lines:
        before: JobSnapshot | None = None
        for snapshot in _snapshots(timeout):
            for line in changes(before, snapshot):
                print(line, flush=True)
            before = snapshot
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for snapshot in _snapshots(timeout):
            rows = max(3, console.height - FIXED_LINES - len(snapshot.gpus))
            live.update(view(snapshot, rows=rows), refresh=True)
        live.update(view(snapshot), refresh=True)  # the last table is complete


def _snapshots(timeout: float | None) -> Iterator[JobSnapshot]:
    """Yield the search as it would be seen at each moment; raise CliError after `timeout` seconds."""
    begin = time.monotonic()
    while True:
        passed = time.monotonic() - begin
        if timeout is not None and passed > timeout:
            raise CliError(Exit.TIMEOUT, "TimedOut", f"the sample did not end within {timeout:g} s")
        elapsed = passed * SPEED
        snapshot = snapshot_of(samples.search_at(elapsed), None, None, samples.BEGIN + timedelta(seconds=elapsed))
        yield snapshot
        if snapshot.ended:
            return
        time.sleep(FRAME)
