"""A learning curve in one array: 24 bytes a point, where a tuple of points takes about 130.

The operator keeps the curves of all trials in this form; everything that takes a sequence of points takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from podium_core.curves.statistics import Floats
from podium_core.domain.snapshot import Point


class PackedCurve(Sequence[Point]):
    """The points of a curve; `array` has the shape (points, 3): step, value, time."""

    __slots__ = ("array",)

    def __init__(self, array: Floats) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Point]:
        return (Point(step, value, time) for step, value, time in self.array.tolist())

    @overload
    def __getitem__(self, index: int) -> Point: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Point]: ...

    def __getitem__(self, index: int | slice) -> Point | Sequence[Point]:
        if isinstance(index, slice):
            return PackedCurve(self.array[index])
        return Point(*self.array[index].tolist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedCurve):
            return bool(np.array_equal(self.array, other.array))
        return isinstance(other, Sequence) and len(other) == len(self) and all(map(Point.__eq__, self, other))

    def __hash__(self) -> int:
        return hash(self.array.tobytes())

    def __repr__(self) -> str:
        return f"PackedCurve({list(self)!r})"


def pack(points: Iterable[Mapping[str, Any]]) -> PackedCurve:
    """Pack the points of a status, `{"step": ..., "value": ..., "time": ...}`.

    Raises ValueError for a point that lacks a number.
    """
    try:
        rows = [(float(point["step"]), float(point["value"]), float(point["time"])) for point in points]
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"status.curve.points: a point needs the numbers step, value and time: {error!r}") from error
    return PackedCurve(np.array(rows, dtype=np.float64).reshape(len(rows), 3))
