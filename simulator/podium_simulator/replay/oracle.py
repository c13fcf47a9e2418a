"""Oracle policy: knows every curve to its end, which shows how much a policy can gain. For replays only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import curves_of_job
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import Ranking, limit_switch_share
from podium_simulator.replay.metrics import goal_trials
from podium_simulator.replay.samples import Sample


@dataclass(frozen=True, slots=True)
class Oracle:
    """Oracle policy. `positions[i]`: position at which trial number i is trained."""

    positions: tuple[int, ...]

    name: ClassVar[str] = "oracle"
    needs_max_steps: ClassVar[bool] = False
    cuts: ClassVar[bool] = False
    hysteresis: ClassVar[float] = 0.0

    @staticmethod
    def of(sample: Sample) -> Oracle:
        """Return the oracle of a sample.

        First the trials that reach the target, the best value and its neighbourhood soonest, then by final value.
        """
        order = [
            *goal_trials(sample),
            *sorted(range(len(sample.trials)), key=lambda i: -sample.best_of(sample.trials[i])),
        ]
        positions: dict[int, int] = {}
        for trial in order:
            positions.setdefault(trial, len(positions))
        return Oracle(tuple(positions[i] for i in range(len(sample.trials))))

    def time_slice(self, costs: Costs) -> float:
        return limit_switch_share(costs, 0.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        seen = curves_of_job(job, trials, snapshot)
        levels: NDArray[np.intp] = np.array([self.positions[number] for number in seen.numbers], dtype=np.intp)
        return Ranking(seen, np.zeros(len(seen)), levels, lambda row: ("OracleOrder", "the future is known here."))
