"""Metrics on a page that the trial serves, in Prometheus' text format, as a job's selectors select them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from podium_core.logs.readings import Reader, ready_line, ready_reader
from podium_core.logs.selectors import Selector, parse_selector
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.exposition import names_on, samples, value_of

MAX_PAGE = 1 << 20  # bytes
FETCH_SECONDS = 2.0  # until a page must have been read
HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"}
TOO_LONG = f"the page has more than {MAX_PAGE} bytes; serve the trial's metrics alone"
TOO_SLOW = f"no complete answer within {FETCH_SECONDS:g} s"


class PageReader:
    """Reader of one trial's pages.

    `trouble`: why the last page yields no value, or was not read; empty if it yields one.
    """

    def __init__(self, metrics: MetricsConfig) -> None:
        """Raise ValueError for a metric that is not a selector."""
        self.parse: Reader = ready_reader(metrics.metric, metrics.additional)
        self.trouble = "the page has not been read yet"
        self._metrics = metrics
        names = (metrics.metric, metrics.step_key, *metrics.additional)
        self._selectors = {name: _selector(name) for name in names}
        self._last: tuple[float, Mapping[str, float]] | None = None

    def read(self, page: bytes) -> str | None:
        """Return the line of the page's values; None without a step and a value, or without a change."""
        found = samples(page, {selector.name for selector in self._selectors.values()})
        values: dict[str, float] = {}
        troubles: list[str] = []
        for name, selector in self._selectors.items():
            value, why = value_of(selector, found)
            if value is not None:
                values[name] = value
            elif name in (self._metrics.metric, self._metrics.step_key):
                troubles.append(why)
        self.trouble = "; ".join(troubles) and f"{'; '.join(troubles)}. It has {names_on(page) or 'no sample'}"
        step = values.pop(self._metrics.step_key, None)
        if step is None or not values or (step, values) == self._last:
            return None
        self._last = (step, values)
        return ready_line(step, values)

    def explain(self, port: int) -> str:
        """Return what was read at this port, and why it yields no value."""
        return (
            f"metrics.source prometheus, port {port}, path {self._metrics.path}: {self.trouble}" if self.trouble else ""
        )


def _selector(name: str) -> Selector:
    selector = parse_selector(name)
    if selector is None:
        raise ValueError(f"{name!r} is not the name of a Prometheus metric, with labels where needed")
    return selector
