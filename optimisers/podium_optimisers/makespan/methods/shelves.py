"""One step of the dual approximation: assign tasks to sides at a guess L, or prove OPT > L.

The step is the paper's dynamic program (see `relaxation`) over states (CPU counter, GPU counter, GPU area) -> least CPU
work. The table is sparse: it holds only states that are reachable and may still lead to a schedule of length L. For
prices u >= 0 of the rows,

    W + u . (used - capacity) + sum over the remaining tasks of min(price on a CPU, price on a GPU)

is at most the work of any completion, so a state above m L is dropped. A task whose two prices differ by more than the
distance between the bound and m L is fixed at once. The remaining tasks are the core of the knapsack. A first pass
keeps few states in each layer (a beam search) and may accept L. Only the full pass can reject L, when no state is left,
which is a proof.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.arrays import Bools, Floats, Ints
from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.relaxation import KnapsackRows, build_rows, lagrange_multipliers

BEAM_WIDTH = 2000  # states in a layer of the first pass


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """The states after some tasks. `used`: the three rows, shape (3, s); `work`: CPU seconds.

    `area`: exact GPU seconds, the least of all merged states. `parent`: index in the previous layer. `gpu`: the last
    choice.
    """

    used: Ints
    work: Floats
    area: Floats
    parent: Ints
    gpu: Bools


@dataclass(frozen=True, slots=True, eq=False)
class _Costs:
    """For each task, shape (n,): its entries in the rows (3, n) and its price on either side."""

    rows: KnapsackRows
    prices: Floats
    on_cpu: Ints
    on_gpu: Ints
    cpu_price: Floats
    gpu_price: Floats

    @classmethod
    def of(cls, rows: KnapsackRows) -> _Costs:
        """Return the costs at the Lagrange multipliers of the LP relaxation."""
        prices, zero = lagrange_multipliers(rows), np.zeros_like(rows.units)
        instance = rows.instance
        cpu_price = np.where(rows.to_gpu, np.inf, instance.cpu + prices[0] * rows.cpu_weight)
        on_gpu = np.where(rows.to_cpu, 0.0, instance.gpu)
        gpu_price = np.where(rows.to_cpu, np.inf, prices[1] * rows.gpu_weight + prices[2] * on_gpu)
        cpu_rows = np.stack([rows.cpu_weight, zero, zero])
        gpu_rows = np.stack([zero, rows.gpu_weight, rows.units])
        return cls(rows, prices, cpu_rows, gpu_rows, cpu_price, gpu_price)

    def bound(self, layer: _Layer, rest: float) -> Floats:
        """Return the least work of any schedule of length L that extends each state, shape (s,)."""
        capacity = self.rows.capacity
        counters = self.prices[:2] @ (layer.used[:2] - capacity[:2, None])
        area = self.prices[2] * (layer.area - self.rows.instance.gpus * self.rows.guess)
        bounds: Floats = layer.work + counters + area + rest
        return bounds


def dual_step(instance: MakespanInstance, guess: float) -> Bools | None:
    """Return which tasks go to the GPUs, shape (n,), or None if no schedule of length L exists.

    LPT within these sides ends by 4/3 L (k = 1) or (4/3 + 1/(3k)) L (k >= 2).
    """
    rows = build_rows(instance, guess)
    if rows is None:
        return None
    costs = _Costs.of(rows)
    prefers_gpu = costs.gpu_price < costs.cpu_price
    difference = np.abs(costs.cpu_price - costs.gpu_price)
    root = _fix(costs, prefers_gpu, np.ones(instance.n, dtype=bool))
    slack = rows.work - float(costs.bound(root, 0.0)[0])
    if slack < 0:
        return None
    fixed = difference > slack
    core = np.flatnonzero(~fixed)
    core = core[np.argsort(difference[core], kind="stable")]
    root = _fix(costs, prefers_gpu, fixed)
    chosen = _search(costs, root, core, prefers_gpu, BEAM_WIDTH)
    if chosen is None:
        chosen = _search(costs, root, core, prefers_gpu, None)
    if chosen is None:
        return None
    on_gpu = prefers_gpu.copy()
    on_gpu[core] = chosen
    return on_gpu


def _fix(costs: _Costs, prefers_gpu: Bools, which: Bools) -> _Layer:
    """Return the single state in which the tasks of `which` are on their preferred sides."""
    gpu, cpu = which & prefers_gpu, which & ~prefers_gpu
    used = costs.on_gpu[:, gpu].sum(axis=1) + costs.on_cpu[:, cpu].sum(axis=1)
    instance = costs.rows.instance
    work, area = np.array([instance.cpu[cpu].sum()]), np.array([instance.gpu[gpu].sum()])
    return _Layer(used[:, None], work, area, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=bool))


def _search(costs: _Costs, root: _Layer, core: Ints, prefers_gpu: Bools, beam_width: int | None) -> Bools | None:
    """Return choices for the tasks of the core, shape (len(core),), or None if no state survives.

    `beam_width`: states kept in each layer, spread evenly over the rows. If it is set, None proves nothing.
    """
    capacity, work = costs.rows.capacity, costs.rows.work
    cheapest = np.minimum(costs.cpu_price, costs.gpu_price)[core]
    rest = np.append(np.cumsum(cheapest[::-1])[::-1], 0.0)
    layers, layer = [root], _merge(root, capacity)
    position = 0
    while True:
        keep: Bools = costs.bound(layer, float(rest[position])) <= work
        layer = _select(layer, keep)
        if beam_width is not None and layer.work.size > beam_width:
            layer = _select(layer, np.linspace(0, layer.work.size - 1, beam_width).astype(np.int64))
        layers[-1] = layer
        if not layer.work.size:
            return None
        # early accept: does a state become feasible if all remaining tasks get their preferred sides?
        tail = np.zeros(prefers_gpu.size, dtype=bool)
        tail[core[position:]] = True
        end = _fix(costs, prefers_gpu, tail)
        done = (layer.used + end.used <= capacity[:, None]).all(axis=0) & (layer.work + end.work <= work)
        if done.any():
            last = int(np.argmin(np.where(done, layer.work, np.inf)))
            return np.concatenate([_backtrack(layers, last), prefers_gpu[core[position:]]])
        if position == len(core):
            return None
        layer = _merge(_branch(costs, layer, int(core[position])), capacity)
        layers.append(layer)
        position += 1


def _select(layer: _Layer, which: Bools | Ints) -> _Layer:
    """Return the layer with only these states."""
    return _Layer(layer.used[:, which], layer.work[which], layer.area[which], layer.parent[which], layer.gpu[which])


def _branch(costs: _Costs, layer: _Layer, task: int) -> _Layer:
    """Return the layer with both choices of a task for every state."""
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


def _merge(layer: _Layer, capacity: Ints) -> _Layer:
    """Merge states with equal rows: keep the least work and, separately, the least area."""
    layer = _select(layer, np.flatnonzero((layer.used <= capacity[:, None]).all(axis=0)))
    if not layer.work.size:
        return layer
    key = (layer.used[0] * (capacity[1] + 1) + layer.used[1]) * (capacity[2] + 1) + layer.used[2]
    order = np.lexsort((layer.work, key))
    key = key[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    area = np.minimum.reduceat(layer.area[order], first)
    best = _select(layer, order[first].astype(np.int64))
    return _Layer(best.used, best.work, area, best.parent, best.gpu)


def _backtrack(layers: list[_Layer], last: int) -> Bools:
    """Return the choices that lead to a state of the last layer."""
    on_gpu = []
    for layer in reversed(layers[1:]):
        on_gpu.append(bool(layer.gpu[last]))
        last = int(layer.parent[last])
    return np.array(on_gpu[::-1], dtype=bool)
