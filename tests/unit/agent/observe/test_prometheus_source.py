"""Pages of metrics that trials serve: what is selected, and pages that are hostile, slow, or elsewhere."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from podium_agent.observe.sources import prometheus
from podium_agent.observe.sources.prometheus import PageError, PrometheusSource, fetch, page_url
from podium_core.logs.selectors import Selector, parse_selector
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources import page_reader
from podium_core.sources.exposition import MAX_LINES, PageSample, names_on, samples, value_of
from podium_core.sources.page_reader import MAX_PAGE

PAGE = b"""# HELP acc Accuracy
# TYPE acc gauge
acc{split="train"} 0.9
acc{split="val"} 0.5
epoch 3
loss 2.5 1395066363000
other{x="\\"}"} 1
"""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def config(**more: Any) -> MetricsConfig:
    given = {"metric": 'acc{split="val"}', "direction": "maximize", "container": "train", "stepKey": "epoch"}
    more = {"source": "prometheus", "path": "/metrics", "port": 1, "additional": ["loss"]} | more
    return MetricsConfig.model_validate(given | more)


async def served(handler: Handler, use: Callable[[URL], Awaitable[Any]]) -> Any:
    app = web.Application()
    app.router.add_get("/metrics", handler)
    async with TestServer(app) as server:
        return await use(server.make_url("/metrics"))


def page(text: bytes) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=text)

    return answer


@pytest.mark.parametrize(
    ("selector", "value", "why"),
    [
        ('acc{split="val"}', 0.5, ""),
        ("epoch", 3.0, ""),
        ("loss", 2.5, ""),
        ("acc", None, "acc has 2 samples"),
        ('acc{split="test"}', None, "no sample acc{'split': 'test'}"),
        ("los", None, "no sample los"),
        ('other{x="\\"}"}', 1.0, ""),
    ],
)
def test_a_selector_selects_one_sample(selector: str, value: float | None, why: str) -> None:
    parsed = parse_selector(selector)
    assert parsed is not None
    found, trouble = value_of(parsed, samples(PAGE, {parsed.name}))
    assert found == value
    assert why in trouble


@pytest.mark.parametrize("text", ["a b", "1a", "a{", "a{b}", 'a{b="c}', 'a{b="c"', 'a{b="c",b="d"}', "a/b", ""])
def test_texts_that_are_no_selectors(text: str) -> None:
    assert parse_selector(text) is None


def test_only_some_short_lines_are_parsed() -> None:
    long = b'acc{x="' + b"y" * 2000 + b'"} 1\n'
    many = b"".join(b'acc{x="%d"} 1\n' % number for number in range(10 * MAX_LINES))
    assert len(samples(long + many, {"acc"})) == MAX_LINES - 1
    assert samples(b"acc{broken 1\nacc 2\nacc", {"acc"}) == [PageSample("acc", {}, 2.0)]
    assert names_on(PAGE) == "acc, epoch, loss, other"
    assert value_of(Selector("acc"), []) == (None, "the page has no sample acc")


@pytest.mark.parametrize("line", [b"acc " + b"9" * 400, b"acc 1 " + b"9" * 400, b"acc -" + b"9" * 900])
def test_a_number_that_is_too_large_is_left_out(line: bytes) -> None:
    assert samples(line + b"\nloss 2", {"acc", "loss"})[-1] == PageSample("loss", {}, 2.0)

    assert samples(line, {"acc"}) in ([], [PageSample("acc", {}, 1.0)])


def test_a_real_page_is_read_as_prometheus_reads_it() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("acc", "Accuracy", ["split", "fold"], registry=registry)
    for split, value in (("val", 0.5), ('a "b" \\ c\nd', 1e-9), ("é,}", math.inf), ("", -1234567890123.0)):
        gauge.labels(split, "1").set(value)
    Counter("acc_seen", "Samples", registry=registry).inc(3)
    text = generate_latest(registry)
    names = {"acc", "acc_seen_total", "acc_seen_created"}
    theirs = [one for family in text_string_to_metric_families(text.decode()) for one in family.samples]
    assert [(one.name, dict(one.labels), one.value) for one in samples(text, names)] == [
        (one.name, one.labels, one.value) for one in theirs
    ]
    assert len(theirs) == 6


def test_an_unexpected_error_ends_only_this_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> list[PageSample]:
        raise RecursionError("too deep")

    async def use(url: URL) -> None:
        monkeypatch.setattr(prometheus, "page_url", lambda *_: url)
        monkeypatch.setattr(prometheus, "due_every", lambda *_: lambda: True)
        source = PrometheusSource(lambda: "10.0.0.1", config())

        async def reads() -> int:
            await source.read(False)
            assert source._reading is not None
            await asyncio.wait({source._reading})
            return len((await source.read(True)).lines)

        with monkeypatch.context() as patch:
            patch.setattr(page_reader, "samples", broken)
            assert await reads() == 0
        assert "the page cannot be read: RecursionError: too deep" in source.explain()
        assert await reads() == 1
        assert source.explain() == ""

    asyncio.run(served(page(PAGE), use))


def test_a_page_becomes_records_when_its_values_change(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [b"", PAGE, PAGE, PAGE.replace(b"epoch 3", b"epoch 4")]

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=pages.pop(0))

    async def use(url: URL) -> list[dict[str, Any]]:
        monkeypatch.setattr(prometheus, "page_url", lambda *_: url)
        monkeypatch.setattr(prometheus, "due_every", lambda *_: lambda: True)
        source = PrometheusSource(lambda: "10.0.0.1", config())
        records: list[dict[str, Any]] = []
        explained = []
        while pages:
            await source.read(False)
            assert source._reading is not None
            await asyncio.wait({source._reading})
            explained.append(source.explain())
            records += [json.loads(line.text) for line in (await source.read(True)).lines]
        assert "the page has no sample acc" in explained[0]
        assert source.explain() == ""
        source.close()
        return records

    values = {'acc{split="val"}': 0.5, "loss": 2.5}
    assert asyncio.run(served(answer, use)) == [{"step": 3.0, "values": values}, {"step": 4.0, "values": values}]


def test_hostile_pages_are_given_up() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65536)
        except ConnectionError:
            return response

    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x")
                await asyncio.sleep(0.05)
        except ConnectionError:
            return response

    async def elsewhere(_: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("http://169.254.169.254/")

    async def why(handler: Handler) -> str:
        async def use(url: URL) -> str:
            began = time.monotonic()
            with pytest.raises(PageError) as caught:
                await fetch(url)
            assert time.monotonic() - began < 60
            return str(caught.value)

        text: str = await served(handler, use)
        return text

    assert f"more than {MAX_PAGE} bytes" in asyncio.run(why(endless))
    assert "no complete answer within 2 s" in asyncio.run(why(slow))
    assert "HTTP 302" in asyncio.run(why(elsewhere))


def test_a_compressed_page_is_not_unpacked() -> None:
    async def packed(_: web.Request) -> web.StreamResponse:
        return web.Response(body=b"\x1f\x8b" + b"\0" * 100, headers={"Content-Encoding": "gzip"})

    assert asyncio.run(served(packed, fetch)) == b"\x1f\x8b" + b"\0" * 100


def test_a_refused_connection_names_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> str:
        monkeypatch.setattr(prometheus, "page_url", lambda *_: URL("http://127.0.0.1:1/metrics"))
        source = PrometheusSource(lambda: "10.0.0.1", config())
        await source.read(False)
        assert source._reading is not None
        await asyncio.wait({source._reading})
        await source.read(True)
        return source.explain()

    text = asyncio.run(scene())
    assert "port 1, path /metrics: connection failed" in text


@pytest.mark.parametrize("address", ["", "127.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "kubernetes.default"])
def test_only_the_address_of_a_pod_is_read(address: str) -> None:
    with pytest.raises(PageError):
        page_url(address, 80, "/")


def test_the_url_of_a_page() -> None:
    assert str(page_url("10.0.0.1", 80, "//evil.example/x?a=b")) == "http://10.0.0.1/evil.example/x?a=b"
    assert str(page_url("fd00::1", 8000, "/metrics")) == "http://[fd00::1]:8000/metrics"
