"""A page of metrics that the trial serves, in Prometheus' text format; the agent reads it every few seconds.

Only the pod's own address is read, by HTTP, without redirects and compression, within a time limit and a size limit.
Each read is a task of its own: a trial that does not answer delays no other work of the agent.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable

import aiohttp
from yarl import URL

from podium_agent.observe.sources.base import line_at
from podium_cluster import clock
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.batch import Batch, LogLine, Position
from podium_core.sources.due import due_every
from podium_core.sources.page_reader import FETCH_SECONDS, HEADERS, MAX_PAGE, TOO_LONG, TOO_SLOW, PageReader


class PageError(Exception):
    """A page that cannot be read; the text tells why."""


class PrometheusSource:
    """Source of the samples on one page of one pod."""

    def __init__(self, address: Callable[[], str | None], metrics: MetricsConfig) -> None:
        """`address` returns the pod's own IP; empty without one, None while it cannot answer.

        Raises ValueError for a metric that is not a selector.
        """
        self._pages = PageReader(metrics)
        self.parse = self._pages.parse
        self.lost = 0
        self.fault = None
        self._address = address
        self._metrics = metrics
        self._due = due_every(metrics.period_seconds, time.monotonic)
        self._reading: asyncio.Task[list[LogLine]] | None = None

    async def read(self, last: bool) -> Batch:
        """Return what the last read of the page yielded, and begin the next one if it is due."""
        lines: tuple[LogLine, ...] = ()
        if self._reading is not None and self._reading.done():
            done, self._reading = self._reading, None
            try:
                lines = tuple(done.result())
            except Exception as error:  # a page may hold anything: the next one may be readable
                self._pages.trouble = f"the page cannot be read: {type(error).__name__}: {error}"
        address = self._address()
        if self._reading is None and address is not None and not last and self._due():
            self._reading = asyncio.ensure_future(self._read(address))
        return Batch(lines, Position(), False)

    def explain(self) -> str:
        """Return what was read and why it yields no value."""
        return self._pages.explain(self._metrics.port)

    def stored(self, position: Position) -> None:
        """Ignore the stored position: a page has only its present values."""

    def close(self) -> None:
        """Give up the read under way."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _read(self, address: str) -> list[LogLine]:
        try:
            page = await fetch(page_url(address, self._metrics.port, self._metrics.path))
        except PageError as error:
            self._pages.trouble = str(error)
            return []
        line = self._pages.read(page)
        return [] if line is None else [line_at(clock.now(), line)]


async def fetch(url: URL) -> bytes:
    """Return a page; raises PageError within FETCH_SECONDS."""
    timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, auto_decompress=False, trust_env=False) as session,
            session.get(url, allow_redirects=False, headers=HEADERS) as response,
        ):
            if response.status != 200:
                raise PageError(f"the answer is HTTP {response.status}, not 200")
            page = bytearray()
            async for part in response.content.iter_chunked(1 << 16):
                page += part
                if len(page) > MAX_PAGE:
                    raise PageError(TOO_LONG)
            return bytes(page)
    except TimeoutError:
        raise PageError(TOO_SLOW) from None
    except aiohttp.ClientConnectorError as error:
        raise PageError(f"connection failed: {error.os_error.strerror or error.os_error}") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise PageError(f"the answer is not HTTP ({type(error).__name__})") from None


def page_url(address: str, port: int, path: str) -> URL:
    """Return the URL of a pod's page; raises PageError for an address that cannot be a pod's own."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        text = "the pod has no address of its own (it is starting, or has hostNetwork)"
        raise PageError(text) from None
    if ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified:
        raise PageError(f"{address} is not an address of a pod")
    host = f"[{ip}]" if ip.version == 6 else str(ip)
    return URL(f"http://{host}:{port}/{path.lstrip('/')}")
