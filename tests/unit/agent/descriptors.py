"""A process that has used up its file descriptors."""

from __future__ import annotations

import os
import resource
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
