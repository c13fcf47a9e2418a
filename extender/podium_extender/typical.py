"""Typical pods, as FGD takes them: the most frequent needs, until they cover 95 % of the pods. Used by `telemetry`."""

from __future__ import annotations

from collections import Counter

from podium.placement.views import PodNeed

COVERED = 0.95
MOST = 35


def typical_needs(counts: Counter[PodNeed], least_gpus: int = 1) -> tuple[tuple[PodNeed, float], ...]:
    """Each need with its part of those that are kept; the most frequent first, equal ones by their fields.

    `least_gpus` 0 counts pods that want none, too, as the FGD paper does.
    """
    kinds = ((need, n) for need, n in counts.items() if n > 0 and need.gpus >= least_gpus and not need.exclusive)
    ordered = sorted(kinds, key=_by_frequency)
    total = sum(n for _, n in ordered)
    kept: list[tuple[PodNeed, int]] = []
    covered = 0
    for need, n in ordered[:MOST]:
        if covered >= COVERED * total:
            break
        kept.append((need, n))
        covered += n
    return tuple((need, n / covered) for need, n in kept)


def _by_frequency(entry: tuple[PodNeed, int]) -> tuple[int, int, int, int, tuple[str, ...]]:
    need, count = entry
    return -count, need.gpus, need.memory or 0, need.cpu, need.products
