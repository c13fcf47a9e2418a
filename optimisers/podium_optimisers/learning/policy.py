"""A trained network as a scheduling policy: `simulate(workload, cluster, LearnedPolicy.load(path))`.

The policy starts waiting jobs only; it never preempts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from podium_optimisers.engine.cluster import GpuCluster, PreemptionCosts
from podium_optimisers.engine.simulation import Simulation
from podium_optimisers.engine.workload import Workload
from podium_optimisers.learning.backlog import FEATURES, Backlog, feature_rows
from podium_optimisers.learning.environment import WAIT_ACTION, action_mask
from podium_optimisers.learning.network import ScoreNetwork

TRAINED_WEIGHTS = Path(__file__).parent / "weights"


@dataclass(frozen=True, slots=True)
class LearnedPolicy:
    """The policy that takes the action with the highest score; ties go to the oldest job."""

    network: ScoreNetwork
    name: str = "learned"

    @classmethod
    def load(cls, path: Path, name: str = "learned") -> LearnedPolicy:
        """Read a policy from a weights file. Raise WeightsError if the file does not fit the features."""
        return cls(ScoreNetwork.load(path, FEATURES), name)

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> LearnedScheduler:
        """Return a new scheduler."""
        return LearnedScheduler(self.network)


class LearnedScheduler(Backlog):
    """A scheduler that starts jobs until none fits or the network prefers to wait."""

    def __init__(self, network: ScoreNetwork) -> None:
        super().__init__()
        self.network = network

    def decide(self, simulation: Simulation) -> None:
        """Start jobs by the scores of the network."""
        while self.waiting and simulation.pool.free:
            jobs = self.visible_jobs()
            mask = action_mask(simulation, jobs)
            feasible = np.flatnonzero(mask[:WAIT_ACTION])
            if not len(feasible):
                return
            rows = feature_rows(simulation, self, jobs)[[*feasible.tolist(), -1] if mask[WAIT_ACTION] else feasible]
            chosen = int(np.argmax(self.network.scores(rows))) if len(rows) > 1 else 0
            if chosen == len(feasible):
                return
            self.start(simulation, jobs[int(feasible[chosen])])
