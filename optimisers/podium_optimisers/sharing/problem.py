"""The input of fair sharing: jobs with a throughput on each type of GPU, and the GPUs of each type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from podium_optimisers.arrays import Floats, Ints
from podium_optimisers.validation import InputError, require_count, require_numbers


@dataclass(frozen=True, slots=True)
class SharingProblem:
    """A problem of n jobs on T types. `rate` (n, T): steps per second on `width` GPUs of a type.

    A rate is 0 where the job cannot run. `width` (n,): GPUs of a job. `gpus` (T,): GPUs of each type. `weight` (n,):
    relative importance.
    """

    jobs: tuple[str, ...]
    types: tuple[str, ...]
    rate: Floats
    width: Ints
    gpus: Ints
    weight: Floats

    @staticmethod
    def of(
        jobs: Sequence[str],
        types: Sequence[str],
        rate: ArrayLike,
        gpus: Sequence[int],
        width: Sequence[int] | None = None,
        weight: Sequence[float] | None = None,
    ) -> SharingProblem:
        """Return a validated problem. Widths and weights default to 1."""
        if not types:
            raise InputError("NoMachines", "types", "the list is empty; give one or more types of GPU")
        if not jobs:
            raise InputError("NoJobs", "jobs", "the list is empty; give one or more jobs")
        _check_length("gpus", len(gpus), len(types), "types")
        for name, count in zip(types, gpus, strict=True):
            require_count(count, "gpus", item=name, at_least=0)
        widths, weights = list(width or [1] * len(jobs)), list(weight or [1.0] * len(jobs))
        _check_length("width", len(widths), len(jobs), "jobs")
        _check_length("weight", len(weights), len(jobs), "jobs")
        for name, count in zip(jobs, widths, strict=True):
            require_count(count, "width", item=name)
        rates = np.asarray(rate, dtype=np.float64)
        if rates.shape != (len(jobs), len(types)):
            text = f"the shape is {rates.shape}; give one row for each of {len(jobs)} jobs and {len(types)} columns"
            raise InputError("ShapeMismatch", "rate", text)
        require_numbers(rates, "rate", jobs, at_least=0.0)
        weighed = require_numbers(np.asarray(weights, dtype=np.float64), "weight", jobs, above=0.0)
        problem = SharingProblem(
            tuple(jobs), tuple(types), rates, np.asarray(widths, np.int64), np.asarray(gpus, np.int64), weighed
        )
        for job in np.flatnonzero(~problem.allowed.any(axis=1))[:1]:
            text = (
                f"{problem.width[job]} GPUs exceed each type with a rate above 0; give fewer, or a rate on another type"
            )
            raise InputError("NoFittingMachine", "width, rate", text, problem.jobs[job])
        return problem

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Return where each job can run (n, T)."""
        return (self.rate > 0.0) & (self.width[:, None] <= self.gpus[None, :])

    @property
    def usable(self) -> Floats:
        """Return the rate where the job can run, 0 elsewhere (n, T)."""
        return np.where(self.allowed, self.rate, 0.0)

    def subset(self, kept: NDArray[np.bool_]) -> SharingProblem:
        """Return the problem with only the jobs `kept` (n,)."""
        names = tuple(name for name, keep in zip(self.jobs, kept, strict=True) if keep)
        return SharingProblem(names, self.types, self.rate[kept], self.width[kept], self.gpus, self.weight[kept])


def _check_length(field: str, problem: int, expected: int, of: str) -> None:
    """Raise InputError if a list has the wrong length."""
    if problem != expected:
        raise InputError(
            "ShapeMismatch", field, f"the list has {problem} entries for {expected} {of}; give one for each"
        )
