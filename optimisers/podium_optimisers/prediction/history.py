"""How long will this job take? Answered from the jobs that have ended, by whom they are like, with shrinkage.

A job belongs to classes, from wide to narrow: all jobs, its group (virtual cluster), its user, its width, its template.
Each class keeps a mean of the durations seen, in which the newest count most. A class's prediction leans on that of the
next wider one as if it had `shrink` jobs of it: (n mean + shrink wider) / (n + shrink), so that a class with few jobs
says little (empirical Bayes; Efron and Morris, JASA 70, 1975). The mean, not the median: the order by expected duration
minimises the expected mean completion time of one machine (Rothkopf, Management Science 12, 1966). Called by
predicted-SJF, by the hybrid planner, and by whoever wants an estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from podium_optimisers.engine.workload import Workload

Class = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """`first_guess`: seconds, before anything is known; `half_life`: after so many jobs of its class one counts half;
    `shrink`: the weight, in jobs, of the next wider class.
    """

    first_guess: float = 3600.0
    half_life: float = 1000.0
    shrink: float = 3.0

    def __post_init__(self) -> None:
        for field in ("first_guess", "half_life", "shrink"):
            value = getattr(self, field)
            if not (value > 0.0 and math.isfinite(value)):
                raise ValueError(f"InvalidSetting: {field} is {value}; give a finite number above 0.")


class DurationHistory:
    """Learns from one ended job at a time; the same jobs in the same order give the same predictions."""

    def __init__(self, settings: HistorySettings | None = None) -> None:
        self.settings = settings if settings is not None else HistorySettings()
        self._keep = 0.5 ** (1.0 / self.settings.half_life)
        self._seen: dict[Class, tuple[float, float]] = {}  # weight, mean

    def observe(self, classes: tuple[Class, ...], duration: float) -> None:
        """A job of these classes has ended after `duration` seconds of work. Errors: ValueError names class, value."""
        if not (duration > 0.0 and math.isfinite(duration)):
            whose = " ".join(map(str, classes[-1])) if classes and classes[-1] else "all"  # the narrowest class
            text = f"a job of {whose}: a duration of {duration} s was seen; give finite seconds above 0."
            raise ValueError(f"InvalidHistory: {text}")
        for name in classes:
            weight, mean = self._seen.get(name, (0.0, 0.0))
            weight = weight * self._keep + 1.0
            self._seen[name] = (weight, mean + (duration - mean) / weight)

    def predict(self, classes: tuple[Class, ...]) -> float:
        """Expected seconds of a job of these classes, widest class first."""
        guess, shrink = self.settings.first_guess, self.settings.shrink
        for name in classes:
            weight, mean = self._seen.get(name, (0.0, 0.0))
            guess = (weight * mean + shrink * guess) / (weight + shrink)
        return guess


def classes_of(workload: Workload, row: int) -> tuple[Class, ...]:
    """The classes of one job, widest first; labels that the workload does not have, or that are empty, are left out."""
    name: Class = ()
    found = [name]
    for kind, column in (("group", workload.groups), ("user", workload.users)):
        if column and column[row]:
            name = (*name, kind, column[row])
            found.append(name)
    name = (*name, "gpus", int(workload.gpus[row]))
    found.append(name)
    if workload.templates and workload.templates[row]:
        found.append((*name, "template", workload.templates[row]))
    return tuple(found)


def burst_templates(workload: Workload, gap: float = 60.0) -> tuple[str, ...]:
    """A stand-in for templates where the trace has none: jobs of one group, user and width that come within `gap`
    seconds of one another are one burst (most often one script in a loop). Looks only at arrivals before the job's own.
    """
    if not gap >= 0.0:
        raise ValueError(f"InvalidSetting: gap is {gap} seconds; give 0 or more.")
    bursts = [""] * len(workload)
    last: dict[tuple[Class, ...], tuple[float, int]] = {}
    bare = Workload(workload.arrival, workload.duration, workload.gpus, (), workload.users, workload.groups)
    for row in np.argsort(workload.arrival, kind="stable").tolist():
        kind, now = classes_of(bare, row), float(workload.arrival[row])
        before, number = last.get(kind, (-math.inf, -1))
        if now - before > gap:
            number += 1
        last[kind] = (now, number)
        bursts[row] = f"burst-{number}"
    return tuple(bursts)
