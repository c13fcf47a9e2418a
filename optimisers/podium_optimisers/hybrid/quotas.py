"""The coarse plan of the hierarchy: how many GPUs each group is entitled to in the next period. Pure.

A group is entitled to GPUs in proportion to the work that is forecast for it: arrivals (Holt-Winters once two days are
known, the mean before) times its predicted GPU-seconds a job, plus what runs and waits already. First of all each group
gets the width of its widest waiting gang, the longest wait first, so that wide gangs have their turn. Called by the
hierarchical policy at the start of each period.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from podium_optimisers.engine.workload import Floats
from podium_optimisers.prediction.arrivals import Weights, smooth

DAY = 24  # steps of an hour
FIXED = Weights(0.3, 0.0, 0.05)  # close to what the fit finds on traces; fitting anew each period would cost seconds


@dataclass(frozen=True, slots=True)
class Demand:
    """One group: GPU-seconds expected and waiting, the widest waiting gang and since when it waits (inf: none)."""

    work: float
    widest: int
    since: float


def expected_jobs(counts: Floats, hours: int) -> float:
    """Arrivals in the next `hours`, from the arrivals of each past hour, shape (n,)."""
    if len(counts) < 2 * DAY:
        return hours * float(np.mean(counts)) if len(counts) else 0.0
    return float(np.sum(smooth(counts, DAY, FIXED).forecast(hours).mean))


def plan_quotas(demands: Mapping[str, Demand], gpus: int) -> dict[str, int]:
    """Whole GPUs for each group, in sum `gpus`. Deterministic: ties go by name. O(g log g)."""
    if not demands:
        return {}
    total = math.fsum(demand.work for demand in demands.values())  # exact, so the groups' order is nothing
    share = {
        name: gpus * demand.work / total if total > 0.0 else gpus / len(demands) for name, demand in demands.items()
    }
    floors = dict.fromkeys(demands, 0)
    left = gpus
    for name in sorted(demands, key=lambda name: (demands[name].since, name)):
        if demands[name].widest <= left:
            floors[name] = demands[name].widest
            left -= floors[name]
    beyond = {name: max(0.0, share[name] - floors[name]) for name in demands}
    excess = math.fsum(beyond.values())
    scale = left / excess if excess > 0.0 else 0.0
    quotas = {name: floors[name] + math.floor(beyond[name] * scale) for name in demands}
    by_loss = sorted(demands, key=lambda name: (math.floor(beyond[name] * scale) - beyond[name] * scale, name))
    spare = gpus - sum(quotas.values())
    for turn in range(spare):
        quotas[by_loss[turn % len(by_loss)]] += 1
    return quotas
