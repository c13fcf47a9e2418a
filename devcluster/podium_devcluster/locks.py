"""File locks between processes: for the start and end of a cluster, and for builds."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class LockTimeoutError(RuntimeError):
    """Another process held the lock for too long."""


def _holder(path: Path) -> str:
    try:
        return path.read_text().strip() or "unknown"
    except OSError:
        return "unknown"


@contextmanager
def held(path: Path, *, timeout: float, waiting: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold `path` exclusively. The kernel releases it when the process ends, so no lock is ever stale.

    `waiting` is called once with a sentence if another process holds the lock. Raises LockTimeoutError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline, reported = time.monotonic() + timeout, False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if waiting and not reported:
                    waiting(f"process {_holder(path)} holds {path.name}; waiting for it")
                    reported = True
                if time.monotonic() > deadline:
                    raise LockTimeoutError(
                        f"process {_holder(path)} has held {path} for more than {timeout:g} s; wait for it or end it"
                    ) from None
                time.sleep(0.1)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)
