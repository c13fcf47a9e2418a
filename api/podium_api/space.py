"""Search space in Python: `uniform`, `loguniform`, `randint` and `choice` describe one parameter each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium_api.errors import SearchError
from podium_core.domain.snapshot import Scalar


@dataclass(frozen=True, slots=True)
class Dimension:
    """One parameter, as the fields of `spec.parameters` except its name."""

    fields: Mapping[str, Any]

    def when(self, parameter: str, *values: Scalar) -> Dimension:
        """Return this dimension, active only in trials in which `parameter` has one of these values."""
        return Dimension({**self.fields, "when": {"parameter": parameter, "in": list(values)}})


def uniform(low: float, high: float, *, step: float | None = None) -> Dimension:
    """Return a float between `low` and `high`, both included; with `step`, a multiple of it above `low`."""
    return Dimension({"type": "float", "min": low, "max": high, **_given(step=step)})


def loguniform(low: float, high: float, *, step: float | None = None) -> Dimension:
    """Return a float between `low` and `high`, of which each power of ten is equally likely."""
    return Dimension({"type": "float", "min": low, "max": high, "scale": "log", **_given(step=step)})


def randint(low: int, high: int, *, step: int | None = None, log: bool = False) -> Dimension:
    """Return an integer between `low` and `high`, both included (unlike Python's `range`)."""
    return Dimension({"type": "int", "min": low, "max": high, **_given(step=step), **({"scale": "log"} if log else {})})


def choice(values: Iterable[Scalar]) -> Dimension:
    """Return one of these strings, numbers or booleans."""
    return Dimension({"values": list(values)})


def parameters(space: Mapping[str, Dimension | Sequence[Scalar]]) -> list[dict[str, Any]]:
    """Return `spec.parameters` of a search space; a list stands for a choice."""
    return [{"name": name, **_dimension(name, one).fields} for name, one in space.items()]


def _dimension(name: str, given: Dimension | Sequence[Scalar]) -> Dimension:
    if isinstance(given, Dimension):
        return given
    if isinstance(given, list | tuple):
        return choice(given)
    raise SearchError(
        "InvalidSpace",
        f"space[{name!r}] must be podium.uniform, loguniform, randint, choice or a list (got {given!r}); "
        "a constant belongs into `arguments`",
    )


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
