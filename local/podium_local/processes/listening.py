"""Sockets at which processes of this machine listen, from /proc; and ports at which none does."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

LISTEN = "0A"  # state of a socket in /proc/net/tcp
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def listening_address(port: int, pids: Iterable[int]) -> str | None:
    """Return an address at which one of these processes listens at the port; None without one."""
    found = dict(_listening(port))
    if not found:
        return None
    for pid in pids:
        for socket_number in _sockets_of(pid):
            if socket_number in found:
                return found[socket_number]
    return None


def free_port(taken: Collection[int]) -> int:
    """Return a port at which nothing listens now, and which is none of these."""
    while True:
        with socket.socket() as probe:
            probe.bind(("", 0))
            port: int = probe.getsockname()[1]
        if port not in taken:
            return port


def _listening(port: int) -> Iterator[tuple[str, str]]:
    """Yield the inode of each socket that listens at the port, and the address to connect to."""
    for table in _TABLES:
        with suppress(OSError), open(table, encoding="ascii") as file:
            next(file, None)
            for line in file:
                fields = line.split()
                address, _, number = fields[1].partition(":")
                if fields[3] == LISTEN and int(number, 16) == port:
                    yield fields[9], _address(address)


def _address(text: str) -> str:
    """Return the address to connect to; the kernel writes words of 32 bits in the machine's byte order."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    found = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    if found.is_unspecified:
        return "127.0.0.1" if found.version == 4 else "::1"
    return str(found)


def _sockets_of(pid: int) -> Iterator[str]:
    """Yield the inodes of the sockets that a process has open; none of another user's process."""
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with suppress(OSError):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    yield target[8:-1]
