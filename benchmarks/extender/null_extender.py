"""The smallest HTTP extender in Python, for bench_scheduler: filter returns all names, prioritize scores each with 5.

It decides nothing, watches nothing, and keeps its answers as bytes.

    python -m benchmarks.extender.null_extender PORT
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast

import httptools

NAMES = b'"NodeNames":'


class Connection(asyncio.Protocol):
    """One connection of kube-scheduler, kept alive."""

    rows: dict[bytes, bytes] = {}  # noqa: RUF012  # shared by all connections: answers by the names in the request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.parser = httptools.HttpRequestParser(self)
        self.path, self.body = b"", bytearray()

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.path, self.body = url, bytearray()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        whole = bytes(self.body)
        start = whole.rindex(NAMES) + len(NAMES)
        names = whole[start : whole.index(b"]", start) + 1]
        answer = self.score(names) if self.path == b"/prioritize" else b'{"NodeNames":%b,"Error":""}' % names
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer)
        self.transport.write(head + answer)

    def score(self, names: bytes) -> bytes:
        if names not in self.rows:
            self.rows.clear()
            self.rows[names] = json.dumps([{"Host": n, "Score": 5} for n in json.loads(names)]).encode()
        return self.rows[names]


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
