"""Lines of text files: encodings, packed files and limits."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from podium_core.tables.text_file import TextFileError, text_lines


def written(folder: Path, content: bytes, name: str = "x.csv") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_a_packed_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    bomb = gzip.compress(b"0123456789abcdef\n" * 500_000)
    assert len(bomb) < 60_000
    read = text_lines(written(tmp_path, bomb, "x.csv.gz"), largest=100_000)
    with pytest.raises(TextFileError, match=r"x.csv.gz: after line 5883: more than 100000 characters of text; split"):
        list(read)


def test_a_line_without_an_end_is_refused_after_its_limit(tmp_path: Path) -> None:
    with pytest.raises(TextFileError, match=r"x.csv, line 2: more than 100 characters without a line end"):
        list(text_lines(written(tmp_path, b"a\n" + b"b" * 10_000), longest=100))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "x.csv: nothing but a byte-order mark"),
        (b"\xff\xfea", "x.csv: after line 0: not UTF-16 text"),
        (b"a\n\xc3", r"x.csv, line 2: not UTF-8 text \(byte 0xc3 at character 1\); save it as UTF-8"),
        (b"a\nb\0\n", "x.csv, line 2: a NUL byte"),
        (b"\x1f\x8b\x08", "x.csv: after line 0: the gzip data is cut off or damaged"),
    ],
)
def test_what_is_not_text_is_refused_with_its_line(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(TextFileError, match=message):
        list(text_lines(written(tmp_path, content)))


def test_devices_have_no_end() -> None:
    with pytest.raises(OSError, match="a device, which has no end"):
        list(text_lines(Path("/dev/zero")))
