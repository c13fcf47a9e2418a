"""The answer of prioritize, put together from rows that are written once: `{"Host":"node-a","Score":7}`. Used by
`verbs`.

Making 5,000 dictionaries of JSON would take longer than all the rest of an answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_core import to_json

from podium.placement.scores import HIGHEST

MOST_NAMES = 20_000  # any name may be asked; four times the largest cluster


class Rows:
    """For each name its rows, one a score. About 1 KB a node."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[bytes, ...]] = {}

    def write(self, names: Sequence[str], scores: Sequence[int]) -> bytes:
        """A JSON list in the order given (HostPriorityList); scores are from 0 to HIGHEST."""
        if len(names) > MOST_NAMES:  # no scheduler's; not to be kept
            return b"[%b]" % b",".join([_row(to_json(name), score) for name, score in zip(names, scores, strict=True)])
        try:
            rows = self._chosen(names, scores)
        except KeyError:
            self._learn(names)
            rows = self._chosen(names, scores)
        return b"[%b]" % b",".join(rows)

    def _chosen(self, names: Sequence[str], scores: Sequence[int]) -> list[bytes]:
        known = self._rows
        return [known[name][score] for name, score in zip(names, scores, strict=True)]

    def _learn(self, names: Sequence[str]) -> None:
        if len(self._rows) + len(names) > MOST_NAMES:
            self._rows.clear()
        for name in names:
            if name not in self._rows:
                host = to_json(name)
                self._rows[name] = tuple([_row(host, score) for score in range(HIGHEST + 1)])


def _row(host: bytes, score: int) -> bytes:
    return b'{"Host":%b,"Score":%d}' % (host, score)
