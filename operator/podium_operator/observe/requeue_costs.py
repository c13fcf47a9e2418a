"""Measured cost of a requeue: seconds from the deletion of a pod until the trial has done its next step elsewhere.

The reconciler updates it; the planner compares the mean with what a switch of the GPU gains. The cost includes the
times in which the move keeps a GPU or the trial busy: checkpointing and ending, starting the new pod, loading. It does
not include the waiting that happens anyway: for a slot, and for a time slice at the gate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.snapshot import TrialKey
from podium_operator.observe.cluster_state import World
from podium_operator.observe.observation import Sight
from podium_operator.observe.trial_state import SeenTrial

SAMPLES = 32
LONGEST = 3600.0  # a requeue that takes longer met another problem: it is not counted


@dataclass(frozen=True, slots=True)
class _Journey:
    """Requeue in progress. `spent`: busy seconds so far; `running`: when the new attempt started to train."""

    attempt: int  # the attempt whose pod was deleted
    since: float
    seen: float  # time of the last update
    busy: bool = True  # whether the move kept a GPU or the trial busy at the last update
    spent: float = 0.0
    running: float | None = None


class RequeueCosts:
    """Samples of requeue costs, kept in memory: a new operator starts with the planner's default."""

    def __init__(self) -> None:
        self._journeys: dict[TrialKey, _Journey] = {}
        self._samples: deque[float] = deque(maxlen=SAMPLES)

    @property
    def mean(self) -> float | None:
        """Mean cost in seconds; None until a requeue was measured."""
        return sum(self._samples) / len(self._samples) if self._samples else None

    def look(self, world: World, sights: Mapping[TrialKey, Sight]) -> None:
        """Follow every requeue in progress; called once in each reconcile. O(trials)."""
        under_way: dict[TrialKey, _Journey] = {}
        for key, sight in sights.items():
            journey = self._journeys.get(key)
            if journey is None and sight.leaving and sight.started:
                journey = _Journey(sight.attempt, world.now, world.now)
            if journey is None or sight.phase in FINAL or world.now - journey.since > LONGEST:
                continue
            after = self._follow(journey, sight, world.trial_by_key[key], world.now)
            if after is not None:
                under_way[key] = after
        self._journeys = under_way

    def _follow(self, journey: _Journey, sight: Sight, trial: SeenTrial, now: float) -> _Journey | None:
        """Return the requeue after this observation, or None once it is complete."""
        busy = sight.leaving or (sight.phase is TrialPhase.PENDING and sight.node is not None)
        spent = journey.spent + (now - journey.seen if journey.busy else 0.0)
        if sight.attempt <= journey.attempt or sight.phase is not TrialPhase.RUNNING:
            return replace(journey, seen=now, busy=busy, spent=spent)
        running = now if journey.running is None else journey.running
        last = trial.points[-1] if trial.points else None
        if last is None or last.time <= running:
            return replace(journey, seen=now, busy=False, spent=spent, running=running)
        # the first value comes after a step of training, which is not a cost of the requeue
        self._samples.append(spent + max(0.0, last.time - running - _step_seconds(trial)))
        return None


def _step_seconds(trial: SeenTrial) -> float:
    steps = trial.points[-1].step if trial.points else 0.0
    return trial.status.gpu_seconds / steps if steps > 0.0 else 0.0
