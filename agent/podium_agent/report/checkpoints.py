"""Completion markers of a trial's newest checkpoint, from its gate, the gate's log, or the container itself.

The gate server, the checkpoint watch and the trial writer use it. The folder belongs to a tenant and the agent is
privileged. So the agent reads one name in one folder, follows no link on the way, opens only a regular file (opening a
device may do harm), and never writes.
"""

from __future__ import annotations

import errno
import os
import stat
from io import FileIO
from pathlib import Path, PurePosixPath

from podium_agent.observe.cgroup_paths import peer_of
from podium_agent.observe.cgroups import Container
from podium_agent.observe.logs.tail import Tail
from podium_core.attempts.completion_marker import MARKER, MARKER_BYTES, parse_completion_marker
from podium_core.attempts.lost_work import CompletionMarker, GateReport
from podium_core.sources.batch import Position

HELLO, HELLO_END = b'gate {"checkpoint": ', b"}"
LOG_WORD = "saved: "
FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NAME = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class UnsafePathError(ValueError):
    """`checkpoint.path` leads through something other than a plain folder."""


def report_in_hello(line: bytes) -> GateReport | None:
    """Return what a gate's first line reports of its folder.

    None without a report (no folder, or an older gate).
    """
    line = line.rstrip(b"\n")
    if not (line.startswith(HELLO) and line.endswith(HELLO_END)):
        return None
    return GateReport(parse_completion_marker(line[len(HELLO) : -len(HELLO_END)]))


def report_in_log(folder: Path) -> GateReport | None:
    """Return the same from the gate container's log, for an agent that started after the gate was passed."""
    tail, gate_report = Tail(folder, Position()), None
    try:
        while True:
            batch = tail.read()
            for line in batch.lines:
                if line.stream == "stdout" and line.text.startswith(LOG_WORD):
                    gate_report = GateReport(parse_completion_marker(line.text[len(LOG_WORD) :].encode()))
            if not batch.more:
                return gate_report
    finally:
        tail.close()


class Folder:
    """The checkpoint folder of a running container, by descriptor.

    It can still be read when the process has ended. The descriptor keeps the volume mounted, so it is closed as soon
    as the trial's end was read.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def open(cls, proc: Path, container: Container, path: str) -> Folder:
        """Open the folder; raises OSError if there is none, UnsafePathError if a link is on the way."""
        steps = PurePosixPath(path).parts
        if not steps or steps[0] != "/" or ".." in steps:
            raise UnsafePathError(
                f"checkpoint.path: {path!r} is not absolute or contains ..; use an absolute path without .."
            )
        here = os.open(proc / str(container.pid) / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            peer = peer_of(proc, container.pid)
            if peer is None or peer.container != container.id:
                raise ProcessLookupError(errno.ESRCH, "the container's first process has ended", str(container.pid))
            for step in steps[1:]:
                here = _descend(here, step, path)
        except BaseException:
            os.close(here)
            raise
        return cls(here)

    def read(self) -> CompletionMarker | None:
        """Return the completion marker, or None without a checkpoint.

        Raises OSError if that cannot be determined.
        """
        try:
            name = os.open(MARKER, NAME, dir_fd=self._descriptor)
        except FileNotFoundError:
            return None
        try:
            facts = os.fstat(name)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > MARKER_BYTES:
                return None
            with open(os.open(f"/proc/self/fd/{name}", FILE), "rb", buffering=0) as file:
                return parse_completion_marker(_whole(file))
        finally:
            os.close(name)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


def _descend(here: int, step: str, path: str) -> int:
    try:
        below = os.open(step, FOLDER, dir_fd=here)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise UnsafePathError(
                f"checkpoint.path: {step!r} in {path!r} is a link or not a folder in the container, "
                "so checkpoints are not seen while the trial runs; use the path that it points to"
            ) from error
        raise
    os.close(here)
    return below


def _whole(file: FileIO) -> bytes:
    """Read at most one byte more than a marker may have, however the file grows meanwhile."""
    text = b""
    while len(text) <= MARKER_BYTES and (piece := file.read(MARKER_BYTES + 1 - len(text))):
        text += piece
    return text
