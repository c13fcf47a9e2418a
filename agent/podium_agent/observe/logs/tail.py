"""Tail of one container's log across rotation, from a cursor: no line is lost or read twice.

The trial writer uses it. The kubelet renames `0.log` to `0.log.<time>`, starts a new `0.log`, and compresses older
files (.gz). A file is identified by the hash of its first line, which its time in nanoseconds makes unique. So a cursor
finds its file under any name. The open file is kept: a file that was rotated or deleted is read to its end first.
A file that cannot be read now (an I/O error, no free file descriptor) is read again later, from the cursor.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from pathlib import Path
from typing import BinaryIO, cast

from podium_agent.observe.logs.cri import Assembler
from podium_core.sources.batch import CHUNK, Batch, LogLine, Position

LONGEST_FIRST_LINE = 1 << 15


class Tail:
    """Tail of one log.

    `folder` is /var/log/pods/<namespace>_<pod>_<uid>/<container>; it need not exist yet.
    """

    def __init__(self, folder: Path, position: Position) -> None:
        self._folder = folder
        self._position = position
        self._open: BinaryIO | None = None
        self._inode = 0
        self._assembler = Assembler(0)
        self.lost = 0  # number of files deleted before they were read to their end
        self.trouble: OSError | EOFError | zlib.error | None = None  # why the last read failed

    def close(self) -> None:
        """Close the open file."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def read(self) -> Batch:
        """Return the next whole lines, at most one chunk; none while the log cannot be read (`trouble`)."""
        try:
            batch = self._read()
        except (OSError, EOFError, zlib.error) as error:
            self.close()
            self.trouble = error
            return Batch((), self._position, False)
        self.trouble = None
        return batch

    def _read(self) -> Batch:
        lines: tuple[LogLine, ...] = ()
        if self._open is None and not self._begin():
            return Batch((), self._position, False)
        assert self._open is not None
        data = self._open.read(CHUNK)
        if data:
            lines = tuple(self._assembler.feed(data))
            self._position = Position(self._position.file, self._position.fingerprint, self._assembler.safe)
            return Batch(lines, self._position, len(data) == CHUNK)
        if self._advance():
            return Batch((), self._position, True)
        return Batch((), self._position, False)

    def _begin(self) -> bool:
        """Open the cursor's file, or the oldest one if there is no cursor or its file is gone."""
        files = _files(self._folder)
        if not files:
            return False
        if self._position.fingerprint:
            index = self._find(files)
            if index is not None:
                return self._enter(files[index], self._position.fingerprint, self._position.offset)
            self.lost += 1
        return self._enter_fresh(files[0])

    def _find(self, files: list[Path]) -> int | None:
        """Return the place of the cursor's file, None if it is gone; raise OSError if an unreadable file may be it."""
        unreadable: OSError | None = None
        for index, path in enumerate(files):
            try:
                if _fingerprint(path) == self._position.fingerprint:
                    return index
            except OSError as error:
                unreadable = error
        if unreadable is not None:
            raise unreadable
        return None

    def _advance(self) -> bool:
        """Move to the newer file, if any, at the end of one.

        The open file may have been renamed, compressed or deleted.
        """
        files = _files(self._folder)
        index = self._find(files)
        if index is not None:
            if index + 1 == len(files):
                return False
            if files[index].suffix != ".gz" and _grew(files[index], self._inode, self._assembler.read):
                return True  # written between the last read and the rotation: continue reading
            return self._enter_fresh(files[index + 1])
        if files:
            # deleted, but it was open and has been read to its end: nothing is lost
            return self._enter_fresh(files[0])
        return False

    def _enter_fresh(self, path: Path) -> bool:
        fingerprint = _fingerprint(path)
        return fingerprint is not None and self._enter(path, fingerprint, 0)

    def _enter(self, path: Path, fingerprint: str, offset: int) -> bool:
        try:
            opened = _opened(path)
            opened.seek(offset)
            inode = os.fstat(opened.fileno()).st_ino
        except FileNotFoundError:
            return False  # being renamed or compressed: the next read finds it
        self.close()
        self._open, self._inode = opened, inode
        self._assembler = Assembler(offset)
        self._position = Position(path.name.removesuffix(".gz"), fingerprint, offset)
        return True


def _files(folder: Path) -> list[Path]:
    """Return all files of the log, oldest first: by restart, then the rotated ones by time, then the live one.

    Files of containers that never started are left out (after a restart of the kubelet in between): they stay empty.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    chosen: dict[tuple[int, str], str] = {}
    for name in names:
        number, _, rest = name.removesuffix(".gz").partition(".log")
        if not number.isdigit() or ".log" not in name or name.endswith(".tmp"):
            continue
        key = (int(number), rest.lstrip(".") or "~")  # "~" sorts after every date
        if key not in chosen or not name.endswith(".gz"):
            chosen[key] = name  # both exist while one is being compressed
    files = [folder / chosen[key] for key in sorted(chosen)]
    return [path for path in files if path == files[-1] or not _empty(path)]


def _empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError:
        return False  # being renamed or compressed


def _fingerprint(path: Path) -> str | None:
    """Return the hash of the first line; None without a whole line or a file. Raises OSError."""
    try:
        with _opened(path) as file:
            first = file.readline(LONGEST_FIRST_LINE)
    except (FileNotFoundError, gzip.BadGzipFile, EOFError, zlib.error):
        return None
    if not first.endswith(b"\n") and len(first) < LONGEST_FIRST_LINE:
        return None
    return hashlib.sha256(first).hexdigest()[:32]


def _grew(path: Path, inode: int, read: int) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_ino == inode and status.st_size > read


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")
