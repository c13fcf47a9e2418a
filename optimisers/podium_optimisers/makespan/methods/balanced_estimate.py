"""BalancedEstimate, A RECONSTRUCTION FROM AN ABSTRACT: sides by an estimate, then LPT on each side.

Canon, Marchal and Vivien (Euro-Par 2017) give a 2-approximation of low cost. It balances the two sides by the estimate
max(CPU work / m, GPU work / k, longest task on a CPU, longest task on a GPU). Their pseudo-code was not available, so
this is a reconstruction.

Every task starts on its faster side. Then tasks move away from the side with the higher mean load, those that lose
least first, until the other side has the higher load. Then the longest of the moved tasks return as long as that lowers
the estimate. The best estimate on the way wins. Results of this module are not the paper's results, and the module
claims no ratio.
"""

from __future__ import annotations

import numpy as np

from podium_optimisers.arrays import Bools
from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.methods.list_scheduling import lpt_by_side
from podium_optimisers.makespan.schedule import MakespanPlan


def solve(instance: MakespanInstance) -> MakespanPlan:
    """Return the plan of the best estimate. O(n^2) with vector operations of length n."""
    on_gpu = instance.gpu < instance.cpu
    best, least = on_gpu, estimate(instance, on_gpu)
    from_gpu = _mean_loads(instance, on_gpu)[1] > _mean_loads(instance, on_gpu)[0]
    here, there = (instance.gpu, instance.cpu) if from_gpu else (instance.cpu, instance.gpu)
    leaving = np.flatnonzero((on_gpu == from_gpu) & np.isfinite(there))
    leaving = leaving[np.argsort(there[leaving] / here[leaving], kind="stable")]
    left = []
    for task in leaving.tolist():
        cpu, gpu = _mean_loads(instance, on_gpu)
        if (gpu > cpu) != from_gpu:
            break
        on_gpu = on_gpu.copy()
        on_gpu[task] = not from_gpu
        left.append(task)
        best, least = min((best, least), (on_gpu, estimate(instance, on_gpu)), key=lambda pair: pair[1])
    for task in sorted(left, key=lambda task: -float(there[task])):
        back = on_gpu.copy()
        back[task] = from_gpu
        if estimate(instance, back) >= estimate(instance, on_gpu):
            break
        on_gpu = back
        best, least = min((best, least), (on_gpu, estimate(instance, on_gpu)), key=lambda pair: pair[1])
    return MakespanPlan(lpt_by_side(instance, best))


def estimate(instance: MakespanInstance, on_gpu: Bools) -> float:
    """Return a lower bound in seconds for all schedules with these sides."""
    longest = np.where(on_gpu, instance.gpu, instance.cpu).max()
    return float(max(longest, *_mean_loads(instance, on_gpu)))


def _mean_loads(instance: MakespanInstance, on_gpu: Bools) -> tuple[float, float]:
    """Return the mean load of a CPU and of a GPU."""
    return (
        float(instance.cpu[~on_gpu].sum()) / max(1, instance.cpus),
        float(instance.gpu[on_gpu].sum()) / max(1, instance.gpus),
    )
