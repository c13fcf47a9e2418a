"""Read from /proc which files the processes of a container have open or mapped. Blocking."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PATH_FIELD = 5  # of a line in /proc/PID/maps: address, permissions, offset, device, inode, path


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Paths as the processes see them: `all` are open or mapped, `written` are open for writing."""

    all: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()


def open_files_of(pids: Iterable[int], proc: Path = Path("/proc")) -> OpenFiles:
    """Return the files that these processes have open; a process that has ended has none."""
    paths: set[str] = set()
    written: set[str] = set()
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            paths |= _mapped(proc / str(pid) / "maps")
            for path, writable in _descriptors(proc / str(pid)):
                paths.add(path)
                if writable:
                    written.add(path)
    return OpenFiles(frozenset(paths), frozenset(written))


def _mapped(maps: Path) -> set[str]:
    fields = (line.split(maxsplit=PATH_FIELD) for line in maps.read_text(errors="replace").splitlines())
    return {one[PATH_FIELD] for one in fields if len(one) > PATH_FIELD}


def _descriptors(process: Path) -> Iterator[tuple[str, bool]]:
    for entry in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed in the meantime
            path = os.readlink(entry)
            lines = (process / "fdinfo" / entry.name).read_text().splitlines()
            flags = next((int(line.split()[1], 8) for line in lines if line.startswith("flags:")), 0)
            yield path, flags & os.O_ACCMODE != os.O_RDONLY
