"""Round robin: the trial with the fewest GPU-seconds goes next, after the holder has had a quantum.

No trial starves. Bound of the wait: a trial that loses its GPU had the fewest seconds one time slice ago. Before it is
next again, each other trial trains at most that slice, to draw level, and one slice of its own. With n trials on a GPU
and s + r seconds per switch, no live trial waits longer than 2 (n - 1) (T + s + r). T is the longest time slice:
`time_slice`, or (s + r) / 0.03 once a trial's s + r are measured. A tenth of a quantum is added, because a switch must
bring that gain. A trial that comes later first draws level with the others.

The members of a population (`search.algorithm: pbt`) draw level in steps, not in GPU-seconds. A child begins at its
parent's step without GPU-seconds, and would otherwise train far ahead of those that it is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable, curves_of_job
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import Ranking, limit_switch_share


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Round-robin policy. `quantum`: seconds of one time slice."""

    quantum: float = 10.0

    name: ClassVar[str] = "round_robin"
    needs_max_steps: ClassVar[bool] = False
    cuts: ClassVar[bool] = False
    hysteresis: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if not self.quantum > 0.0:
            raise ValueError(f"quantum: {self.quantum:g} seconds is not a time slice; give a number above 0")

    def time_slice(self, costs: Costs) -> float:
        return limit_switch_share(costs, self.quantum)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        curves = curves_of_job(job, trials, snapshot)
        seconds = curves.seconds.copy() if job.population is None else _level(trials, curves)

        def explain(row: int) -> tuple[str, str]:
            text = "has had" if job.population is None else "has the training of"
            return "LeastServed", f"{text} {seconds[row]:.1f} GPU-seconds."

        return Ranking(curves, -seconds / self.quantum, 0, explain)  # one quantum less used is a score of 1 more


def _level(trials: Sequence[TrialView], curves: CurveTable) -> NDArray[np.float64]:
    """Return, by row, the mean GPU-seconds of as many steps as each trial stands at; its own before anything trained.

    A child stands at least where its trials were compared.
    """
    steps = sum(t.reached_step for t in trials) - sum(t.first_step for t in trials)
    pace = sum(t.usage.gpu_seconds for t in trials) / steps if steps > 0.0 else 0.0
    level = np.zeros(len(curves))  # it has rows of ended trials, too
    for trial in trials:
        level[curves.rows[trial.key]] = pace * trial.reached_step if pace > 0.0 else trial.usage.gpu_seconds
    return level
