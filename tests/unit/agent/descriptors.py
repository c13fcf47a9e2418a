"""A process that has used up its file descriptors, or in which no thread can start."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_descriptors(spare: int = 0) -> Iterator[None]:
    """Leave this process no free file descriptor, or at most `spare` ones."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, limits[1]))  # those that are open remain
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextmanager
def no_threads() -> Iterator[None]:
    """Let the kernel refuse every new thread of this process: its stack does not fit into the address space."""
    before = threading.stack_size(1 << 50)
    try:
        yield
    finally:
        threading.stack_size(before)
