"""An envelope that is ranked by something around it, for the benchmarks. Used by hpo_until_won and hpo_refitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from podium_core.domain.snapshot import Costs
from podium_core.policies.base import Policy


@dataclass(frozen=True, slots=True)
class Wrapped:
    """All but its `rank` is that of `inner`, an envelope or one that is wrapped."""

    inner: Policy
    name: ClassVar[str] = "envelope"
    needs_max_steps: ClassVar[bool] = True
    cuts: ClassVar[bool] = False

    @property
    def hysteresis(self) -> float:
        return self.inner.hysteresis

    def time_slice(self, costs: Costs) -> float:
        return self.inner.time_slice(costs)
