"""Typical pods as FGD defines them: the most frequent needs, until they cover 95 % of the pods.

The extender and `podium explain pod` use it.
"""

from __future__ import annotations

from collections import Counter

from podium_core.placement.views import PodNeed

COVERED = 0.95
MAX_KINDS = 35
Typical = tuple[tuple[PodNeed, float], ...]


def typical_needs(counts: Counter[PodNeed], least_gpus: int = 1) -> Typical:
    """Return each need with its fraction of those that are kept, ordered by frequency, then by fields.

    `least_gpus` 0 also counts pods without GPUs, as the FGD paper does.
    """
    kinds = ((need, n) for need, n in counts.items() if n > 0 and need.gpus >= least_gpus and not need.exclusive)
    ordered = sorted(kinds, key=_by_frequency)
    total = sum(n for _, n in ordered)
    kept: list[tuple[PodNeed, int]] = []
    covered = 0
    for need, n in ordered[:MAX_KINDS]:
        if covered >= COVERED * total:
            break
        kept.append((need, n))
        covered += n
    return tuple((need, n / covered) for need, n in kept)


def total_variation(before: Typical, after: Typical) -> float:
    """Return the total variation distance of two mixes.

    The fraction of all pods, 0 to 1, that changed their kind.
    """
    parts = dict(before)
    grown = sum(max(0.0, part - parts.get(need, 0.0)) for need, part in after)
    return grown if before and after else float(before != after)


def _by_frequency(entry: tuple[PodNeed, int]) -> tuple[int, int, int, int, tuple[str, ...]]:
    need, count = entry
    return -count, need.gpus, need.memory or 0, need.cpu, need.products
