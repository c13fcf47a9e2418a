"""First in, first out: each trial runs to its end, in the order of its number. The baseline of all policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from podium_core.curves.curve_table import curves_of_job
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import Ranking, limit_switch_share


@dataclass(frozen=True, slots=True)
class Fifo:
    name: ClassVar[str] = "fifo"
    needs_max_steps: ClassVar[bool] = False
    cuts: ClassVar[bool] = False
    hysteresis: ClassVar[float] = 0.0

    def time_slice(self, costs: Costs) -> float:
        return limit_switch_share(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        curves = curves_of_job(job, trials, snapshot)
        numbers = curves.numbers

        def explain(row: int) -> tuple[str, str]:
            return "CreationOrder", f"trial {numbers[row]} in order of creation."

        # All scores are equal, so no trial is ever far enough ahead to preempt the holder of a GPU.
        return Ranking(curves, np.zeros(len(curves)), 0, explain)
