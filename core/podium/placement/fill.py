"""Policy `fill`: the placement that takes least away from what the pods still to come are expected to fill.

Where FGD asks of a free piece whether typical pods fit, this asks how much of it they would fill in the end: a piece of
0.19 that nothing but a rare pod of 0.16 fits is worth little, one of 0.47 that takes the next frequent pod to the full
is worth nearly all of itself. What its node's CPUs cannot feed is worth nothing. Found in the registry;
benchmarks/bench_openb.py measures it against FGD: more is allocated in the end, and pods are turned away earlier.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from podium.placement.base import Policy, Question
from podium.placement.pieces import WHOLE, Floats, Left, Mix, best_way, served
from podium.placement.views import NodeView

# Pods that are looked at, on average, before a piece would be free again for other reasons: with few, only what nearly
# every pod can use is worth something; with endless ones, every crumb is.
OFFERS = 100.0


def cost(question: Question, node: NodeView) -> float | None:
    best = place(question, node)
    return None if best is None else best[0]


def place(question: Question, node: NodeView) -> tuple[float, tuple[int, ...]] | None:
    """What the node is expected to take in, in GPUs, before the pod less after it; and the GPUs where that is least."""
    return best_way(question, node, lambda mix, left: -worth(mix, left))


def worth(mix: Mix, left: Left) -> float:
    """GPUs that pods drawn from `mix` would fill, each as far as the CPUs last, on average over the pods."""
    filled = _fill(tuple(mix.sizes.tolist()), tuple(mix.parts.tolist()))[left.gpus].sum()
    _, fits = served(mix, left)
    fed = np.full(len(mix.cpus), float(WHOLE * len(left.gpus)))
    if math.isfinite(left.cpus):
        np.divide(left.cpus * mix.gpus * mix.sizes, mix.cpus, out=fed, where=mix.cpus > 0)
    return float(mix.parts @ np.where(fits, np.minimum(filled, fed), 0.0)) / WHOLE


@lru_cache(maxsize=64)
def _fill(sizes: tuple[int, ...], parts: tuple[float, ...]) -> Floats:
    """Expected thousandths filled of a piece of 0 to WHOLE.

    V(x) = (1 - exp(-OFFERS q)) * sum of p_m (m + V(x - m)) / q over the pods m that fit into x, and q the sum of their
    p_m: one of them comes with this probability, and then the rest of the piece is filled in the same way.
    """
    values = np.zeros(WHOLE + 1)
    by_size: dict[int, float] = {}
    for size, part in zip(sizes, parts, strict=True):
        if 0 < size <= WHOLE:
            by_size[size] = by_size.get(size, 0.0) + part
    for x in range(1, WHOLE + 1):
        fit = [(m, p) for m, p in by_size.items() if m <= x]
        q = sum(p for _, p in fit)
        if q > 0:
            values[x] = -np.expm1(-OFFERS * q) * sum(p * (m + values[x - m]) for m, p in fit) / q
    return values


FILL = Policy(
    name="fill",
    says="the node where the pod takes least away from what the pods seen lately are expected to fill",
    cost=cost,
    one_best=True,
    reads_typical=True,
    place=place,
)
