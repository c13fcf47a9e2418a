"""Lines of a log: cut from a stream in bounded memory, shown once each, and without control of the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from podium_cli.logs.log_options import safe
from podium_cli.logs.timed_lines import LONGEST, LineSplitter, Piece, Position


def pieces(*chunks: bytes) -> list[Piece]:
    splitter = LineSplitter()
    return [*(piece for chunk in chunks for piece in splitter.feed(chunk)), *splitter.end()]


def shown(position: Position, times: Iterable[str]) -> list[int]:
    """Return which of the lines with these times are new."""
    return [at for at, time in enumerate(times) if position.is_new(Piece(time, b""))]


@given(st.lists(st.binary(max_size=9), max_size=9), st.integers(1, 20))
def test_chunks_of_any_size_give_the_same_lines(lines: list[bytes], size: int) -> None:
    lines = [line.replace(b"\n", b"") for line in lines]
    stream = b"".join(b"2026-01-15T09:30:00.5Z " + line + b"\n" for line in lines)
    cut = pieces(*(stream[at : at + size] for at in range(0, len(stream), size)))
    assert [piece.text for piece in cut] == [line + b"\n" for line in lines]
    assert {piece.time for piece in cut} <= {"2026-01-15T09:30:00.5Z"}


def test_a_line_without_end_is_passed_on_in_pieces() -> None:
    cut = pieces(b"2026-01-15T09:30:00Z " + b"x" * 3 * LONGEST)
    assert b"".join(piece.text for piece in cut) == b"x" * 3 * LONGEST
    assert [piece.first for piece in cut] == [True, False, False, False]
    assert max(len(piece.text) for piece in cut) <= LONGEST


def test_a_sentence_of_the_kubelet_and_an_empty_line_are_lines() -> None:
    assert pieces(b"unable to retrieve container logs\n") == [Piece("", b"unable to retrieve container logs\n")]
    assert pieces(b"2026-01-15T09:30:00+01:00 \n") == [Piece("2026-01-15T09:30:00+01:00", b"\n")]


def test_lines_that_are_sent_again_are_shown_once() -> None:
    position = Position()
    assert shown(position, ["1", "2", "2"]) == [0, 1, 2]
    position.reconnect()
    assert shown(position, ["1", "2", "2", "2", "3"]) == [3, 4]
    position.reconnect()
    assert shown(position, ["3", "4"]) == [1]


def test_a_clock_that_is_set_back_hides_no_line() -> None:
    position = Position()
    assert shown(position, ["5", "3", "4"]) == [0, 1, 2]


def test_pieces_of_a_long_line_share_its_fate() -> None:
    position = Position()
    long = [Piece("1", b"a"), Piece("", b"b", first=False)]
    assert [position.is_new(piece) for piece in long] == [True, True]
    position.reconnect()
    assert [position.is_new(piece) for piece in long] == [False, False]


def test_a_terminal_gets_colours_and_no_other_control() -> None:
    assert safe(b"\x1b[1;31mred\x1b[0m\r\t\n") == b"\x1b[1;31mred\x1b[0m\r\t\n"
    assert safe(b"\x1b]0;title\x07\x1b[2J\xc2\x9b2J\x08ok\xc3\xa9") == b"]0;title[2J2Jok\xc3\xa9"
