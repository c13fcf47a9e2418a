"""A page of metrics that the trial serves, in Prometheus' text format; the agent reads it every few seconds.

Only the pod's own address is read, by HTTP, without redirects and compression, within a time limit and a size limit.
Each read is a task of its own: a trial that does not answer delays no other work of the agent.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Mapping

import aiohttp
from yarl import URL

from podium_agent.observe.logs.cri import LogLine
from podium_agent.observe.logs.tail import Batch, Position
from podium_agent.observe.sources.base import line_at, no_sooner
from podium_agent.observe.sources.exposition import names_on, samples, value_of
from podium_cluster import clock
from podium_core.logs.readings import ready_line, ready_reader
from podium_core.logs.selectors import Selector, parse_selector
from podium_core.schema.metrics.config import MetricsConfig

SECONDS = 2.0
MAX_PAGE = 1 << 20  # bytes
_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"}


class PageError(Exception):
    """A page that cannot be read; the text tells why."""


class PrometheusSource:
    """Source of the samples on one page of one pod."""

    def __init__(self, address: Callable[[], str | None], metrics: MetricsConfig) -> None:
        """`address` returns the pod's own IP; empty without one, None while it cannot answer.

        Raises ValueError for a metric that is not a selector.
        """
        self.parse = ready_reader(metrics.metric, metrics.additional)
        self.lost = 0
        self.fault = None
        self._address = address
        self._metrics = metrics
        names = (metrics.metric, metrics.step_key, *metrics.additional)
        self._selectors = {name: _selector(name) for name in names}
        self._due = no_sooner(metrics.period_seconds)
        self._reading: asyncio.Task[list[LogLine]] | None = None
        self._last: tuple[float, Mapping[str, float]] | None = None
        self._trouble = "the page has not been read yet"

    async def read(self, last: bool) -> Batch:
        """Return what the last read of the page yielded, and begin the next one if it is due."""
        lines: tuple[LogLine, ...] = ()
        if self._reading is not None and self._reading.done():
            done, self._reading = self._reading, None
            try:
                lines = tuple(done.result())
            except Exception as error:  # a page may hold anything: the next one may be readable
                self._trouble = f"the page cannot be read: {type(error).__name__}: {error}"
        address = self._address()
        if self._reading is None and address is not None and not last and self._due():
            self._reading = asyncio.ensure_future(self._read(address))
        return Batch(lines, Position(), False)

    def explain(self) -> str:
        """Return what was read and why it yields no value."""
        where = f"metrics.source prometheus, port {self._metrics.port}, path {self._metrics.path}"
        return f"{where}: {self._trouble}" if self._trouble else ""

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
            self._trouble = str(error)
            return []
        found = samples(page, {selector.name for selector in self._selectors.values()})
        values: dict[str, float] = {}
        troubles: list[str] = []
        for name, selector in self._selectors.items():
            value, why = value_of(selector, found)
            if value is not None:
                values[name] = value
            elif name in (self._metrics.metric, self._metrics.step_key):
                troubles.append(why)
        self._trouble = "; ".join(troubles) and f"{'; '.join(troubles)}. It has {names_on(page) or 'no sample'}"
        step = values.pop(self._metrics.step_key, None)
        if step is None or not values or (step, values) == self._last:
            return []
        self._last = (step, values)
        return [line_at(clock.now(), ready_line(step, values))]


def _selector(name: str) -> Selector:
    selector = parse_selector(name)
    if selector is None:
        raise ValueError(f"{name!r} is not the name of a Prometheus metric, with labels where needed")
    return selector


async def fetch(url: URL) -> bytes:
    """Return a page; raises PageError within SECONDS."""
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, auto_decompress=False, trust_env=False) as session,
            session.get(url, allow_redirects=False, headers=_HEADERS) as response,
        ):
            if response.status != 200:
                raise PageError(f"the answer is HTTP {response.status}, not 200")
            page = bytearray()
            async for part in response.content.iter_chunked(1 << 16):
                page += part
                if len(page) > MAX_PAGE:
                    raise PageError(f"the page has more than {MAX_PAGE} bytes; serve the trial's metrics alone")
            return bytes(page)
    except TimeoutError:
        raise PageError(f"no complete answer within {SECONDS:g} s") from None
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
