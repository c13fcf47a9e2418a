"""Count the lost work of all trials, from the totals in their statuses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from podium_operator.metrics import Metrics
from podium_operator.observe.trial_state import TrialState


@dataclass(frozen=True, slots=True)
class _Totals:
    count: int
    gpu_seconds: float


class LostWorkCounter:
    """Counters of lost work. What was lost before this operator started is not counted again."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._before: dict[str, _Totals] = {}  # by the uid of the trial

    def count(self, trials: Iterable[TrialState]) -> None:
        """Add what the trials lost since the last call."""
        totals: dict[str, _Totals] = {}
        for trial in trials:
            lost = trial.status.lost_work
            now = totals[trial.metadata.uid] = _Totals(lost.count, lost.gpu_seconds)
            before = self._before.get(trial.metadata.uid, now)
            namespace = trial.metadata.namespace
            # a counter that appears with its first loss has no increase, so no alert would notice that loss
            self._metrics.lost_work.labels(namespace).inc(max(0, now.count - before.count))
            self._metrics.lost_gpu_seconds.labels(namespace).inc(max(0.0, now.gpu_seconds - before.gpu_seconds))
        self._before = totals
