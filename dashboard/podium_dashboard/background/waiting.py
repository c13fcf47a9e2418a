"""Why a search runs or waits, and when it ends, as `podium explain job` says it."""

from __future__ import annotations

from time import monotonic

from podium_core.waiting.explain import explain_job
from podium_core.waiting.objects import StoredObjects, key_of
from podium_dashboard.background.tasks import Explained, ExplanationTask
from podium_simulator.expected.times import LOCAL, Sampling, expected_times

SAMPLES, SECONDS = 19, 5.0  # of the simulation: no further sample after this time


def explained(task: ExplanationTask) -> Explained:
    """Return the explanation, and the expected times if the search can run."""
    objects = StoredObjects(task.jobs, tuple(one.whole() for one in task.trials), task.nodes, task.now)
    key = key_of(task.job)
    explanation = explain_job(objects, key)
    times = None
    if not explanation.blocked:
        sampling = Sampling(SAMPLES, SECONDS, clock=monotonic)
        times = expected_times(objects, key, sampling, LOCAL if task.local else None)
    return Explained(explanation, times, task.now)
