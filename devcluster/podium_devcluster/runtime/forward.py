"""Forward a port of 127.0.0.1 to the API server in the control plane's network namespace.

It is a process of its own (`python -I forward.py`), so it imports the standard library only. The listening socket comes
from the parent and belongs to the machine's network namespace. Later sockets belong to the cluster's namespace.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import socket

CLONE_NEWNET = 0x40000000
CHUNK = 1 << 16
CONNECT_SECONDS = 5.0


def enter_network(path: str) -> None:
    """Move this (single-threaded) process into the network namespace at `path`."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until its end; the other direction of a half-closed connection continues."""
    with contextlib.suppress(ConnectionError, TimeoutError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def serve(listener: socket.socket, host: str, port: int) -> None:
    """Forward every connection of `listener` to host:port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()  # the API server is down: the client sees a closed connection
            return
        try:
            await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
        finally:
            for stream in (writer, far_writer):
                stream.close()

    server = await asyncio.start_server(handle, sock=listener)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Forward until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", type=int, required=True, help="port on 127.0.0.1")
    parser.add_argument("--fd", type=int, default=-1, help="an open listening socket to use instead of binding")
    parser.add_argument("--netns", required=True)
    parser.add_argument("--to", required=True, help="HOST:PORT inside the namespace")
    options = parser.parse_args()
    try:
        listener = socket.socket(fileno=options.fd) if options.fd >= 0 else None
    except OSError:
        listener = None  # a later start does not have the parent's socket
    if listener is None:
        listener = socket.create_server(("127.0.0.1", options.listen), backlog=256)
    enter_network(options.netns)
    host, _, port = options.to.rpartition(":")
    asyncio.run(serve(listener, host, int(port)))


if __name__ == "__main__":
    main()
