"""Server of the gates: trials' init containers connect to a Unix socket and wait here for their first time slice.

The node reconciler asks which pods wait, sends reasons, and opens gates. The socket names the pod of a connection
(`trial_socket`). The protocol is documented in agent/helper/podium-gate.c.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from podium_agent.report.checkpoints import report_in_hello
from podium_agent.schedule.trial_socket import TrialSocket
from podium_core.attempts.lost_work import GateReport

log = logging.getLogger(__name__)
SOCKET = "agent.sock"
READ_SECONDS = 5.0
WRITE_SECONDS = 5.0
KEEPALIVE_SECONDS = 5.0


@dataclass(eq=False, slots=True)
class _Session:
    """One gate that waits. `reason` is the last one that it was sent; `open` ends the wait."""

    reason: str = "AgentSyncing: the agent has just seen this pod for the first time"
    news: asyncio.Event = field(default_factory=asyncio.Event)
    open: bool = False


class Gates:
    """Gates of this node's trials.

    `changed` is called when a gate connects, disconnects or has been passed.
    """

    def __init__(self, proc: Path, changed: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._changed = changed
        self._socket = TrialSocket(proc, self._talk, clock)
        self._sessions: dict[str, _Session] = {}
        self._passed: set[str] = set()
        self._gate_reports: dict[str, GateReport] = {}

    def waiting(self, pod_uid: str) -> bool:
        """Return whether the gate of this pod is connected and waits."""
        return pod_uid in self._sessions and pod_uid not in self._passed

    def passed(self, pod_uid: str) -> bool:
        """Return whether this agent opened the pod's gate.

        A gate that missed the answer connects again and passes.
        """
        return pod_uid in self._passed

    def gate_report(self, pod_uid: str) -> GateReport | None:
        """Return what the gate reported of the checkpoint folder; None if it reported nothing to this agent."""
        return self._gate_reports.get(pod_uid)

    def open(self, pod_uid: str) -> None:
        """Open the gate of this pod."""
        self._passed.add(pod_uid)
        session = self._sessions.get(pod_uid)
        if session is not None:
            session.open = True
            session.news.set()

    def tell(self, pod_uid: str, reason: str) -> None:
        """Send a waiting gate the reason for its wait, if it has changed."""
        session = self._sessions.get(pod_uid)
        if session is not None and session.reason != reason:
            session.reason = reason
            session.news.set()

    def forget(self, keep: frozenset[str]) -> None:
        """Forget all pods except those in `keep`; deleted pods do not connect again."""
        self._passed &= keep
        for pod_uid in self._gate_reports.keys() - keep:
            del self._gate_reports[pod_uid]

    @asynccontextmanager
    async def serve(self, share: Path) -> AsyncIterator[None]:
        """Listen on the socket in the shared folder."""
        async with self._socket.serve(share / SOCKET):
            log.info("gate: listening on %s", share / SOCKET)
            yield

    async def listen(self, listener: socket.socket) -> asyncio.Server:
        """Serve a bound socket as well: the one in the volume of a gate."""
        return await self._socket.listen(listener)

    async def _talk(self, pod_uid: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await asyncio.wait_for(reader.readline(), READ_SECONDS)
        gate_report = report_in_hello(line)
        if line != b"gate\n" and gate_report is None:
            return
        if not pod_uid:
            await _say(writer, "wait UnknownPod: this process is in no pod that the agent can see")
            return
        if gate_report is not None:
            self._gate_reports[pod_uid] = gate_report
        await self._hold(pod_uid, reader, writer)

    async def _hold(self, pod_uid: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Keep one connection until its gate opens; a second connection of the same pod replaces the first."""
        session = _Session(open=pod_uid in self._passed)
        self._sessions[pod_uid] = session
        self._changed()
        gone = asyncio.ensure_future(reader.read(1))
        try:
            while not session.open:
                session.news.clear()
                await _say(writer, f"wait {session.reason}")
                news = asyncio.ensure_future(session.news.wait())
                done, _ = await asyncio.wait(
                    {gone, news}, timeout=KEEPALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                news.cancel()
                if gone in done:
                    return
            await _say(writer, "go")
        finally:
            gone.cancel()
            if self._sessions.get(pod_uid) is session:
                del self._sessions[pod_uid]
            self._changed()


async def _say(writer: asyncio.StreamWriter, text: str) -> None:
    writer.write(text.replace("\n", " ")[:2000].encode() + b"\n")
    await asyncio.wait_for(writer.drain(), WRITE_SECONDS)
