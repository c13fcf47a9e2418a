"""Reuse of what was computed from trials' curves in an earlier cycle. It knows no algorithm.

A cache never changes a result: it holds exactly what the formula gives for the present curves. Every cache of the
curves and the policies is made of these parts:
  RowArrays   arrays and lists with one row for each trial, and the caches beside them, which follow the rows
  RowCache    rows that remember the version of the curve that they were computed from
  Memo        one result, and the content that it was computed from
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
_NEVER = -1  # version of a row that was never computed; every real version is 0 or more
_MAX_CACHED = 32


class RowArrays:
    """Arrays and lists with one row for each trial, as attributes of the given names."""

    def __init__(self, rows: int, empty: Mapping[str, Any], order: Literal["C", "F"] = "C") -> None:
        """Make `rows` empty rows.

        `empty` has the content of an empty row: a number or an array of them makes an array, None or a tuple makes a
        list. `order`: "F" where an algorithm reads column by column.
        """
        self._count, self._empty, self._order = rows, empty, order
        self._cached: dict[Hashable, Any] = {}
        for name, value in empty.items():
            is_list = value is None or isinstance(value, tuple)
            setattr(self, name, [value] * rows if is_list else self._empty_array(rows, np.asarray(value)))

    def _empty_array(self, rows: int, value: NDArray[Any]) -> NDArray[Any]:
        return np.full((rows, *value.shape), value, dtype=value.dtype, order=self._order)

    def reorder(self, source: Sequence[int]) -> None:
        """Reorder the rows, and those of the caches beside them.

        `source[i]` is the previous row of the new row i; -1 for a new trial.
        """
        only_added = self.only_added(source)
        origin = np.array(source, dtype=np.intp)
        old = origin >= 0
        for name, value in self._empty.items():
            rows = getattr(self, name)
            if isinstance(rows, list):
                setattr(self, name, [value if row < 0 else rows[row] for row in source])
            else:
                reordered = self._empty_array(len(source), np.asarray(value))
                reordered[old] = rows[origin[old]]
                setattr(self, name, reordered)
        self._count = len(source)
        kept_types = (RowArrays, Memo) if only_added else RowArrays  # The content of a memo may name rows.
        self._cached = {key: kept for key, kept in self._cached.items() if isinstance(kept, kept_types)}
        for kept in self._cached.values():
            if isinstance(kept, RowArrays):
                kept.reorder(source)

    def only_added(self, source: Sequence[int]) -> bool:
        """Return whether each present row stays as it is."""
        return list(source[: self._count]) == list(range(self._count))

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the object cached under `key`, made by `make` where there is none.

        It lives as long as these rows. Row arrays are reordered with them, a memo lives until rows move, and any other
        object until rows move or are added.
        """
        if key not in self._cached:
            if len(self._cached) >= _MAX_CACHED:  # A horizon that changes with every cycle must not fill the memory.
                self._cached.clear()
            self._cached[key] = make()
        value: T = self._cached[key]
        return value

    def remembered(self, key: Hashable, content: Hashable, compute: Callable[[], T]) -> T:
        """Return `compute()`, which depends on `content` only; the latest result under `key` is reused."""
        memo: Memo[T] = self.cached(key, Memo)
        return memo.get(content, compute)


class RowCache(RowArrays):
    """Rows that remember the version of the curve that they were computed from.

    A row can also be a column of a grid, with the version of the column's content.
    """

    def __init__(self, rows: int, empty: Mapping[str, Any], order: Literal["C", "F"] = "C") -> None:
        self._seen: NDArray[np.intp]
        super().__init__(rows, {**empty, "_seen": _NEVER}, order)
        self._basis: Hashable = None

    def stale_rows(
        self, version: NDArray[np.intp], among: NDArray[np.bool_] | None = None, basis: Hashable = None
    ) -> NDArray[np.intp]:
        """Return the rows to compute again, and regard them as computed.

        `version`: present version by row. `among`: rows that are wanted; all others stay as they are. `basis`: what
        every row depends on besides its version; all rows are stale where it differs from that of the last call.
        """
        if basis != self._basis:
            self.mark_stale()
            self._basis = basis
        stale = self._seen != version
        if among is not None:
            stale &= among
        rows: NDArray[np.intp] = stale.nonzero()[0]
        if len(rows):
            self._seen[rows] = version[rows]
        return rows

    def mark_stale(self) -> None:
        """Regard every row as never computed."""
        self._seen[:] = _NEVER

    def reorder(self, source: Sequence[int]) -> None:
        if not self.only_added(source):
            self._basis = None  # It may name rows.
        super().reorder(source)


class Memo(Generic[T]):
    """The latest result of a computation, and the content that it was computed from."""

    def __init__(self) -> None:
        self._known: tuple[Hashable, T] | None = None

    def get(self, content: Hashable, compute: Callable[[], T]) -> T:
        """Return the known result where the content is the same, else `compute()`."""
        if self._known is None or self._known[0] != content:
            self._known = content, compute()
        return self._known[1]
