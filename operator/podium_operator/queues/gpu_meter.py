"""Counts the GPU-seconds that trials hold GPUs, by namespace and queue, for bills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from podium_core.domain.snapshot import JobKey, Snapshot
from podium_core.planning.queues.queue_rules import QueueRules
from podium_operator.metrics import Metrics

MAX_SECONDS = 60.0  # between two plans; a longer pause is not counted, since nobody saw who held the GPUs


class GpuMeter:
    """A counter that grows with each plan by what was held since the one before."""

    def __init__(self, metrics: Metrics) -> None:
        self._counter = metrics.gpu_seconds
        self._at = 0.0
        self._held: Mapping[tuple[str, str], int] = {}

    def record(self, snapshot: Snapshot) -> None:
        """Count until now what was held at the last plan, and remember what is held now."""
        seconds = snapshot.now - self._at
        if 0.0 < seconds <= MAX_SECONDS:
            for labels, gpus in self._held.items():
                self._counter.labels(*labels).inc(gpus * seconds)
        self._at, self._held = snapshot.now, held_gpus(snapshot)


def held_gpus(snapshot: Snapshot) -> Mapping[tuple[str, str], int]:
    """Return the number of held GPUs of each namespace and queue; the queue is empty on a cluster without GPUQueues."""
    rules = QueueRules.of(snapshot)
    queue_of: Mapping[JobKey, str] = {} if rules is None else rules.queue_of
    found = Counter[tuple[str, str]]()
    for gpu in snapshot.gpus:
        trial = None if gpu.holder is None else snapshot.holders.get(gpu.holder)
        if trial is not None:
            found[trial.job.namespace, queue_of.get(trial.job, "")] += 1
    return found
