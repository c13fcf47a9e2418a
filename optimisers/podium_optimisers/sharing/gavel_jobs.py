"""Random job sets for three types of GPU, in the manner of Gavel's evaluation, and measured speeds.

Durations and widths follow that evaluation: minutes on a V100 are 10^U(1.5, 3) for 80 % of the jobs and 10^U(3, 4) for
20 %; widths are 1, 2, 4, 8 GPUs for 70, 10, 15, 5 %. Speeds are either measured (`gavel_measured`) or from a model of
them (`gavel_like`): a V100 is 2 to 10 times as fast as a K80 (log-uniform), and a P100 lies between (its exponent is
U(0.4, 0.8)).

The measured speeds are those of 26 training jobs on one GPU without other load, from the repository
stanford-futuredata/gavel (MIT), file scheduler/simulation_throughputs.json; figures only, rounded. Source: Narayanan,
Santhanam, Kazhamiaka, Phanishayee, Zaharia (OSDI 2020). The recommendation model is slowest on a V100 in the source as
well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.arrays import Floats, Ints
from podium_optimisers.sharing.problem import SharingProblem


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """Steps per second on a P100 and on a K80 relative to a V100.

    `distributed`: whether the job runs on several GPUs in Gavel.
    """

    model: str
    batch: int | None
    p100: float
    k80: float
    distributed: bool = True


SPEEDS = (
    MeasuredSpeed("ResNet-18", 16, 1.109, 0.148),
    MeasuredSpeed("ResNet-18", 32, 1.196, 0.240),
    MeasuredSpeed("ResNet-18", 64, 0.926, 0.293),
    MeasuredSpeed("ResNet-18", 128, 0.649, 0.100),
    MeasuredSpeed("ResNet-18", 256, 0.750, 0.086),
    MeasuredSpeed("ResNet-50", 16, 0.794, 0.202),
    MeasuredSpeed("ResNet-50", 32, 0.628, 0.159),
    MeasuredSpeed("ResNet-50", 64, 0.596, 0.141),
    MeasuredSpeed("ResNet-50", 128, 0.635, 0.139),
    MeasuredSpeed("Transformer", 16, 0.862, 0.494),
    MeasuredSpeed("Transformer", 32, 0.741, 0.330),
    MeasuredSpeed("Transformer", 64, 0.591, 0.203),
    MeasuredSpeed("Transformer", 128, 0.564, 0.180),
    MeasuredSpeed("Transformer", 256, 1.052, 0.287),
    MeasuredSpeed("LSTM", 5, 0.832, 0.233),
    MeasuredSpeed("LSTM", 10, 0.944, 0.291),
    MeasuredSpeed("LSTM", 20, 0.899, 0.265),
    MeasuredSpeed("LSTM", 40, 0.791, 0.254),
    MeasuredSpeed("LSTM", 80, 0.749, 0.214),
    MeasuredSpeed("Recommendation", 512, 2.096, 1.409, False),
    MeasuredSpeed("Recommendation", 1024, 2.315, 1.509, False),
    MeasuredSpeed("Recommendation", 2048, 2.222, 1.398, False),
    MeasuredSpeed("Recommendation", 4096, 2.278, 1.357, False),
    MeasuredSpeed("Recommendation", 8192, 1.953, 0.950, False),
    MeasuredSpeed("A3C", None, 0.792, 0.479, False),
    MeasuredSpeed("CycleGAN", None, 0.543, 0.114, False),
)


TYPES = ("v100", "p100", "k80")
Gpus = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class JobSet:
    """Jobs with their work, `steps` (n,).

    All arrive at time 0, in queue order. A V100 does 1 step a second.
    """

    problem: SharingProblem
    steps: Floats


def gavel_like(rng: np.random.Generator, jobs: int, gpus: Gpus = (36, 36, 36)) -> JobSet:
    """Return a job set with modelled speeds. Widths are limited to the largest type."""
    fastest = np.exp(rng.uniform(np.log(2.0), np.log(10.0), jobs))
    between = fastest ** rng.uniform(0.4, 0.8, jobs)
    rate = np.stack([np.ones(jobs), between / fastest, 1.0 / fastest], axis=1)
    return _job_set(rng, rate, _widths(rng, jobs, gpus), gpus)


def gavel_measured(rng: np.random.Generator, jobs: int, gpus: Gpus = (36, 36, 36)) -> JobSet:
    """Return a job set with measured speeds, each measured job equally likely.

    Jobs with several GPUs are drawn from the distributed ones. The ratios of one GPU apply to all widths.
    """
    width = _widths(rng, jobs, gpus)
    distributed = np.array([index for index, speed in enumerate(SPEEDS) if speed.distributed])
    drawn = np.where(width == 1, rng.integers(0, len(SPEEDS), jobs), rng.choice(distributed, jobs))
    rate = np.array([(1.0, speed.p100, speed.k80) for speed in SPEEDS])[drawn]
    return _job_set(rng, rate, width, gpus)


def _widths(rng: np.random.Generator, jobs: int, gpus: Gpus) -> Ints:
    return rng.choice([1, 2, 4, 8], jobs, p=[0.70, 0.10, 0.15, 0.05]).clip(max=max(gpus)).astype(np.int64)


def _job_set(rng: np.random.Generator, rate: Floats, width: Ints, gpus: Gpus) -> JobSet:
    jobs = len(rate)
    minutes = 10.0 ** np.where(rng.random(jobs) < 0.8, rng.uniform(1.5, 3.0, jobs), rng.uniform(3.0, 4.0, jobs))
    names = [f"j{number}" for number in range(jobs)]
    return JobSet(SharingProblem.of(names, TYPES, rate, gpus, width.tolist()), 60.0 * minutes)
