"""Names and texts of a search that are safe as file names and in the files of other tools. Pure."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection
from datetime import UTC, datetime

from podium_core.domain.snapshot import Scalar

MAX_NAME = 120  # characters of a file name
MAX_TEXT = 6000  # characters of a text; MLflow's limit of a parameter
MAX_WHOLE = 1 << 53  # beyond it not every whole number is a double
MAX_DIGITS = 400  # decimal digits of a whole number that is written as it is
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]+", re.ASCII)


def clean(text: str) -> str:
    """Return the text on one line, with unprintable characters escaped, and cut to MAX_TEXT."""
    plain = "".join(letter if letter.isprintable() else _escaped(letter) for letter in text[: MAX_TEXT + 1])
    return plain if len(plain) <= MAX_TEXT else f"{plain[: MAX_TEXT - 3]}..."


def digest_of(text: str) -> bytes:
    """Return a hash of any text, for names that must differ where the texts do."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def file_name(text: str) -> str:
    """Return a name for a file or folder; a changed name ends with a hash of the text."""
    if len(text) <= MAX_NAME and _PLAIN.fullmatch(text):
        return text
    return f"{_UNSAFE.sub('_', text).strip('._-')[:MAX_NAME]}-{digest_of(text).hex()[:12]}".lstrip("-")


def path_name(text: str, others: Collection[str] = ()) -> str:
    """Return a relative path for a name with slashes, such as `val/acc`, each part of it safe.

    A name that is a folder of one of the `others` becomes one file name.
    """
    parts = text.split("/")
    nested = any(other != text and (other.startswith(f"{text}/") or text.startswith(f"{other}/")) for other in others)
    if not nested and len(text) <= MAX_NAME and all(_PLAIN.fullmatch(part) for part in parts):
        return text
    return file_name(text)


def scalar(value: Scalar) -> Scalar:
    """Return a parameter as other tools take it: a text instead of a number that a double cannot hold."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if abs(value) <= MAX_WHOLE else text_of(value)


def text_of(value: Scalar) -> str:
    """Return a parameter as text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:
        return hex(value)[: MAX_TEXT - 3]  # Python refuses to write more than 4,300 decimal digits
    return clean(str(value))


def moment(seconds: float | None) -> datetime | None:
    """Return a time in seconds since 1970 as a datetime; None if it lies outside the years 1 to 9999."""
    if seconds is None or not math.isfinite(seconds):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")
