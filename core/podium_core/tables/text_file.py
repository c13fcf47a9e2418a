"""Lines of a text file that another tool wrote: plain or packed by gzip, UTF-8 or UTF-16 with a byte-order mark.

The size of a line and of the whole unpacked text are bounded. What is not text is refused with its line.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

MAX_LINE = 1 << 26  # characters of one line
MAX_TEXT = 1 << 28  # characters of one file, after it is unpacked
_GZIP = b"\x1f\x8b"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class TextFileError(ValueError):
    """File that is not text, is cut off, or exceeds a limit; the message has the file, line and cure."""

    code = "FileMalformed"


def is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def refuse_devices(path: Path) -> None:
    """Raise OSError for a device such as /dev/zero: reading it to its end would fill the memory."""
    if path.is_char_device():
        raise OSError(errno.EINVAL, "a device, which has no end", str(path))


def text_lines(path: Path, *, longest: int = MAX_LINE, largest: int = MAX_TEXT) -> Iterator[str]:
    """Yield the lines of a file with their line ends: \\n, \\r\\n or \\r.

    `longest`, `largest`: limits in characters of a line and of the file. Raises TextFileError, and OSError where the
    file cannot be opened.
    """
    refuse_devices(path)
    number = characters = 0
    try:
        with path.open("rb") as file, _text(path, file) as text:
            while line := text.readline(longest + 1):
                number += 1
                characters += len(line)
                _check(line, f"{path.name}, line {number}", longest)
                if characters > largest:
                    limit = f"more than {largest} characters of text; split the file, or keep every tenth value"
                    raise TextFileError(f"{path.name}: after line {number}: {limit}")
                yield line
            if number == 0 and text.encoding == "utf-16":
                raise TextFileError(f"{path.name}: nothing but a byte-order mark; copy the file again")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        why = f"after line {number}: the gzip data is cut off or damaged, so it is not a complete gzip file ({error})"
        raise TextFileError(f"{path.name}: {why}; copy the file again, or unpack it") from None
    except UnicodeDecodeError as error:  # UTF-16; invalid UTF-8 is found by its line
        why = f"not UTF-16 text ({error.reason}), as its first two bytes state; save it as UTF-8"
        raise TextFileError(f"{path.name}: after line {number}: {why}") from None


def _text(path: Path, file: IO[bytes]) -> io.TextIOWrapper:
    """Return the file as text, unpacked where its name or its first bytes say that it is packed."""
    reader = cast(io.BufferedReader, file)
    if is_packed(path) or reader.peek(2)[:2] == _GZIP:
        reader = io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=reader)))
    if reader.peek(2)[:2] in _UTF16:
        return io.TextIOWrapper(reader, "utf-16", newline="")
    # Bytes that are not UTF-8 become surrogates, so that the line with them is known.
    return io.TextIOWrapper(reader, "utf-8-sig", errors="surrogateescape", newline="")


def _check(line: str, where: str, longest: int) -> None:
    if len(line) > longest:
        raise TextFileError(f"{where}: more than {longest} characters without a line end; give one record a line")
    if "\0" in line:
        text = "a NUL byte, so this is not text or is UTF-16 without a byte-order mark; save it as UTF-8"
        raise TextFileError(f"{where}: {text}")
    if not line.isascii():
        try:
            line.encode()
        except UnicodeEncodeError as error:
            byte = ord(line[error.start]) - 0xDC00
            text = f"not UTF-8 text (byte 0x{byte & 0xFF:02x} at character {error.start + 1}); save it as UTF-8"
            raise TextFileError(f"{where}: {text}") from None
