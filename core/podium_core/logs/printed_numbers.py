"""Numbers as training scripts print them, read strictly: a text with more than one meaning yields no number.

All readers of lines call this module. It accepts `0.81`, `0.81.` at the end of a sentence, `0,73`, `1,234.5`, `81 %`,
`12.5ms`, `nan`, `np.float64(0.81)` and `tensor(0.71, device='cuda:0')`. It refuses `1,234` (decimal comma or
thousands?), dates, times, durations such as `1m30s`, versions, ranges, `0.34 -> 0.32`, hexadecimal numbers and `1.2k`.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

LONGEST = 128  # characters of a line that one number may take, with the call around it

_CALL = r"(?:[A-Za-z_]\w*\.)*(?:b?float\d*|u?int\d+|(?:Eager)?[Tt]ensor|[Aa]rray|DeviceArray|Variable|Decimal)\(\s*"
_SPACES = "\u00a0\u202f\u2009"  # no-break and thin spaces, which locales write between thousands
_TOKEN = re.compile(
    rf"(?P<open>(?:{_CALL})?\[?\s*)(?P<quote>['\"]?)(?P<sign>[+\-\u2212]?)"
    rf"(?:(?P<word>nan|inf(?:inity)?)(?!\w|\.\w)|(?P<digits>[0-9][0-9.,_'{_SPACES}]*|\.[0-9][0-9_]*))",
    re.IGNORECASE | re.ASCII,
)
_EXPONENT = re.compile(r"[eE][+-]?[0-9]+", re.ASCII)
_PLAIN = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+", re.ASCII)
_DECIMAL_COMMA = re.compile(r"0,[0-9]+|[0-9]+,(?:[0-9]{1,2}|[0-9]{4,})", re.ASCII)
_GROUPED = re.compile(  # groups of thousands: which mark separates them, and which precedes the decimals
    rf"(?P<whole>[0-9]{{1,3}}(?:(?P<mark>[.,_'{_SPACES}])[0-9]{{3}})(?:(?P=mark)[0-9]{{3}})*)(?:(?P<point>[.,])(?P<part>[0-9]+))?",
    re.ASCII,
)
# what makes a number part of something else: a time, a date, a product, another base, 1.2k, 5GiB, an identifier
_CONTINUES = r"[:*^\u00d7+\-\u2212][0-9(]|\*\*|[_.,]?[0-9]|_|[xXoObB][0-9a-fA-F]|[eExXkKMGTPBj](?![a-z])|[KMGTP]i?B\b"
_AFTER_COUNTER = re.compile(_CONTINUES, re.ASCII)
_AFTER_VALUE = re.compile(  # also: a part of a total, a change, a power of ten, a duration, a size with a space
    rf" ?/ ?[0-9]| ?(?:[-=]+>|\u2192) ?[+-]?[0-9.]| ?[xX\u00d7*] ?10(?:\^|\*\*|[\u207b\u2070-\u2079\u00b9\u00b2\u00b3])"
    rf"|(?:d|h|m|min) ?[0-9]| (?:h|min) [0-9]| [KMGTP]i?B\b|{_CONTINUES}",
    re.ASCII,
)
_SPACED_THOUSANDS = re.compile(r" [0-9]{3}(?!\w)", re.ASCII)


class Printed(NamedTuple):
    """A number that was read, and the index after it."""

    value: float
    end: int


def printed_number(text: str, start: int = 0, *, counter: bool = False) -> Printed | None:
    """Return the number printed at `start`; None where there is none, or none with a single meaning.

    `counter`: the number counts steps. Then `3/10` is 3 and `1,000` is 1000.
    """
    window = text[start : start + LONGEST]
    token = _TOKEN.match(window)
    if token is None:
        return None
    sign = -1.0 if token["sign"] in ("-", "\u2212") else 1.0
    if token["word"] is not None:
        end, value = token.end(), math.nan if token["word"].lower() == "nan" else math.inf
    else:
        digits = token["digits"].rstrip(f".,_'{_SPACES}")
        if token["digits"].startswith(f"{digits}.") and _PLAIN.fullmatch(digits) and "." not in digits:
            digits += "."  # `5.` is a number, with or without the end of a sentence
        end = token.start("digits") + len(digits)
        magnitude = _magnitude(digits, counter)
        exponent = _EXPONENT.match(window, end)
        if exponent is not None:
            end = exponent.end()
            magnitude = float(f"{digits}{exponent[0]}") if _PLAIN.fullmatch(digits) else None
        if magnitude is None:
            return None
        value = magnitude
        if digits.isdecimal() and len(digits) <= 3 and _SPACED_THOUSANDS.match(window, end):
            return None  # 1 234 is one number in some languages
    closed = _closed(window, end, token["open"], token["quote"])
    if closed is None or (_AFTER_COUNTER if counter else _AFTER_VALUE).match(window, closed):
        return None
    return Printed(sign * value, start + closed)


def number_of_text(text: str, *, counter: bool = False) -> float | None:
    """Return the number of a short text that consists of one number.

    An example is a string in a JSON record. A unit may follow the number.
    """
    stripped = text.strip()
    number = printed_number(stripped, counter=counter) if len(stripped) <= LONGEST else None
    return number.value if number is not None and len(stripped[number.end :].split()) <= 1 else None


def _magnitude(digits: str, counter: bool) -> float | None:
    """Return the value of digits with marks between them; None where the marks have no single meaning."""
    if _PLAIN.fullmatch(digits):
        return float(digits)
    if not counter and _DECIMAL_COMMA.fullmatch(digits):
        return float(digits.replace(",", "."))
    grouped = _GROUPED.fullmatch(digits)
    if grouped is None or digits.startswith("0"):
        return None
    mark, groups = grouped["mark"], grouped["whole"].count(grouped["mark"])
    if grouped["point"] == mark or (mark == "." and grouped["point"] is None):
        return None  # `1,234,5`, or a version such as 1.234.567
    if mark == "," and groups == 1 and grouped["point"] is None and not counter:
        return None  # 1,234 is 1.234 in some languages
    return float(grouped["whole"].replace(mark, "") + "." + (grouped["part"] or "0"))


def _closed(window: str, end: int, opened: str, quote: str) -> int | None:
    """Return the index after what closes the quote, list and call around a number; None where it is not alone."""
    if quote:
        if not window.startswith(quote, end):
            return None
        end += 1
    if "[" in opened:
        end = len(window) - len(window[end:].lstrip())
        if not window.startswith("]", end):
            return None  # more than one number
        end += 1
    if "(" in opened:
        rest = window[end:].lstrip()
        if not rest.startswith((")", ",")):
            return None
        if rest.startswith(")"):
            end = len(window) - len(rest) + 1
    return end
