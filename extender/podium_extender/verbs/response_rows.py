"""The response of prioritize, assembled from rows that are written once: `{"Host":"node-a","Score": 7}`.

Creating 5,000 dictionaries for JSON would take longer than the rest of the response, and so would collecting 5,000
separate byte strings. Therefore the rows of all nodes have the same length and lie in one array, each at its node's
place (`views`). Spaces before the number, which are insignificant in JSON, pad shorter names and scores of one digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from podium_extender.state.views import UNKNOWN, Views

_END = b"00},"  # of a row, with two digits for the score
_TENS, _ONES = -4, -3
_ZERO = ord("0")


class ResponseRows:
    """The prepared rows of all nodes, about 60 bytes each."""

    def __init__(self) -> None:
        self._rows = np.empty((0, len(_END)), dtype=np.uint8)
        self._roster = -1

    def write(self, names: Sequence[str], scores: NDArray[np.int64], views: Views) -> bytes:
        """Return a JSON list in the order given (HostPriorityList); each score is from 0 to HIGHEST."""
        if not len(names):
            return b"[]"
        if self._roster != views.roster:
            self._rows, self._roster = _layout(views), views.roster
        places, width = views.places(names), self._rows.shape[1]
        text = np.empty(1 + len(names) * width, dtype=np.uint8)
        rows = text[1:].reshape(len(names), width)
        self._rows.take(places, axis=0, out=rows, mode="clip")
        rows[:, _TENS] = np.where(scores > 9, _ZERO + 1, ord(" "))
        rows[:, _ONES] = _ZERO + scores % 10
        text[0], text[-1] = b"[]"
        unknown = np.flatnonzero(places == UNKNOWN).tolist()
        return text.tobytes() if not unknown else _replace_rows(text.tobytes(), width, unknown, names, scores)


def _layout(views: Views) -> NDArray[np.uint8]:
    """Return one row for each place, at least one; the row of a deleted node is never used."""
    starts = {place: b'{"Host":%b,"Score":' % to_json(name) for name, place in views.placed()}
    width = max(map(len, starts.values()), default=0)
    rows = [starts.get(place, b"").ljust(width) + _END for place in range(1 + max(starts, default=0))]
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), -1)


def _replace_rows(
    text: bytes, width: int, unknown: Sequence[int], names: Sequence[str], scores: NDArray[np.int64]
) -> bytes:
    """Return the text with rows for the few nodes without a place, whose agents have not written a GPUNode yet."""
    kept = [text[1 + width * (start + 1) : 1 + width * end] for start, end in pairwise([-1, *unknown, len(names)])]
    own = [b'{"Host":%b,"Score":%d},' % (to_json(names[i]), scores[i]) for i in unknown]
    whole = b"".join([piece for pair in zip(kept, [*own, b""], strict=True) for piece in pair])
    return b"[%b]" % whole.rstrip(b",]")
