"""The short way for the requests of kube-scheduler: uvicorn's own protocol for a connection, which answers a plain
`POST /filter`, `/prioritize` or `/preempt` as soon as its last byte is there. Whatever else comes goes on to FastAPI's
routes. `main` gives it to uvicorn.

The way through uvicorn's tasks, Starlette's layers and FastAPI's routing takes longer than the verbs themselves on a
small cluster, and a large body is read in pieces of 64 KB, each with a pause (benchmarks/results/bench-scheduler.md).
It leans on names inside of uvicorn, so its test speaks to a whole server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from podium_extender.server.endpoint import Endpoint
from podium_extender.server.limits import RequestError, too_large
from podium_extender.verbs.handlers import VERBS

log = logging.getLogger(__name__)
_VERBS = {b"/" + verb.encode(): verb for verb in VERBS}


def fast_path_protocol(endpoint: Endpoint) -> type[HttpToolsProtocol]:
    """The class of the connections of one server."""

    class FastPath(_FastPath):
        pass

    FastPath.endpoint = endpoint
    return FastPath


class _FastPath(HttpToolsProtocol):
    """`_verb` is that of the request that comes in, or whose answer is due in a moment; None: it goes on. `_inside`: it
    was let in at the door and not answered yet; what comes of one that was refused is let go.
    """

    endpoint: Endpoint

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._verb: str | None = None
        self._body = bytearray()
        self._began = 0.0
        self._inside = False
        self._due: asyncio.Handle | None = None

    def on_headers_complete(self) -> None:
        self._answer_now()  # requests of one connection are answered in their order
        self._verb = _VERBS.get(self.url) if self._plain() else None
        if self._verb is None:
            super().on_headers_complete()
            return
        self._began = time.perf_counter()
        try:
            self.endpoint.door.come()  # before the body: memory is held for so many at most, however slowly they send
        except RequestError as error:
            self._refuse(error.status, str(error))
        else:
            self._inside = True

    def _plain(self) -> bool:
        """A POST without anything special, on a connection where nothing waits: neither an answer that FastAPI is at,
        nor what the client has not taken yet.
        """
        parser, under_way = self.parser, self.cycle is not None and not self.cycle.response_complete
        kept = parser.get_http_version() == "1.1" and parser.should_keep_alive()  # 1.0 wants to be told of it
        special = self.expect_100_continue or parser.should_upgrade() or not kept
        return parser.get_method() == b"POST" and not (special or under_way or self.flow.write_paused)

    def on_body(self, body: bytes) -> None:
        if self._verb is None:
            super().on_body(body)
        elif self._inside:
            self._body += body
            if len(self._body) > self.endpoint.body_limit:
                self._leave()
                error = too_large(self.endpoint.body_limit)
                self._refuse(error.status, str(error))

    def on_message_complete(self) -> None:
        if self._verb is None:
            super().on_message_complete()
        elif self._inside:
            # those that came in the same moment are counted before the first of them is worked on
            self._due = self.loop.call_soon(self._answer_now)

    def _answer_now(self) -> None:
        if self._due is None or self._verb is None:
            return
        self._due.cancel()
        body, self._due = bytes(self._body), None
        try:
            said = self.endpoint.verbs.answer(self._verb, body, self._began)
        except RequestError as error:
            self._refuse(error.status, str(error))
        except Exception:
            log.exception("%s failed", self._verb)
            self._refuse(500, "Internal Server Error")
        else:
            self._say(200, said)
            if self._verb == "prioritize":
                self.loop.call_soon(self.endpoint.verbs.precompute)
        finally:
            self._leave()

    def _leave(self) -> None:
        self._body = bytearray()
        if self._inside:
            self._inside = False
            self.endpoint.door.go()

    def _refuse(self, status: int, message: str) -> None:
        self._say(status, self.endpoint.trouble("POST", f"/{self._verb}", status, message))

    def _say(self, status: int, said: bytes) -> None:
        if self.transport.is_closing():
            return
        head = [STATUS_LINE[status], *(b"%b: %b\r\n" % header for header in self.server_state.default_headers)]
        head.append(b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(said))
        self.transport.write(b"".join([*head, said]))
        self.server_state.total_requests += 1
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._leave()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        self._answer_now()
        super().shutdown()
