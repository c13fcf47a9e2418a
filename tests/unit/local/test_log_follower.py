"""Following a log: complete lines, an offset that a later reader continues from, and bounded pieces."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from podium_local.processes import log_follower
from podium_local.processes.log_follower import CHUNK, LONGEST_LINE, LogFollower, last_lines


def read_all(follower: LogFollower, *, complete: bool) -> list[str]:
    texts: list[str] = []
    while True:
        batch = follower.read(0.0, complete=complete)
        texts += [line.text for line in batch.lines]
        if not batch.more:
            return texts


def test_a_line_is_returned_once_it_is_complete(tmp_path: Path) -> None:
    log = tmp_path / "log"
    follower = LogFollower(log)
    assert read_all(follower, complete=False) == []
    log.write_text("one\ntw")
    assert read_all(follower, complete=False) == ["one"]
    with log.open("a") as file:
        file.write("o\nthree")
    assert read_all(follower, complete=False) == ["two"]
    assert follower.offset == len("one\ntwo\n")
    assert read_all(follower, complete=True) == ["three"]


def test_a_long_line_is_cut_and_memory_stays_bounded(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * (3 * LONGEST_LINE) + b"\nend\n")
    follower = LogFollower(log)
    texts = read_all(follower, complete=True)
    assert texts[-1] == "end"
    assert "".join(texts[:-1]) == "x" * (3 * LONGEST_LINE)
    assert max(map(len, texts)) <= LONGEST_LINE + CHUNK


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6))
def test_any_restart_reads_every_line_exactly_once(content: bytes, cuts: list[int]) -> None:
    folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path("/tmp")
    log = folder / "podium-test-log-follower"
    try:
        offset, texts = 0, []
        for end in [*sorted(cut for cut in cuts if cut < len(content)), len(content)]:
            log.write_bytes(content[:end])
            follower = LogFollower(log, offset)
            texts += read_all(follower, complete=end == len(content))
            offset = follower.offset
        expected = [part.decode("utf-8", "replace") for part in content.split(b"\n")]
        assert texts == (expected if expected[-1] else expected[:-1])
    finally:
        log.unlink(missing_ok=True)


def test_the_last_lines_are_those_that_are_not_empty(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(["x" * 5000, "a", "", "b", "c", ""]))
    assert last_lines(log, 2) == ("b", "c")
    assert last_lines(tmp_path / "missing", 2) == ()
    assert log_follower.CHUNK < LONGEST_LINE
