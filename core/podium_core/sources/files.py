"""What a reader needs of a place with a trial's files: a container on a cluster, a folder in local mode."""

from __future__ import annotations

import errno
import os
from itertools import islice
from typing import Protocol

REOPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FAULTS = frozenset({errno.EAGAIN, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE})


class RefusedFileError(ValueError):
    """A file that Podium does not read; the text tells why."""


class Files(Protocol):
    """Files by their paths, opened as descriptors. Each method raises OSError or RefusedFileError."""

    def folder(self, path: str) -> int:
        """Return a descriptor of a folder (O_PATH)."""
        ...

    def file(self, path: str) -> int:
        """Return a descriptor of a regular file for reading."""
        ...

    def file_in(self, folder: int, name: str) -> int:
        """Return the same for a file below an open folder, also if the place itself is gone."""
        ...

    def names(self, folder: int, most: int) -> list[str]:
        """Return at most `most` names in an open folder."""
        ...

    def close(self) -> None:
        """Release the place."""
        ...


def is_fault(error: OSError) -> bool:
    """Return whether the disk or the kernel did not answer, rather than that the trial has no such file."""
    return error.errno in _FAULTS


def names_in(folder: int, most: int) -> list[str]:
    """Return at most `most` names in an open folder; raises OSError."""
    opened = os.open(f"/proc/self/fd/{folder}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(opened) as entries:
            return [entry.name for entry in islice(entries, most)]
    finally:
        os.close(opened)
