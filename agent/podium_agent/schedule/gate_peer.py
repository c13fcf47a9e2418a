"""The pod at the other end of a gate's connection, also if its process has ended and its pid belongs to another one.

The kernel names the pid of the process that connected (SO_PEERCRED). The cgroup is read by that pid, so the process
must still be the same one afterwards. A pidfd proves that: the pid cannot be used again while the process exists.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from pathlib import Path

from podium_agent.observe.cgroup_paths import Peer, peer_of

SO_PEERPIDFD = 77  # Linux 6.5; Python has no name for it
_CREDENTIALS = struct.Struct("3i")


def identify(proc: Path, connection: socket.socket) -> Peer | None:
    """Return the pod and container of the peer, or None if it is in no pod or has ended."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(credentials)[0]
    try:
        pidfd = _peer_pidfd(connection, pid)
    except OSError:
        return None  # the process has ended
    try:
        started, peer = _start_time(proc, pid), peer_of(proc, pid)
        unchanged = _start_time(proc, pid) == started and peer_of(proc, pid) == peer
        return peer if unchanged and not _has_ended(pidfd) else None
    except OSError:
        return None  # the kernel does not answer, without a free file descriptor for example; the gate connects again
    finally:
        os.close(pidfd)


def _peer_pidfd(connection: socket.socket, pid: int) -> int:
    """Return a pidfd of the peer; before Linux 6.5 it is that of the process with its pid now. Raises OSError."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno not in (errno.ENOPROTOOPT, errno.EOPNOTSUPP):
            raise
        return os.pidfd_open(pid)


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _start_time(proc: Path, pid: int) -> str | None:
    """Return the start of a process, in clock ticks since the boot; None if it is unknown."""
    try:
        stat = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may contain anything
    return fields[19] if len(fields) > 19 else None
