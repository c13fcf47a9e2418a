"""Measured cost of a requeue: seconds from the deletion of a pod until the trial has done its next step elsewhere.

The reconciler updates it; the planner compares the mean with what a switch of the GPU gains. The cost includes the
times in which the move keeps a GPU or the trial busy: checkpointing and ending, starting the new pod, loading. It does
not include the waiting that happens anyway: for a slot, and for a time slice at the gate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from podium_core.domain.keys import TrialKey
from podium_core.domain.phase import FINAL, TrialPhase
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.observation import Observation
from podium_operator.observe.trial_state import TrialState

SAMPLES = 32
MAX_SECONDS = 3600.0  # a requeue that takes longer met another problem: it is not counted


@dataclass(frozen=True, slots=True)
class _OngoingRequeue:
    """Requeue in progress. `spent`: busy seconds so far; `running`: when the new attempt started to train."""

    attempt: int  # the attempt whose pod was deleted
    since: float
    updated: float  # time of the last update
    busy: bool = True  # whether the move kept a GPU or the trial busy at the last update
    spent: float = 0.0
    running: float | None = None


class RequeueCosts:
    """Samples of requeue costs, kept in memory: a new operator starts with the planner's default."""

    def __init__(self) -> None:
        self._ongoing: dict[TrialKey, _OngoingRequeue] = {}
        self._samples: deque[float] = deque(maxlen=SAMPLES)

    @property
    def mean(self) -> float | None:
        """Mean cost in seconds; None until a requeue was measured."""
        return sum(self._samples) / len(self._samples) if self._samples else None

    def update(self, cluster: ClusterState, observations: Mapping[TrialKey, Observation]) -> None:
        """Follow every requeue in progress; called once in each reconcile. O(trials)."""
        ongoing: dict[TrialKey, _OngoingRequeue] = {}
        for key, observation in observations.items():
            requeue = self._ongoing.get(key)
            if requeue is None and observation.delays.terminating and observation.started:
                requeue = _OngoingRequeue(observation.attempts.number, cluster.now, cluster.now)
            if requeue is None or observation.phase in FINAL or cluster.now - requeue.since > MAX_SECONDS:
                continue
            after = self._advance(requeue, observation, cluster.trial_by_key[key], cluster.now)
            if after is not None:
                ongoing[key] = after
        self._ongoing = ongoing

    def _advance(
        self, requeue: _OngoingRequeue, observation: Observation, trial: TrialState, now: float
    ) -> _OngoingRequeue | None:
        """Return the requeue after this observation, or None once it is complete."""
        starts = observation.phase is TrialPhase.PENDING and observation.node is not None
        busy = observation.delays.terminating or starts
        spent = requeue.spent + (now - requeue.updated if requeue.busy else 0.0)
        if observation.attempts.number <= requeue.attempt or observation.phase is not TrialPhase.RUNNING:
            return replace(requeue, updated=now, busy=busy, spent=spent)
        running = now if requeue.running is None else requeue.running
        last = trial.points[-1] if trial.points else None
        if last is None or last.time <= running:
            return replace(requeue, updated=now, busy=False, spent=spent, running=running)
        # the first value comes after a step of training, which is not a cost of the requeue
        self._samples.append(spent + max(0.0, last.time - running - _step_seconds(trial)))
        return None


def _step_seconds(trial: TrialState) -> float:
    steps = trial.points[-1].step if trial.points else 0.0
    return trial.status.gpu_seconds / steps if steps > 0.0 else 0.0
