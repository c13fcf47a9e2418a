"""Predict job durations from completed jobs of the same class, with shrinkage.

A job belongs to nested classes, from wide to narrow: all jobs, its group (virtual cluster), its user, its width, its
template. Each class keeps a mean of the durations, weighted towards recent ones. A class shrinks towards the next wider
class as if it had `shrink` jobs of it: (n mean + shrink wider) / (n + shrink). A class with few jobs thus has little
influence (empirical Bayes; Efron and Morris, JASA 70, 1975).

The predictor is the mean and not the median: the order by expected duration minimises the expected mean completion time
on one machine (Rothkopf, Management Science 12, 1966).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from podium_optimisers.engine.workload import Workload

JobClass = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """Settings of the predictor. `default_duration`: seconds predicted before any job has completed.

    `half_life`: the number of later jobs of a class after which a job has half its weight. `shrink`: the weight of the
    next wider class, in jobs.
    """

    default_duration: float = 3600.0
    half_life: float = 1000.0
    shrink: float = 3.0

    def __post_init__(self) -> None:
        for field in ("default_duration", "half_life", "shrink"):
            value = getattr(self, field)
            if not (value > 0.0 and math.isfinite(value)):
                raise ValueError(f"InvalidSetting: {field} must be a finite number above 0 (got {value}).")


class DurationHistory:
    """A predictor that learns from completed jobs, one at a time. It is deterministic."""

    def __init__(self, settings: HistorySettings | None = None) -> None:
        self.settings = settings if settings is not None else HistorySettings()
        self._keep = 0.5 ** (1.0 / self.settings.half_life)
        self._means: dict[JobClass, tuple[float, float]] = {}  # weight, mean

    def observe(self, classes: tuple[JobClass, ...], duration: float) -> None:
        """Learn that a job of these classes completed after `duration` seconds of work.

        Raises ValueError that names the class and the value if the duration is not positive and finite.
        """
        if not (duration > 0.0 and math.isfinite(duration)):
            narrowest = " ".join(map(str, classes[-1])) if classes and classes[-1] else "all"
            text = f"a job of class {narrowest} has a duration of {duration} s; give finite seconds above 0."
            raise ValueError(f"InvalidHistory: {text}")
        for name in classes:
            weight, mean = self._means.get(name, (0.0, 0.0))
            weight = weight * self._keep + 1.0
            self._means[name] = (weight, mean + (duration - mean) / weight)

    def predict(self, classes: tuple[JobClass, ...]) -> float:
        """Return the expected seconds of a job of these classes, the widest class first."""
        prediction, shrink = self.settings.default_duration, self.settings.shrink
        for name in classes:
            weight, mean = self._means.get(name, (0.0, 0.0))
            prediction = (weight * mean + shrink * prediction) / (weight + shrink)
        return prediction


def job_classes(workload: Workload, row: int) -> tuple[JobClass, ...]:
    """Return the classes of one job, widest first. Missing and empty labels are skipped."""
    name: JobClass = ()
    classes = [name]
    for kind, column in (("group", workload.groups), ("user", workload.users)):
        if column and column[row]:
            name = (*name, kind, column[row])
            classes.append(name)
    name = (*name, "gpus", int(workload.gpus[row]))
    classes.append(name)
    if workload.templates and workload.templates[row]:
        classes.append((*name, "template", workload.templates[row]))
    return tuple(classes)


def burst_templates(workload: Workload, gap: float = 60.0) -> tuple[str, ...]:
    """Return substitutes for templates in a trace that has none: one label for each burst of jobs.

    Jobs of one group, user and width that arrive within `gap` seconds of one another form a burst. Most often they come
    from one script in a loop. A job's label depends only on earlier arrivals.
    """
    if not gap >= 0.0:
        raise ValueError(f"InvalidSetting: gap must be at least 0 seconds (got {gap}).")
    bursts = [""] * len(workload)
    last: dict[tuple[JobClass, ...], tuple[float, int]] = {}
    bare = Workload(workload.arrival, workload.duration, workload.gpus, (), workload.users, workload.groups)
    for row in np.argsort(workload.arrival, kind="stable").tolist():
        kind, now = job_classes(bare, row), float(workload.arrival[row])
        before, number = last.get(kind, (-math.inf, -1))
        if now - before > gap:
            number += 1
        last[kind] = (now, number)
        bursts[row] = f"burst-{number}"
    return tuple(bursts)
