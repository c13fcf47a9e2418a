"""Constraints of every schedule of length L: a knapsack with four rows, and its LP relaxation.

Kedad-Sidhoum, Monna, Mounié, Trystram (HeteroPar 2013; CCPE 27(6), 2015). With x_j = 1 on a CPU:

    minimise    W = sum p_j x_j                                   (must be <= m L)
    subject to  2 #{p_j > 2L/3} + #{L/3 < p_j <= 2L/3} <= 2 m     over the tasks on CPUs
                the same with q_j and k                           over the tasks on GPUs
                sum floor(q_j 3 n / L) <= 3 k n                   over the tasks on GPUs
                p_j <= L on a CPU, q_j <= L on a GPU

"Long + half of middle, rounded up, <= m" and "2 long + middle <= 2 m" are equivalent, so one counter replaces the
paper's two (mu, mu'). That alone divides the table of states by m k. The paper counts on the GPUs for k >= 2 only. The
row also holds for one GPU, where it makes a rejection slightly more frequent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from podium_optimisers.arrays import Bools, Floats, Ints
from podium_optimisers.makespan.bounds import ROUNDING, forced_sides
from podium_optimisers.makespan.instance import MakespanInstance

PENALTY = 10.0  # for each violated unit of a row, times the number of tasks and machines
SLACK = 1e-9  # times L for each machine: the work must exceed m L by this much before the step rejects L


@dataclass(frozen=True, slots=True, eq=False)
class KnapsackRows:
    """The rows at one guess. `cpu_weight`, `gpu_weight`: 2 for long tasks, 1 for middle, 0 for short ones.

    `units`: floor(q 3n / L). `to_cpu`, `to_gpu`: the tasks that can run on one side only. All have shape (n,).
    """

    instance: MakespanInstance
    guess: float
    to_cpu: Bools
    to_gpu: Bools
    cpu_weight: Ints
    gpu_weight: Ints
    units: Ints

    @property
    def work(self) -> float:
        """Return the most work that the CPUs can do, with a margin for rounding."""
        return self.guess * (self.instance.cpus + SLACK * self.instance.machines)

    @property
    def capacity(self) -> Ints:
        """Return the right-hand sides: CPU counter, GPU counter, GPU area in units."""
        m, k = self.instance.cpus, self.instance.gpus
        return np.array([2 * m, 2 * k, 3 * k * self.instance.n], dtype=np.int64)


def build_rows(instance: MakespanInstance, guess: float) -> KnapsackRows | None:
    """Return the rows at a guess, or None if a task is too long for both sides."""
    sides = forced_sides(instance, guess)
    if sides is None:
        return None
    to_cpu, to_gpu = sides
    units = np.zeros(instance.n, dtype=np.int64)
    fits = ~to_cpu
    units[fits] = np.floor(instance.gpu[fits] * (3 * instance.n / guess) * (1 - ROUNDING)).astype(np.int64)
    cpu_weight, gpu_weight = (shelf_class(side, guess) for side in (instance.cpu, instance.gpu))
    return KnapsackRows(instance, guess, to_cpu, to_gpu, cpu_weight, gpu_weight, units)


def shelf_class(seconds: Floats, guess: float) -> Ints:
    """Return the shelf of each task: 2 for height L, 1 for 2L/3, 0 for L/3.

    Tasks longer than L also get 0, because they run on the other side.
    """
    third = guess / 3 * (1 + ROUNDING)
    return ((seconds > third).astype(np.int64) + (seconds > 2 * third)) * (seconds <= guess)


def lagrange_multipliers(rows: KnapsackRows) -> Floats:
    """Return Lagrange multipliers >= 0 of the CPU counter, the GPU counter and a second of GPU area.

    They are the duals of the LP relaxation. Any prices >= 0 give a valid bound, so no certificate depends on the
    solver's tolerance; good prices make the bound sharp. Each row may be violated at PENALTY: the LP then has a
    solution even where the step will reject L, and no price is large enough for rounding to decide.
    """
    instance = rows.instance
    on_cpu, on_gpu = ~rows.to_gpu, ~rows.to_cpu
    p = np.where(on_cpu, instance.cpu, 0.0) / rows.guess
    q = np.where(on_gpu, instance.gpu, 0.0) / rows.guess
    gpu_weight = rows.gpu_weight * on_gpu
    # in x_j: the GPUs' rows count 1 - x_j, so their constants move to the right-hand side
    matrix = np.concatenate([np.stack([rows.cpu_weight * on_cpu, -gpu_weight, -q]), -np.eye(3)], axis=1)
    right = np.array([2 * instance.cpus, 2 * instance.gpus - gpu_weight.sum(), instance.gpus - q.sum()])
    penalty = PENALTY * (instance.n + instance.machines)
    limits = [*zip(rows.to_cpu.astype(float), on_cpu.astype(float), strict=True), *[(0.0, np.inf)] * 3]
    solution = linprog(np.append(p, [penalty] * 3), A_ub=matrix, b_ub=right, bounds=limits, method="highs")
    duals = -solution.ineqlin.marginals if solution.status == 0 else np.zeros(3)
    prices: Floats = np.maximum(duals, 0.0) * np.array([rows.guess, rows.guess, 1.0])
    return prices
