"""The quotas of the hierarchical policy: how many GPUs each group gets in the next period.

A group's quota is proportional to its forecast work: arrivals (Holt-Winters once two days are known, the mean before)
times its predicted GPU-seconds a job, plus running and waiting work. Before that, each group gets the width of its
widest waiting gang, the longest wait first, so that wide gangs do not starve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from podium_optimisers.arrays import Floats
from podium_optimisers.prediction.arrivals import SmoothingWeights, apply_holt_winters

DAY = 24  # hours, the steps of the forecast
# close to the weights fitted to traces; a fit in each period would take seconds
FIXED_WEIGHTS = SmoothingWeights(0.3, 0.0, 0.05)


@dataclass(frozen=True, slots=True)
class GroupDemand:
    """The demand of one group: expected GPU-seconds, its widest waiting gang and since when that waits.

    `waiting_since` is inf if no gang waits.
    """

    work: float
    widest_gang: int
    waiting_since: float


def forecast_arrivals(counts: Floats, hours: int) -> float:
    """Forecast the arrivals of the next `hours` from the arrivals of each past hour, shape (n,)."""
    if len(counts) < 2 * DAY:
        return hours * float(np.mean(counts)) if len(counts) else 0.0
    return float(np.sum(apply_holt_winters(counts, DAY, FIXED_WEIGHTS).forecast(hours).median))


def plan_quotas(demands: Mapping[str, GroupDemand], gpus: int) -> dict[str, int]:
    """Return whole GPUs for each group, `gpus` in total. Ties go by name. O(g log g)."""
    if not demands:
        return {}
    # fsum is exact, so the result does not depend on the order of the groups
    total = math.fsum(demand.work for demand in demands.values())
    share = {
        name: gpus * demand.work / total if total > 0.0 else gpus / len(demands) for name, demand in demands.items()
    }
    floors = dict.fromkeys(demands, 0)
    left = gpus
    for name in sorted(demands, key=lambda name: (demands[name].waiting_since, name)):
        if demands[name].widest_gang <= left:
            floors[name] = demands[name].widest_gang
            left -= floors[name]
    beyond = {name: max(0.0, share[name] - floors[name]) for name in demands}
    excess = math.fsum(beyond.values())
    scale = left / excess if excess > 0.0 else 0.0
    quotas = {name: floors[name] + math.floor(beyond[name] * scale) for name in demands}
    by_loss = sorted(demands, key=lambda name: (math.floor(beyond[name] * scale) - beyond[name] * scale, name))
    spare = gpus - sum(quotas.values())
    for extra in range(spare):
        quotas[by_loss[extra % len(by_loss)]] += 1
    return quotas
