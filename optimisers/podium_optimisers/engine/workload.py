"""The input of a simulation: jobs with arrival, duration and width as arrays, and their validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium_core.domain.phrases import one_line
from podium_optimisers.arrays import Floats, Ints

MAX_JOB_GPUS = 1_000_000  # a job with more GPUs is certainly an input error


class WorkloadError(ValueError):
    """An invalid workload. `code` is a CamelCase identifier; `job` and `field` give the location."""

    def __init__(self, code: str, job: str, field: str, message: str) -> None:
        super().__init__(one_line(f"{code}: job {job}, {field}: {message}"))
        self.code = code
        self.job = job
        self.field = field


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One job: `duration` is its seconds of work on all its `gpus`, `arrival` the seconds since time 0.

    Duration predictions use `user`, `group` (virtual cluster) and `template`; they are empty if unknown.
    """

    name: str
    arrival: float
    duration: float
    gpus: int = 1
    user: str = ""
    group: str = ""
    template: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """A list of n jobs as arrays of shape (n,), in any order. Times are in seconds.

    The label columns have n entries or none. Raises WorkloadError for the first invalid job and field.
    """

    arrival: Floats
    duration: Floats
    gpus: Ints
    names: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        length = len(self.arrival)
        columns = ("duration", "gpus", "names", "users", "groups", "templates")
        for field in columns:
            count = len(getattr(self, field))
            if count != length and (count or field in ("duration", "gpus")):
                text = f"there are {count} values for {length} jobs; give one value for each job."
                raise WorkloadError("ColumnsDiffer", "(all)", field, text)
        self._check_column(
            "arrival", ~(np.isfinite(self.arrival) & (self.arrival >= 0.0)), "a finite time of 0 s or more"
        )
        self._check_column("duration", ~(np.isfinite(self.duration) & (self.duration > 0.0)), "finite seconds above 0")
        whole = np.isfinite(self.gpus) & (self.gpus == np.floor(self.gpus))
        self._check_column("gpus", ~(whole & (self.gpus >= 1)), "a whole number, 1 or more")

    @classmethod
    def of(cls, jobs: Sequence[BatchJob]) -> Workload:
        """Return a workload with these jobs."""
        for job in jobs:
            if not 1 <= job.gpus <= MAX_JOB_GPUS or job.gpus != int(job.gpus):
                text = f"{job.gpus} is out of range; give a whole number from 1 to {MAX_JOB_GPUS}."
                raise WorkloadError("InvalidValue", job.name, "gpus", text)
        return cls(
            np.array([job.arrival for job in jobs], dtype=np.float64),
            np.array([job.duration for job in jobs], dtype=np.float64),
            np.array([job.gpus for job in jobs], dtype=np.int64),
            tuple(job.name for job in jobs),
            tuple(job.user for job in jobs),
            tuple(job.group for job in jobs),
            tuple(job.template for job in jobs),
        )

    def __len__(self) -> int:
        return len(self.arrival)

    def name(self, index: int) -> str:
        """Return the name of the job in this row, or the row number if jobs have no names."""
        return self.names[index] if self.names else str(index)

    def select(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Workload:
        """Return a new workload with the jobs of these rows."""
        chosen = np.arange(len(self))[rows]
        labels = [self.names, self.users, self.groups, self.templates]
        kept = [tuple(column[row] for row in chosen) if column else () for column in labels]
        return Workload(self.arrival[chosen], self.duration[chosen], self.gpus[chosen], *kept)

    def check_width(self, available: int) -> None:
        """Raise WorkloadError (JobTooLarge) if a job needs more than `available` GPUs."""
        wide = np.flatnonzero(self.gpus > available)
        if wide.size:
            row = int(wide[0])
            text = f"the job needs {int(self.gpus[row])} GPUs and the cluster has {available}; make the job narrower."
            raise WorkloadError("JobTooLarge", self.name(row), "gpus", text)

    def _check_column(self, field: str, wrong: NDArray[np.bool_], expected: str) -> None:
        """Raise WorkloadError for the first row in which the field is wrong."""
        rows = np.flatnonzero(wrong)
        if rows.size:
            row = int(rows[0])
            value = getattr(self, field)[row]
            raise WorkloadError("InvalidValue", self.name(row), field, f"{value} is out of range; give {expected}.")
