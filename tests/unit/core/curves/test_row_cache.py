"""The generic cache: rows follow their trials, and only what changed is computed again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from podium_core.curves.row_cache import Memo, RowArrays, RowCache


class Squares(RowCache):
    """A cache of the squares of some numbers."""

    square: NDArray[np.int64]
    notes: list[tuple[int, ...]]

    def __init__(self, rows: int) -> None:
        super().__init__(rows, {"square": np.zeros(2, dtype=int), "notes": ()})

    def refresh(self, numbers: NDArray[np.intp], version: NDArray[np.intp], scale: int = 1) -> list[int]:
        """Bring the squares up to date; return the rows that were computed."""
        rows = self.stale_rows(version, basis=scale).tolist()
        for row in rows:
            self.square[row] = scale * numbers[row] ** 2
            self.notes[row] = (scale, int(numbers[row]))
        return rows


trials = st.dictionaries(st.integers(0, 6), st.integers(0, 3), max_size=6)


@given(st.lists(st.tuples(trials, st.integers(1, 2)), min_size=1, max_size=6))
def test_kept_rows_equal_new_ones(cycles: list[tuple[dict[int, int], int]]) -> None:
    """Trials come, go and change; a version increases with each change, and the scale concerns every row."""
    kept, known, versions = Squares(0), list[int](), dict[int, int]()
    values: dict[int, int] = {}
    for now, scale in cycles:
        for key, value in now.items():
            versions[key] = versions.get(key, 0) + (values.get(key) != value)
        values = values | now
        keys = sorted(now)
        if keys != known:
            kept.reorder([known.index(key) if key in known else -1 for key in keys])
            known = keys
        numbers, version = (np.array([by[key] for key in keys], dtype=np.intp) for by in (values, versions))
        kept.refresh(numbers, version, scale)
        new = Squares(len(keys))
        new.refresh(numbers, version, scale)
        np.testing.assert_array_equal(kept.square, new.square)
        assert kept.notes == new.notes
        assert kept.refresh(numbers, version, scale) == []


def test_only_stale_rows_among_the_wanted_ones_are_computed() -> None:
    cache, version = RowCache(3, {}), np.array([1, 1, 1])
    assert cache.stale_rows(version, among=np.array([True, False, True])).tolist() == [0, 2]
    version[2] += 1
    assert cache.stale_rows(version).tolist() == [1, 2]
    assert cache.stale_rows(version, basis="another").tolist() == [0, 1, 2]


@pytest.mark.parametrize(("source", "stale"), [([0, 1, -1], [2]), ([1, 0], [0, 1]), ([1], [0])])
def test_a_basis_may_name_rows_so_it_ends_when_rows_move(source: list[int], stale: list[int]) -> None:
    cache = RowCache(2, {})
    cache.stale_rows(np.zeros(2, dtype=np.intp), basis="rows 0 and 1")
    cache.reorder(source)
    assert cache.stale_rows(np.zeros(len(source), dtype=np.intp), basis="rows 0 and 1").tolist() == stale


def test_rows_keep_their_layout_and_the_type_of_their_values() -> None:
    table = RowArrays(2, {"done": False, "count": 0, "share": np.full(3, np.nan), "view": None}, order="F")
    table.reorder([1, -1, 0])
    assert [getattr(table, name).dtype for name in ("done", "count", "share")] == [bool, np.intp, float]
    assert table.__dict__["share"].shape == (3, 3)
    assert table.__dict__["share"].flags.f_contiguous
    assert table.__dict__["view"] == [None] * 3


def test_cached_objects_follow_the_rows_or_are_made_again() -> None:
    table = RowArrays(2, {})
    rows = table.cached("rows", lambda: Squares(2))
    memo, other = table.cached("memo", Memo), table.cached("other", dict)
    rows.refresh(np.array([3, 4]), np.array([0, 0]))
    table.reorder([0, 1, -1])
    assert table.cached("rows", lambda: Squares(3)) is rows
    assert table.cached("memo", Memo) is memo, "no row has moved"
    assert table.cached("other", dict) is not other
    table.reorder([2, 1])
    assert rows.square[:, 0].tolist() == [0, 16]
    assert table.cached("memo", Memo) is not memo


def test_a_result_is_remembered_for_its_content_only() -> None:
    table, calls = RowArrays(0, {}), list[str]()

    def ask(content: str) -> str:
        return table.remembered("key", content, lambda: calls.append(content) or content.upper())

    assert [ask(content) for content in ("a", "a", "b", "a")] == ["A", "A", "B", "A"]
    assert calls == ["a", "b", "a"]


def test_keys_that_change_with_every_cycle_do_not_fill_the_memory() -> None:
    table = RowArrays(0, {})
    for horizon in range(1000):
        table.cached(("horizon", horizon), list)
    assert len(table.__dict__["_cached"]) < 100
