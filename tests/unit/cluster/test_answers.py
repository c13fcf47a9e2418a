"""Responses of the API server are bounded in size and checked, and errors say how long to wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from podium_cluster.access.answers import check_list, check_object, parse_object, read_all, read_lines, read_start
from podium_cluster.errors import MAX_RETRY_AFTER, ApiError, error_from_answer


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def endless(part: bytes) -> AsyncIterator[bytes]:
    while True:
        yield part


def collect(parts: AsyncIterator[bytes], limit: int) -> list[bytes]:
    async def play() -> list[bytes]:
        return [line async for line in read_lines(parts, limit, "watch")]

    return asyncio.run(play())


def test_lines_are_assembled_and_a_cut_line_is_omitted() -> None:
    assert collect(chunks(b"a", b"b\n\n c\r\nd", b"", b"e\n", b"cut"), 5) == [b"ab", b" c\r", b"de"]


@pytest.mark.parametrize("part", [b"x", b"x" * 100, b"\nxxxxxx", b"xxxxxx\n"])
def test_a_line_that_is_too_long_ends_the_stream(part: bytes) -> None:
    with pytest.raises(ApiError, match="longer than 5 bytes"):
        collect(endless(part), 5)


def test_bodies_are_bounded() -> None:
    with pytest.raises(ApiError, match="larger than 10 bytes"):
        asyncio.run(read_all(endless(b"xyz"), 10, "GET /x"))
    assert asyncio.run(read_all(chunks(b"xyz", b"xyz"), 6, "GET /x")) == b"xyzxyz"
    assert asyncio.run(read_start(endless(b"xyz"), 10)) == b"xyzxyzxyzx"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"1", b"[" * 100_000, b"\xff", b"9" * 5000])
def test_what_is_no_object_is_malformed(body: bytes) -> None:
    with pytest.raises(ApiError) as raised:
        parse_object(body, "GET /x")
    assert raised.value.malformed
    assert raised.value.transient


def test_a_status_of_a_failure_is_its_error() -> None:
    with pytest.raises(ApiError, match="too old") as raised:
        parse_object(b'{"kind": "Status", "status": "Failure", "code": 410, "message": "too old"}', "GET /x")
    assert raised.value.expired


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"metadata": []},
        {"metadata": {"name": "a"}},
        {"metadata": {"resourceVersion": "1"}},
        {"metadata": {"name": 1, "resourceVersion": "1"}},
    ],
)
def test_objects_have_a_name_and_a_version(answer: object) -> None:
    with pytest.raises(ApiError):
        check_object(answer, "GET /x")


def test_a_list_is_valid_as_a_whole() -> None:
    about = {"resourceVersion": "1"}
    good = {"metadata": {"name": "a", "resourceVersion": "1"}}
    assert check_list({"metadata": about, "items": None}, "GET /x")["items"] == []
    assert check_list({"metadata": about, "items": [good]}, "GET /x")["items"] == [good]
    for items in ("missing", {}, [good, None], [good, {"metadata": {}}], [{"metadata": {"name": "a", "namespace": 1}}]):
        with pytest.raises(ApiError):
            check_list({"metadata": about} | ({} if items == "missing" else {"items": items}), "GET /x")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), (None, 0), ("-1", 0), ("nan", 0), ("soon", 0), ("9" * 400, 0), ("100000", MAX_RETRY_AFTER)],
)
def test_the_time_to_wait(header: str | None, seconds: float) -> None:
    assert error_from_answer(429, header, b"").retry_after == seconds


@pytest.mark.parametrize("body", [b"[]", b"<html>", b"[" * 100_000, b'{"details": [], "message": {}, "reason": 5}'])
def test_any_error_body_is_an_error(body: bytes) -> None:
    assert error_from_answer(503, None, body).status == 503


def test_the_time_to_wait_in_a_status() -> None:
    assert error_from_answer(429, "1", b'{"details": {"retryAfterSeconds": 9}, "message": "busy"}').retry_after == 9
