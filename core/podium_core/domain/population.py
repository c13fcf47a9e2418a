"""Values of population-based training: the settings of a search, and where a child comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Population:
    """Settings of population-based training that the planner needs.

    `size`: trials that start from the beginning. Trials are compared at each multiple of `interval`, in steps. The
    lowest `quantile` of them end, and children of the best `quantile` replace them.
    """

    size: int
    interval: float
    quantile: float
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Lineage:
    """Origin of a child: the trial from whose checkpoint it continues.

    `generation`: 1 for a child of a trial that started from the beginning. `step`: the boundary at which trials were
    compared. `replaces`: the trial that ends in favour of the child. `uid` is that of the parent.
    """

    parent: str
    uid: str
    generation: int
    step: float
    replaces: str
