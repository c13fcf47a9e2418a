"""Values that Kubernetes or a process cannot take as they are written: huge integers, NUL and broken characters.

`validation` calls it. The API server refuses integers beyond 64 bits, or stores them as rounded numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from podium_core.schema.rules import Refusal

SMALLEST_INT, LARGEST_INT = -(2**63), 2**63 - 1
MAX_FOUND = 16  # values that are reported
MAX_SHOWN = 20  # digits of an integer that a message shows


def text_refusals(value: Any, where: str) -> Iterator[Refusal]:
    """Yield a refusal for each text with a NUL, or with half of a surrogate pair."""
    if _is_plain(value):
        return
    for place, one in _leaves(value, where):
        if not isinstance(one, str):
            continue
        if "\0" in one:
            message = "contains a NUL, which no argument, variable or file name can hold: remove it"
            yield Refusal("InvalidValue", _printable(place), message)
        elif not is_text(one):
            message = "contains half of a surrogate pair, which is not a character: write the whole character"
            yield Refusal("InvalidValue", _printable(place), message)


def integer_refusals(value: Any, where: str) -> Iterator[Refusal]:
    """Yield a refusal for each integer beyond 64 bits."""
    for place, one in _leaves(value, where):
        if isinstance(one, int) and not SMALLEST_INT <= one <= LARGEST_INT:
            message = (
                f"must be an integer of at most 64 bits, not {_shown(one)}, which Kubernetes would round or refuse: "
                "write a smaller number, or the digits as text in quotes"
            )
            yield Refusal("InvalidValue", _printable(place), message)


def is_text(one: str) -> bool:
    """Return whether a text can be written as UTF-8: half of a surrogate pair cannot."""
    try:
        one.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(number: int) -> str:
    bits = number.bit_length()
    return str(number) if bits <= 3 * MAX_SHOWN + 10 else f"one of {bits} bits"


def _leaves(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Yield each text and number in a value, and each key of a map, with its field."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            place = f"{where}.{key}"
            yield place, key
            yield from _leaves(one, place)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _leaves(one, f"{where}[{number}]")
    else:
        yield where, value


def _is_plain(value: Any) -> bool:
    """Return whether no text in a value needs a look: nearly all are such, and the operator asks at every event."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return False
    return "\\u0000" not in text and is_text(text)


def _printable(field: str) -> str:
    """Return a field that every terminal and log can hold."""
    return field.encode(errors="backslashreplace").decode().replace("\0", "\\0")
