"""The fast path for requests of kube-scheduler: a uvicorn protocol that answers plain requests without FastAPI.

It answers a plain `POST /filter`, `/prioritize` or `/preempt` as soon as the last byte of the request has arrived. All
other requests continue to FastAPI's routes.

On a small cluster, uvicorn's tasks, Starlette's layers and FastAPI's routing take longer than the verbs themselves.
They also read a large body in pieces of 64 KB with pauses (benchmarks/results/bench-scheduler.md). This module depends
on internal names of uvicorn, so its tests use a whole server.
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
    """Return the protocol class for the connections of one server."""

    class FastPath(_FastPath):
        pass

    FastPath.endpoint = endpoint
    return FastPath


class _FastPath(HttpToolsProtocol):
    """A connection.

    `_verb` is the verb of the request that is being received or whose response is due; None: FastAPI handles the
    request. `_admitted` states that the request counts for the concurrency limit; the body of a refused request is
    discarded.
    """

    endpoint: Endpoint

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._verb: str | None = None
        self._body = bytearray()
        self._began = 0.0
        self._admitted = False
        self._due: asyncio.Handle | None = None

    def on_headers_complete(self) -> None:
        self._answer_now()  # requests of one connection are answered in their order
        self._verb = _VERBS.get(self.url) if self._is_plain() else None
        if self._verb is None:
            super().on_headers_complete()
            return
        self._began = time.perf_counter()
        try:
            # before the body, so that memory is used for a limited number of requests, however slow they are
            self.endpoint.concurrency.acquire()
        except RequestError as error:
            self._send_error(error.status, str(error))
        else:
            self._admitted = True

    def _is_plain(self) -> bool:
        """Return whether this is a POST without special features on an idle connection.

        The connection is idle if FastAPI processes no request of it and the client has read all responses.
        """
        parser, in_progress = self.parser, self.cycle is not None and not self.cycle.response_complete
        # a client of HTTP 1.0 expects an explicit header
        keep_alive = parser.get_http_version() == "1.1" and parser.should_keep_alive()
        special = self.expect_100_continue or parser.should_upgrade() or not keep_alive
        return parser.get_method() == b"POST" and not (special or in_progress or self.flow.write_paused)

    def on_body(self, body: bytes) -> None:
        if self._verb is None:
            super().on_body(body)
        elif self._admitted:
            self._body += body
            if len(self._body) > self.endpoint.body_limit:
                self._release()
                error = too_large(self.endpoint.body_limit)
                self._send_error(error.status, str(error))

    def on_message_complete(self) -> None:
        if self._verb is None:
            super().on_message_complete()
        elif self._admitted:
            # requests that arrived at the same moment are counted before the first of them is processed
            self._due = self.loop.call_soon(self._answer_now)

    def _answer_now(self) -> None:
        if self._due is None or self._verb is None:
            return
        self._due.cancel()
        body, self._due = bytes(self._body), None
        try:
            response = self.endpoint.verbs.answer(self._verb, body, self._began)
        except RequestError as error:
            self._send_error(error.status, str(error))
        except Exception:
            log.exception("%s failed", self._verb)
            self._send_error(500, "Internal Server Error")
        else:
            self._send(200, response)
            if self._verb == "prioritize":
                self.loop.call_soon(self.endpoint.verbs.precompute)
        finally:
            self._release()

    def _release(self) -> None:
        self._body = bytearray()
        if self._admitted:
            self._admitted = False
            self.endpoint.concurrency.release()

    def _send_error(self, status: int, message: str) -> None:
        self._send(status, self.endpoint.error_body("POST", f"/{self._verb}", status, message))

    def _send(self, status: int, body: bytes) -> None:
        if self.transport.is_closing():
            return
        head = [STATUS_LINE[status], *(b"%b: %b\r\n" % header for header in self.server_state.default_headers)]
        head.append(b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body))
        self.transport.write(b"".join([*head, body]))
        self.server_state.total_requests += 1
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._release()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        self._answer_now()
        super().shutdown()
