"""A certified lower bound on the makespan of a stream, even if all arrivals had been known.

A length L is impossible if, for some release time r, the tasks released at r or later do not fit into (L - r) seconds
of m CPUs and k GPUs. Tasks may be cut into pieces, but a piece may run only on a side on which its whole task ends by
L. Assigning pieces by the ratio cpu / gpu is optimal (a fractional knapsack), so each check is exact and needs no LP
solver. The largest impossible L is a lower bound for every schedule. The proofs in
docs/explanation/optimisers/online.md compare
with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium_optimisers.arrays import Floats
from podium_optimisers.online.stream import Stream

PRECISION = 1e-9  # of the bisection, relative
SLACK = 1e-12  # relative; rounding must not make a possible length impossible


@dataclass(frozen=True, slots=True)
class _Sorted:
    """The stream's arrays (n,) in order of falling cpu / gpu: the tasks that gain most from a GPU first."""

    cpu: Floats
    gpu: Floats
    release: Floats


def lower_bound(stream: Stream) -> float:
    """Return the bound in seconds, 0 for an empty stream. O(n) checks of O(n) and a few bisections."""
    if not stream.tasks:
        return 0.0
    cpu, gpu, release = stream.cpu, stream.gpu, stream.release
    if not stream.cpus:
        cpu = np.full_like(cpu, np.inf)
    if not stream.gpus:
        gpu = np.full_like(gpu, np.inf)
    order = np.argsort(-(cpu / gpu), kind="stable")
    tasks = _Sorted(cpu[order], gpu[order], release[order])
    bound = float((release + np.minimum(cpu, gpu)).max())
    for since in np.unique(release):
        later = tasks.release >= since
        part = _Sorted(tasks.cpu[later], tasks.gpu[later], tasks.release[later])
        if not _fits(part, float(since), bound, stream):
            bound = _bisect(part, float(since), bound, stream)
    return bound


def _bisect(part: _Sorted, since: float, impossible: float, stream: Stream) -> float:
    """Return the largest impossible length that bisection finds."""
    # a feasible length: all tasks one after another, each on its faster side
    possible = since + float(np.minimum(part.cpu, part.gpu).sum()) + impossible
    while possible - impossible > PRECISION * possible:
        guess = (impossible + possible) / 2.0
        if _fits(part, since, guess, stream):
            possible = guess
        else:
            impossible = guess
    return impossible


def _fits(part: _Sorted, since: float, length: float, stream: Stream) -> bool:
    """Return whether the tasks fit, cut into pieces, into the time from `since` to `length`."""
    never_cpu = part.release + part.cpu > length * (1.0 + SLACK)
    never_gpu = part.release + part.gpu > length * (1.0 + SLACK)
    if (never_cpu & never_gpu).any():
        return False
    window = (length - since) * (1.0 + SLACK) + SLACK * length
    cpu_time_left = stream.cpus * window - part.cpu[never_gpu].sum()
    gpu_time_left = stream.gpus * window - part.gpu[never_cpu].sum()
    if cpu_time_left < 0.0 or gpu_time_left < 0.0:
        return False
    either = ~(never_cpu | never_gpu)
    return _left_for_cpus(part.cpu[either], part.gpu[either], float(gpu_time_left)) <= float(cpu_time_left)


def _left_for_cpus(cpu: Floats, gpu: Floats, gpu_time_left: float) -> float:
    """Return the least CPU work once the GPUs are full; the last task is split."""
    taken: NDArray[np.float64] = np.cumsum(gpu)
    whole = int(np.searchsorted(taken, gpu_time_left, side="right"))
    left = float(cpu[whole:].sum())
    if whole < cpu.size:
        before = float(taken[whole - 1]) if whole else 0.0
        left -= float(cpu[whole]) * (gpu_time_left - before) / float(gpu[whole])
    return left
