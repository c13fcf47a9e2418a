"""One step of the dual approximation: tasks to sides at a guess L, or a NO that certifies OPT > L. Called by `dual`.

The paper's dynamic program (see `relaxation`) over states (CPU counter, GPU counter, GPU area) -> least CPU work, kept
sparse: only states that exist and that may still lead to a schedule of length L are stored. For prices u >= 0 of rows,

    W + u . (used - capacity) + sum over the tasks to come of min(price on a CPU, price on a GPU)

is at most the work of any completion, so a state above m L is dropped, and a task whose two prices differ by more than
what is left between the bound and m L is settled at once. What remains is the core of the knapsack. A first pass keeps
few states a layer and may find a YES; a NO is said only by the full pass, when no state is left: it is a certificate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.makespan.instance import Bools, Floats, Instance, Ints
from podium_optimisers.makespan.relaxation import Relaxation, multipliers, relax

FEW = 2000  # states a layer in the first pass


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """States after some tasks. `used`: the three rows, shape (3, s); `work`: CPU seconds; `area`: GPU seconds, exact.

    `area` is the least of all that share the rows of a state; `parent`: index in the layer before; `gpu`: last choice.
    """

    used: Ints
    work: Floats
    area: Floats
    parent: Ints
    gpu: Bools


@dataclass(frozen=True, slots=True, eq=False)
class _Costs:
    """Per task, shape (n,): what either choice adds to the rows (3, n), and its price at the multipliers."""

    rows: Relaxation
    prices: Floats
    on_cpu: Ints
    on_gpu: Ints
    cpu_price: Floats
    gpu_price: Floats

    @classmethod
    def of(cls, rows: Relaxation) -> _Costs:
        prices, zero = multipliers(rows), np.zeros_like(rows.units)
        instance = rows.instance
        cpu_price = np.where(rows.to_gpu, np.inf, instance.cpu + prices[0] * rows.cpu_weight)
        on_gpu = np.where(rows.to_cpu, 0.0, instance.gpu)
        gpu_price = np.where(rows.to_cpu, np.inf, prices[1] * rows.gpu_weight + prices[2] * on_gpu)
        cpu_rows = np.stack([rows.cpu_weight, zero, zero])
        gpu_rows = np.stack([zero, rows.gpu_weight, rows.units])
        return cls(rows, prices, cpu_rows, gpu_rows, cpu_price, gpu_price)

    def bound(self, layer: _Layer, rest: float) -> Floats:
        """Least work of any schedule of length L that continues a state, shape (s,)."""
        capacity = self.rows.capacity
        counters = self.prices[:2] @ (layer.used[:2] - capacity[:2, None])
        area = self.prices[2] * (layer.area - self.rows.instance.gpus * self.rows.guess)
        found: Floats = layer.work + counters + area + rest
        return found


def sides(instance: Instance, guess: float) -> Bools | None:
    """Who goes to the GPUs, shape (n,), for a `pack` of at most 4/3 L (k = 1), (4/3 + 1/(3k)) L (k >= 2); None: NO."""
    rows = relax(instance, guess)
    if rows is None:
        return None
    costs = _Costs.of(rows)
    prefer = costs.gpu_price < costs.cpu_price
    difference = np.abs(costs.cpu_price - costs.gpu_price)
    root = _settle(costs, prefer, np.ones(instance.n, dtype=bool))
    slack = rows.work - float(costs.bound(root, 0.0)[0])
    if slack < 0:
        return None
    settled = difference > slack
    core = np.flatnonzero(~settled)
    core = core[np.argsort(difference[core], kind="stable")]
    root = _settle(costs, prefer, settled)
    chosen = _search(costs, root, core, prefer, FEW)
    if chosen is None:
        chosen = _search(costs, root, core, prefer, None)
    if chosen is None:
        return None
    found = prefer.copy()
    found[core] = chosen
    return found


def _settle(costs: _Costs, prefer: Bools, which: Bools) -> _Layer:
    """The one state in which the tasks of `which` have what they prefer."""
    gpu, cpu = which & prefer, which & ~prefer
    used = costs.on_gpu[:, gpu].sum(axis=1) + costs.on_cpu[:, cpu].sum(axis=1)
    instance = costs.rows.instance
    work, area = np.array([instance.cpu[cpu].sum()]), np.array([instance.gpu[gpu].sum()])
    return _Layer(used[:, None], work, area, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=bool))


def _search(costs: _Costs, root: _Layer, core: Ints, prefer: Bools, most: int | None) -> Bools | None:
    """Choices for the tasks of the core, shape (len(core),), or None if no state survives.

    `most`: states kept a layer, spread evenly over the rows; with it, None says nothing.
    """
    capacity, work = costs.rows.capacity, costs.rows.work
    cheapest = np.minimum(costs.cpu_price, costs.gpu_price)[core]
    rest = np.append(np.cumsum(cheapest[::-1])[::-1], 0.0)
    layers, layer = [root], _merged(root, capacity)
    place = 0
    while True:
        keep: Bools = costs.bound(layer, float(rest[place])) <= work
        layer = _pick(layer, keep)
        if most is not None and layer.work.size > most:
            layer = _pick(layer, np.linspace(0, layer.work.size - 1, most).astype(np.int64))
        layers[-1] = layer
        if not layer.work.size:
            return None
        # perhaps a state is done already: all to come get what they prefer
        tail = np.zeros(prefer.size, dtype=bool)
        tail[core[place:]] = True
        end = _settle(costs, prefer, tail)
        done = (layer.used + end.used <= capacity[:, None]).all(axis=0) & (layer.work + end.work <= work)
        if done.any():
            last = int(np.argmin(np.where(done, layer.work, np.inf)))
            return np.concatenate([_path(layers, last), prefer[core[place:]]])
        if place == len(core):
            return None
        layer = _merged(_branch(costs, layer, int(core[place])), capacity)
        layers.append(layer)
        place += 1


def _pick(layer: _Layer, which: Bools | Ints) -> _Layer:
    return _Layer(layer.used[:, which], layer.work[which], layer.area[which], layer.parent[which], layer.gpu[which])


def _branch(costs: _Costs, layer: _Layer, task: int) -> _Layer:
    """Both choices of a task for every state."""
    instance, count = costs.rows.instance, layer.work.size
    here = np.arange(count)
    parts = []
    if not costs.rows.to_gpu[task]:
        used = layer.used + costs.on_cpu[:, task, None]
        parts.append(_Layer(used, layer.work + instance.cpu[task], layer.area, here, np.zeros(count, dtype=bool)))
    if not costs.rows.to_cpu[task]:
        used = layer.used + costs.on_gpu[:, task, None]
        parts.append(_Layer(used, layer.work, layer.area + instance.gpu[task], here, np.ones(count, dtype=bool)))
    return _Layer(
        np.concatenate([part.used for part in parts], axis=1),
        np.concatenate([part.work for part in parts]),
        np.concatenate([part.area for part in parts]),
        np.concatenate([part.parent for part in parts]),
        np.concatenate([part.gpu for part in parts]),
    )


def _merged(layer: _Layer, capacity: Ints) -> _Layer:
    """Of the states with the same rows, the one with the least work; it inherits the least area of them."""
    layer = _pick(layer, np.flatnonzero((layer.used <= capacity[:, None]).all(axis=0)))
    if not layer.work.size:
        return layer
    key = (layer.used[0] * (capacity[1] + 1) + layer.used[1]) * (capacity[2] + 1) + layer.used[2]
    order = np.lexsort((layer.work, key))
    key = key[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    area = np.minimum.reduceat(layer.area[order], first)
    best = _pick(layer, order[first].astype(np.int64))
    return _Layer(best.used, best.work, area, best.parent, best.gpu)


def _path(layers: list[_Layer], last: int) -> Bools:
    """The choices that lead to a state of the last layer."""
    found = []
    for layer in reversed(layers[1:]):
        found.append(bool(layer.gpu[last]))
        last = int(layer.parent[last])
    return np.array(found[::-1], dtype=bool)
