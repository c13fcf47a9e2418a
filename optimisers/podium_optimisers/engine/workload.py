"""What is to be run: jobs with arrival, duration and width, as arrays. The edge where bad input is refused.

Called by everything that simulates; readers of traces and generators build it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
WIDEST = 1_000_000  # GPUs of one job: beyond this the number given is surely not that meant


class WorkloadError(ValueError):
    """A workload that cannot be run. `code` is CamelCase; `job` and `field` say where."""

    def __init__(self, code: str, job: str, field: str, sentence: str) -> None:
        super().__init__(f"{code}: job {job}, {field}: {sentence}")
        self.code = code
        self.job = job
        self.field = field


@dataclass(frozen=True, slots=True)
class Job:
    """One job. `duration`: seconds of work when all its `gpus` run; `arrival`: seconds since the start of the trace.
    `user`, `group` (virtual cluster) and `template` are what history is kept by; empty when unknown.
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
    """n jobs as columns of shape (n,), in any order. Times in seconds. The label columns have n entries or none.

    Errors: WorkloadError names the first job and field that are wrong.
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
            found = len(getattr(self, field))
            if found != length and (found or field in ("duration", "gpus")):
                text = f"there are {found} values for {length} jobs; give one for each."
                raise WorkloadError("ColumnsDiffer", "(all)", field, text)
        self._refuse("arrival", ~(np.isfinite(self.arrival) & (self.arrival >= 0.0)), "a finite time of 0 s or more")
        self._refuse("duration", ~(np.isfinite(self.duration) & (self.duration > 0.0)), "finite seconds above 0")
        whole = np.isfinite(self.gpus) & (self.gpus == np.floor(self.gpus))
        self._refuse("gpus", ~(whole & (self.gpus >= 1)), "a whole number, 1 or more")

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Workload:
        """The same jobs as columns."""
        for job in jobs:
            if not 1 <= job.gpus <= WIDEST or job.gpus != int(job.gpus):
                text = f"{job.gpus} is no value; give a whole number, 1 to {WIDEST}."
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
        return self.names[index] if self.names else str(index)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Workload:
        """The jobs of these rows, a new workload."""
        chosen = np.arange(len(self))[rows]
        labels = [self.names, self.users, self.groups, self.templates]
        kept = [tuple(column[row] for row in chosen) if column else () for column in labels]
        return Workload(self.arrival[chosen], self.duration[chosen], self.gpus[chosen], *kept)

    def check_width(self, available: int) -> None:
        """Errors: JobTooLarge when a job asks for more GPUs than the cluster has."""
        wide = np.flatnonzero(self.gpus > available)
        if wide.size:
            row = int(wide[0])
            text = f"{int(self.gpus[row])} GPUs are asked for and the cluster has {available}; make the gang smaller."
            raise WorkloadError("JobTooLarge", self.name(row), "gpus", text)

    def _refuse(self, field: str, wrong: NDArray[np.bool_], cure: str) -> None:
        rows = np.flatnonzero(wrong)
        if rows.size:
            row = int(rows[0])
            value = getattr(self, field)[row]
            raise WorkloadError("InvalidValue", self.name(row), field, f"{value} is no value; give {cure}.")
