"""Seeded sets of jobs for GPUs of three speeds, in the manner of Gavel's evaluation. Called by the benchmark and tests.

Durations and widths are drawn as that evaluation states: minutes on a V100 10^U(1.5, 3) for 80 % of the jobs and
10^U(3, 4) for 20 %; 1, 2, 4, 8 GPUs for 70, 10, 15, 5 %. Speeds are either measured (`gavel_measured`) or our own model
of what its figures show (`gavel_like`): a V100 is 2 to 10 times a K80 (log-uniform), a P100 lies between (its exponent
is U(0.4, 0.8)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.sharing.gavel_speeds import SPEEDS
from podium_optimisers.sharing.problem import Floats, Ints, SharingProblem

TYPES = ("v100", "p100", "k80")
Gpus = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class JobSet:
    """Jobs with their work, `steps` (n,); all there at time 0, in order of the queue. A V100 does 1 step a second."""

    problem: SharingProblem
    steps: Floats


def gavel_like(rng: np.random.Generator, jobs: int, gpus: Gpus = (36, 36, 36)) -> JobSet:
    """Speeds of our model. Widths are cut to the largest type."""
    fastest = np.exp(rng.uniform(np.log(2.0), np.log(10.0), jobs))
    between = fastest ** rng.uniform(0.4, 0.8, jobs)
    rate = np.stack([np.ones(jobs), between / fastest, 1.0 / fastest], axis=1)
    return _job_set(rng, rate, _widths(rng, jobs, gpus), gpus)


def gavel_measured(rng: np.random.Generator, jobs: int, gpus: Gpus = (36, 36, 36)) -> JobSet:
    """Each job is one of the measured ones, all as likely; one of several GPUs is one of the distributed. The ratios of
    one GPU stand for all widths.
    """
    width = _widths(rng, jobs, gpus)
    distributed = np.array([place for place, one in enumerate(SPEEDS) if one.distributed])
    drawn = np.where(width == 1, rng.integers(0, len(SPEEDS), jobs), rng.choice(distributed, jobs))
    rate = np.array([(1.0, one.p100, one.k80) for one in SPEEDS])[drawn]
    return _job_set(rng, rate, width, gpus)


def _widths(rng: np.random.Generator, jobs: int, gpus: Gpus) -> Ints:
    return rng.choice([1, 2, 4, 8], jobs, p=[0.70, 0.10, 0.15, 0.05]).clip(max=max(gpus)).astype(np.int64)


def _job_set(rng: np.random.Generator, rate: Floats, width: Ints, gpus: Gpus) -> JobSet:
    jobs = len(rate)
    minutes = 10.0 ** np.where(rng.random(jobs) < 0.8, rng.uniform(1.5, 3.0, jobs), rng.uniform(3.0, 4.0, jobs))
    names = [f"j{number}" for number in range(jobs)]
    return JobSet(SharingProblem.of(names, TYPES, rate, gpus, width.tolist()), 60.0 * minutes)
