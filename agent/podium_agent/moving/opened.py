"""Which files the processes of a container hold open or have mapped, from /proc. Blocking; used by `move`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PATH_FIELD = 5  # of a line in /proc/PID/maps: address, permissions, offset, device, inode, path


def opened_by(pids: Iterable[int], proc: Path = Path("/proc")) -> frozenset[str]:
    """Paths as the processes see them; a process that has ended meanwhile holds none."""
    found: set[str] = set()
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            found |= _mapped(proc / str(pid) / "maps")
            found |= _descriptors(proc / str(pid) / "fd")
    return frozenset(found)


def _mapped(maps: Path) -> set[str]:
    fields = (line.split(maxsplit=PATH_FIELD) for line in maps.read_text(errors="replace").splitlines())
    return {one[PATH_FIELD] for one in fields if len(one) > PATH_FIELD}


def _descriptors(folder: Path) -> set[str]:
    found = set()
    for entry in folder.iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.add(os.readlink(entry))
    return found
