"""What a requeue costs, measured: seconds from "save and go" until the trial has done its next step elsewhere.

Called by the cycle; the planner weighs the mean against what a hand-over of the GPU gains. Counted are the times in
which a GPU or the trial is busy with the move: saving and ending, the start of the new pod, loading. Not counted is
what waiting costs anyway: for a share, and for a turn at the gate.
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
LONGEST = 3600.0  # a journey that takes longer met something else: it is not counted


@dataclass(frozen=True, slots=True)
class _Journey:
    """A move that is under way. `spent` seconds of it count so far; `running`: since when the new attempt works."""

    attempt: int  # that was told to go
    since: float
    seen: float  # the last look
    busy: bool = True  # as it was seen then, so until now
    spent: float = 0.0
    running: float | None = None


class RequeueCosts:
    """Kept in memory: an operator that starts anew begins with the default again."""

    def __init__(self) -> None:
        self._journeys: dict[TrialKey, _Journey] = {}
        self._samples: deque[float] = deque(maxlen=SAMPLES)

    @property
    def mean(self) -> float | None:
        """Seconds; None until one was measured."""
        return sum(self._samples) / len(self._samples) if self._samples else None

    def look(self, world: World, sights: Mapping[TrialKey, Sight]) -> None:
        """Once a cycle; O(trials)."""
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
        """The journey after this look; None: it is over."""
        busy = sight.leaving or (sight.phase is TrialPhase.PENDING and sight.node is not None)
        spent = journey.spent + (now - journey.seen if journey.busy else 0.0)
        if sight.attempt <= journey.attempt or sight.phase is not TrialPhase.RUNNING:
            return replace(journey, seen=now, busy=busy, spent=spent)
        running = now if journey.running is None else journey.running
        last = trial.points[-1] if trial.points else None
        if last is None or last.time <= running:
            return replace(journey, seen=now, busy=False, spent=spent, running=running)
        # the first value comes after a step of training, which is no cost of the move
        self._samples.append(spent + max(0.0, last.time - running - _step_seconds(trial)))
        return None


def _step_seconds(trial: SeenTrial) -> float:
    steps = trial.points[-1].step if trial.points else 0.0
    return trial.status.gpu_seconds / steps if steps > 0.0 else 0.0
