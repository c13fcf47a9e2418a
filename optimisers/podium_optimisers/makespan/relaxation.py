"""What every schedule of length L obeys, as a knapsack with four rows, and its LP relaxation. Used by `shelves`.

Kedad-Sidhoum, Monna, Mounié, Trystram (HeteroPar 2013; CCPE 27(6), 2015). With x_j = 1 on a CPU:

    least  W = sum p_j x_j                                   (must be <= m L)
    with   2 #{p_j > 2L/3} + #{L/3 < p_j <= 2L/3} <= 2 m     over the tasks on CPUs
           the same with q_j and k                           over the tasks on GPUs
           sum floor(q_j 3 n / L) <= 3 k n                   over the tasks on GPUs
           p_j <= L on a CPU, q_j <= L on a GPU

"Long + half of middle, rounded up, <= m" and "2 long + middle <= 2 m" say the same, so one counter stands for the
paper's two (mu, mu'): that alone divides the table of states by m k. The paper counts on the GPUs for k >= 2 only; the
row holds for one GPU too, and makes a NO a little more frequent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from podium_optimisers.makespan.bounds import EXACT, forced
from podium_optimisers.makespan.instance import Bools, Floats, Instance, Ints

PENALTY = 10.0  # per broken unit of a row, times the number of tasks and machines
SLACK = 1e-9  # times L for each machine: how far above m L the work must be before the answer is NO


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """The rows at one guess. `cpu_weight`, `gpu_weight`: 2 long, 1 middle, 0 short; `units`: floor(q 3n / L).

    `to_cpu`, `to_gpu`: who has no choice. All shape (n,).
    """

    instance: Instance
    guess: float
    to_cpu: Bools
    to_gpu: Bools
    cpu_weight: Ints
    gpu_weight: Ints
    units: Ints

    @property
    def work(self) -> float:
        """The most work that the CPUs can do, and a little more, for sums of floats are not exact."""
        return self.guess * (self.instance.cpus + SLACK * self.instance.machines)

    @property
    def capacity(self) -> Ints:
        """Right-hand sides: the CPUs' counter, the GPUs' counter, the GPUs' area in units."""
        m, k = self.instance.cpus, self.instance.gpus
        return np.array([2 * m, 2 * k, 3 * k * self.instance.n], dtype=np.int64)


def relax(instance: Instance, guess: float) -> Relaxation | None:
    """None: some task is too long for both sides."""
    sides = forced(instance, guess)
    if sides is None:
        return None
    to_cpu, to_gpu = sides
    units = np.zeros(instance.n, dtype=np.int64)
    fits = ~to_cpu
    units[fits] = np.floor(instance.gpu[fits] * (3 * instance.n / guess) * (1 - EXACT)).astype(np.int64)
    cpu_weight, gpu_weight = (shelf(side, guess) for side in (instance.cpu, instance.gpu))
    return Relaxation(instance, guess, to_cpu, to_gpu, cpu_weight, gpu_weight, units)


def shelf(seconds: Floats, guess: float) -> Ints:
    """2 for the shelf of L, 1 for that of 2L/3, 0 for that of L/3 (and for what is too long: it is elsewhere)."""
    third = guess / 3 * (1 + EXACT)
    return ((seconds > third).astype(np.int64) + (seconds > 2 * third)) * (seconds <= guess)


def multipliers(rows: Relaxation) -> Floats:
    """Prices >= 0 of the CPUs' counter, the GPUs' counter and a second of GPU area: the duals of the LP relaxation.

    Any prices >= 0 give a valid bound, so nothing that is certified rests on the solver's tolerance; good ones make it
    sharp. Each row may be broken at PENALTY: the LP has a solution even where the answer will be NO, and no price is so
    large that rounding could decide.
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
    found = linprog(np.append(p, [penalty] * 3), A_ub=matrix, b_ub=right, bounds=limits, method="highs")
    duals = -found.ineqlin.marginals if found.status == 0 else np.zeros(3)
    prices: Floats = np.maximum(duals, 0.0) * np.array([rows.guess, rows.guess, 1.0])
    return prices
