"""Server of the socket at which trials report metrics: its protocol, and acknowledgements.

The socket names the pod of a connection (`schedule.trial_socket`). A connection begins with `push SESSION`; the answer
is `stored N`, the last number of this session that the trial's status holds. Then each line is `N AGE JSON`: a number
that grows, the age of the report in seconds, and the report. `end` asks to be stored at once. The agent sends
`stored N` again whenever N has grown. A script that sends too fast waits.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

from podium_agent.observe.sources.push import PushQueue, PushQueues, Record
from podium_agent.schedule.trial_socket import TrialSocket

log = logging.getLogger(__name__)
SOCKET = "metrics.sock"
HELLO_SECONDS = 5.0
WRITE_SECONDS = 5.0
BURST = 2048.0  # lines of one connection at once
PER_SECOND = 200.0  # lines of one connection, on average
_HELLO = re.compile(rb"push ([0-9a-f]{1,32})\n")
_RECORD = re.compile(rb"([0-9]{1,15}) ([0-9]{1,9}(?:\.[0-9]{1,9})?) (\{.*)\n", re.DOTALL)


class PushServer:
    """Accept the reports that the trials of one node send, and queue them by pod."""

    def __init__(self, proc: Path, queues: PushQueues, clock: Callable[[], float] = time.monotonic) -> None:
        self._queues = queues
        self._clock = clock
        self._socket = TrialSocket(proc, self._talk, clock)

    def serve(self, share: Path) -> AbstractAsyncContextManager[None]:
        """Listen on the socket in the folder that trials see."""
        return self._socket.serve(share / SOCKET)

    async def _talk(self, pod_uid: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = _HELLO.fullmatch(await asyncio.wait_for(reader.readline(), HELLO_SECONDS))
        queue = self._queues.get(pod_uid)
        if hello is None or queue is None:
            return  # the script connects again: its record may begin in a moment
        queue.connected = True
        session = hello[1].decode()
        acknowledging = asyncio.ensure_future(self._acknowledge(queue, session, writer))
        try:
            await self._receive(queue, session, reader)
        finally:
            acknowledging.cancel()
            with suppress(asyncio.CancelledError, OSError, TimeoutError):
                await acknowledging

    async def _receive(self, queue: PushQueue, session: str, reader: asyncio.StreamReader) -> None:
        allowance, before = BURST, self._clock()
        while line := await reader.readline():
            now = self._clock()
            allowance, before = min(BURST, allowance + (now - before) * PER_SECOND) - 1.0, now
            if allowance < 0.0:  # any line counts: lines that are in the buffer let no other task run
                await asyncio.sleep(-allowance / PER_SECOND)
            if line == b"end\n":
                queue.ask_to_flush()
                continue
            match = _RECORD.fullmatch(line)
            if match is None:
                return
            record = Record(session, int(match[1]), now - float(match[2]), match[3].decode(errors="replace"))
            while not queue.add(record):
                await queue.changed.wait()
                if queue.closed:
                    return

    async def _acknowledge(self, queue: PushQueue, session: str, writer: asyncio.StreamWriter) -> None:
        """Send each new acknowledgement until the connection ends, or the queue is closed."""
        sent = -1
        while not queue.closed:
            changed, stored = queue.changed, queue.stored.get(session, 0)
            if stored > sent:
                sent = stored
                writer.write(b"stored %d\n" % stored)
                await asyncio.wait_for(writer.drain(), WRITE_SECONDS)
                continue
            await changed.wait()
        writer.transport.abort()
