"""The LP relaxation, rounded: at the least L at which the LP has a solution, at most one task is split; a GPU gets it.

Least CPU work with a GPU area of k L, tasks longer than L barred (the deadline filter of Lenstra, Shmoys, Tardos 1990).
One row and bounds of 0 and 1: a vertex has at most one fraction. The GPUs get at most k L + q of area, no task longer
than L, so a list ends by L + q/k + (1 - 1/k) L <= 2 L there, and by 2 L on the CPUs. L is at most the optimum, so this
is a 2-approximation.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from podium_optimisers.makespan.bounds import area_bound
from podium_optimisers.makespan.instance import Instance
from podium_optimisers.makespan.pack import pack
from podium_optimisers.makespan.schedule import Plan

WHOLE = 1e-7  # a share on the GPUs below this is none: HiGHS' tolerance


def solve(instance: Instance) -> Plan:
    """LPT within the sides of the rounded LP."""
    lower, guess = area_bound(instance)
    to_cpu, to_gpu = instance.gpu > guess, instance.cpu > guess
    work = np.where(to_gpu, 0.0, instance.cpu) / guess
    area = np.where(to_cpu, 0.0, instance.gpu) / guess
    found = linprog(
        -work,  # x = share on the GPUs: the more CPU work it takes over, the better
        A_ub=area[None, :],
        b_ub=[max(instance.gpus * (1 + WHOLE), float(area[to_gpu].sum()))],
        bounds=list(zip(to_gpu.astype(float), (~to_cpu).astype(float), strict=True)),
        method="highs-ds",
    )
    if found.x is None:
        raise RuntimeError(f"HiGHS gave no solution to an LP that has one: {found.message}")
    return Plan(pack(instance, found.x > WHOLE), bound=lower)
