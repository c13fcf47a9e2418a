"""The LP relaxation with rounding: at most one task is split between the sides, and a GPU gets it.

At the least feasible L, the LP minimises the CPU work with a GPU area of k L. Tasks longer than L are barred from a
side (the deadline filter of Lenstra, Shmoys, Tardos 1990). With one row and bounds of 0 and 1, a vertex has at most one
fraction.

The GPUs get at most k L + q of area and no task longer than L. A list therefore ends by L + q/k + (1 - 1/k) L <= 2 L
there, and by 2 L on the CPUs. L is at most the optimum, so this is a 2-approximation.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from podium_optimisers.makespan.bounds import area_bound
from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.methods.list_scheduling import lpt_by_side
from podium_optimisers.makespan.schedule import MakespanPlan

TOLERANCE = 1e-7  # the tolerance of HiGHS: a smaller share on the GPUs counts as 0


def solve(instance: MakespanInstance) -> MakespanPlan:
    """Return the plan of LPT within the sides of the rounded LP."""
    lower, guess = area_bound(instance)
    to_cpu, to_gpu = instance.gpu > guess, instance.cpu > guess
    work = np.where(to_gpu, 0.0, instance.cpu) / guess
    area = np.where(to_cpu, 0.0, instance.gpu) / guess
    solution = linprog(
        -work,  # x is the share on the GPUs; the LP maximises the CPU work that it saves
        A_ub=area[None, :],
        b_ub=[max(instance.gpus * (1 + TOLERANCE), float(area[to_gpu].sum()))],
        bounds=list(zip(to_gpu.astype(float), (~to_cpu).astype(float), strict=True)),
        method="highs-ds",
    )
    if solution.x is None:
        raise RuntimeError(f"HiGHS returned no solution for a feasible LP: {solution.message}")
    return MakespanPlan(lpt_by_side(instance, solution.x > TOLERANCE), bound=lower)
