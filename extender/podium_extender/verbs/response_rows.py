"""The answer of prioritize, put together from rows that are written once: `{"Host":"node-a","Score": 7}`. Used by
`verbs`.

Making 5,000 dictionaries of JSON would take longer than all the rest of an answer, and so does finding 5,000 pieces of
bytes all over the memory. So the rows of all nodes lie in one array, each at its node's place (`views`) and all of one
length: space before the number, which means nothing in JSON, makes up for a shorter name or a score of one digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from podium_extender.state.views import UNKNOWN, Views

_END = b"00},"  # of a row, with room for the score
_TENS, _ONES = -4, -3
_ZERO = ord("0")


class ResponseRows:
    """About 60 bytes a node."""

    def __init__(self) -> None:
        self._rows = np.empty((0, len(_END)), dtype=np.uint8)
        self._roster = -1

    def write(self, names: Sequence[str], scores: NDArray[np.int64], views: Views) -> bytes:
        """A JSON list in the order given (HostPriorityList); scores are from 0 to HIGHEST, one a name."""
        if not len(names):
            return b"[]"
        if self._roster != views.roster:
            self._rows, self._roster = _laid_out(views), views.roster
        places, width = views.places(names), self._rows.shape[1]
        said = np.empty(1 + len(names) * width, dtype=np.uint8)
        rows = said[1:].reshape(len(names), width)
        self._rows.take(places, axis=0, out=rows, mode="clip")
        rows[:, _TENS] = np.where(scores > 9, _ZERO + 1, ord(" "))
        rows[:, _ONES] = _ZERO + scores % 10
        said[0], said[-1] = b"[]"
        strange = np.flatnonzero(places == UNKNOWN).tolist()
        return said.tobytes() if not strange else _with(said.tobytes(), width, strange, names, scores)


def _laid_out(views: Views) -> NDArray[np.uint8]:
    """A row a place, at least one; that of a node that is gone is nobody's."""
    heads = {place: b'{"Host":%b,"Score":' % to_json(name) for name, place in views.placed()}
    widest = max(map(len, heads.values()), default=0)
    rows = [heads.get(place, b"").ljust(widest) + _END for place in range(1 + max(heads, default=0))]
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), -1)


def _with(said: bytes, width: int, strange: Sequence[int], names: Sequence[str], scores: NDArray[np.int64]) -> bytes:
    """The same with the rows of nodes that have no place: few, those whose agents did not write yet."""
    kept = [said[1 + width * (one + 1) : 1 + width * other] for one, other in pairwise([-1, *strange, len(names)])]
    own = [b'{"Host":%b,"Score":%d},' % (to_json(names[i]), scores[i]) for i in strange]
    whole = b"".join([piece for pair in zip(kept, [*own, b""], strict=True) for piece in pair])
    return b"[%b]" % whole.rstrip(b",]")
