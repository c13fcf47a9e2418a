"""How values read to a person."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

import pytest

from podium_views import formatting
from podium_views.template import code


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.0, "0"),
        (0.95, "0.95"),
        (0.961234, "0.9612"),
        (64.0, "64"),
        (123456.0, "123456"),
        (-9999.6, "-10000"),
        (1e-5, "1e-05"),
        (1.7e308, "1.7e+308"),
        (-3.5, "-3.5"),
        (float("nan"), "diverged"),
        (-sys.float_info.max, "diverged"),
    ],
)
def test_number(value: float | None, shown: str) -> None:
    assert formatting.number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"),
        (-1, "0 s"),
        (0, "0 s"),
        (0.0004, "1 ms"),
        (0.066, "66 ms"),
        (2.5, "2.5 s"),
        (59.4, "59 s"),
        (59.6, "1 m 00 s"),
        (185, "3 m 05 s"),
        (7620, "2 h 07 m"),
    ],
)
def test_duration(seconds: float | None, shown: str) -> None:
    assert formatting.duration(seconds) == shown


def test_count() -> None:
    assert [formatting.count(things, "GPU") for things in (0, 1, 2)] == ["0 GPUs", "1 GPU", "2 GPUs"]


def test_scalars_of_every_type() -> None:
    assert (
        formatting.parameters({"lr": 1e-4, "bs": 64, "flip": True, "act": "relu"})
        == "lr=0.0001 bs=64 flip=true act=relu"
    )


def test_control_characters_never_reach_a_terminal() -> None:
    assert formatting.clean("a\x1b[2Jb\r\nc") == "a [2Jb  c"


@pytest.mark.parametrize(
    ("hours", "shown"),
    [(0.01, "36 s"), (26.5, "26 h 30 m"), (47.9, "47 h 54 m"), (48, "2 d 00 h"), (8000.5, "333 d 08 h")],
)
def test_an_old_age_is_in_days(hours: float, shown: str) -> None:
    now = datetime(2026, 1, 15, tzinfo=UTC)
    assert formatting.age(now - timedelta(hours=hours), now) == shown
    assert formatting.age(None, now) == "–"


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("Ctrl-C in the terminal of `podium run` ends it", "Ctrl-C in the terminal of <code>podium run</code> ends it"),
        ("`a` and `b", "<code>a</code> and `b"),
        ("``", "``"),
        ("`<b>`", "<code>&lt;b&gt;</code>"),
        ("<code>`</code>", "&lt;code&gt;`&lt;/code&gt;"),
        ("`two\nlines`", "`two\nlines`"),
    ],
)
def test_code_between_backticks_and_nothing_else_becomes_markup(text: str, html: str) -> None:
    assert str(code(text)) == html
