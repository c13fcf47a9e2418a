"""BalancedEstimate: sides by an estimate of the makespan, then LPT on each. OUR RECONSTRUCTION OF AN ABSTRACT.

Canon, Marchal, Vivien (Euro-Par 2017) give a 2-approximation of low cost that balances the two sides by the estimate
max(CPU work / m, GPU work / k, longest on a CPU, longest on a GPU). The pseudo-code could not be read. Ours: every task
begins on its faster side; then tasks leave the side with the higher mean load, those that lose least first, until the
sides have changed places; then the longest of those that left come back while that lowers the estimate. The best
estimate on the way counts. Figures got with this file are ours, not the paper's, and so is the lack of a claimed ratio.
"""

from __future__ import annotations

import numpy as np

from podium_optimisers.makespan.instance import Bools, Instance
from podium_optimisers.makespan.pack import pack
from podium_optimisers.makespan.schedule import Plan


def solve(instance: Instance) -> Plan:
    """O(n^2) with vector operations of length n."""
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
    return Plan(pack(instance, best))


def estimate(instance: Instance, on_gpu: Bools) -> float:
    """Seconds that no schedule with these sides can beat."""
    longest = np.where(on_gpu, instance.gpu, instance.cpu).max()
    return float(max(longest, *_mean_loads(instance, on_gpu)))


def _mean_loads(instance: Instance, on_gpu: Bools) -> tuple[float, float]:
    """Mean load of a CPU and of a GPU."""
    return (
        float(instance.cpu[~on_gpu].sum()) / max(1, instance.cpus),
        float(instance.gpu[on_gpu].sum()) / max(1, instance.gpus),
    )
