"""Who shares what: jobs with a throughput on each type of GPU, and how many GPUs of each type there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from podium_optimisers.queueing.checks import InputError, require_all, require_count

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SharingProblem:
    """n jobs on T types. `rate` (n, T): steps per second of a job at work on `width` (n,) GPUs of that type, 0 where it
    cannot run. `gpus` (T,): how many there are. `weight` (n,): what a job is worth beside the others.
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
        """Checked. Widths and weights default to 1."""
        if not types:
            raise InputError("NoMachines", "types", "there is no type of GPU; give one or more")
        if not jobs:
            raise InputError("NoJobs", "jobs", "there is no job; give one or more")
        _shape("gpus", len(gpus), len(types), "types")
        for name, count in zip(types, gpus, strict=True):
            require_count(count, "gpus", task=name, least=0)
        widths, weights = list(width or [1] * len(jobs)), list(weight or [1.0] * len(jobs))
        _shape("width", len(widths), len(jobs), "jobs")
        _shape("weight", len(weights), len(jobs), "jobs")
        for name, count in zip(jobs, widths, strict=True):
            require_count(count, "width", task=name)
        rates = np.asarray(rate, dtype=np.float64)
        if rates.shape != (len(jobs), len(types)):
            text = f"has the shape {rates.shape}; give one row for each of {len(jobs)} jobs and {len(types)} columns"
            raise InputError("ShapeMismatch", "rate", text)
        require_all(rates, "rate", jobs, least=0.0)
        weighed = require_all(np.asarray(weights, dtype=np.float64), "weight", jobs, above=0.0)
        found = SharingProblem(
            tuple(jobs), tuple(types), rates, np.asarray(widths, np.int64), np.asarray(gpus, np.int64), weighed
        )
        for job in np.flatnonzero(~found.allowed.any(axis=1))[:1]:
            text = f"{found.width[job]} GPUs fit on no type where its rate is above 0; give fewer, or a rate elsewhere"
            raise InputError("NoFittingMachine", "width, rate", text, found.jobs[job])
        return found

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """(n, T): where a job can run at all."""
        return (self.rate > 0.0) & (self.width[:, None] <= self.gpus[None, :])

    @property
    def usable(self) -> Floats:
        """(n, T): the rate where the job can run, else 0."""
        return np.where(self.allowed, self.rate, 0.0)

    def only(self, kept: NDArray[np.bool_]) -> SharingProblem:
        """The same cluster with the jobs `kept` (n,)."""
        names = tuple(name for name, stays in zip(self.jobs, kept, strict=True) if stays)
        return SharingProblem(names, self.types, self.rate[kept], self.width[kept], self.gpus, self.weight[kept])


def _shape(field: str, found: int, wanted: int, of: str) -> None:
    if found != wanted:
        raise InputError("ShapeMismatch", field, f"has {found} entries for {wanted} {of}; give one for each")
