"""A trained network as a policy of the engine: `simulate(workload, cluster, LearnedPolicy.load(path))`.

It starts waiting jobs only: no preemption. Called by benchmarks and whoever wants to run trained weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from podium_optimisers.engine.cluster import Cluster, Costs
from podium_optimisers.engine.simulation import Simulation
from podium_optimisers.engine.workload import Workload
from podium_optimisers.learning.backlog import FEATURES, Backlog, rows_of
from podium_optimisers.learning.environment import WAIT, mask_of
from podium_optimisers.learning.network import Network

TRAINED = Path(__file__).parent / "weights"


@dataclass(frozen=True, slots=True)
class LearnedPolicy:
    """Takes the choice with the highest score, ties to the job that came first."""

    network: Network
    name: str = "learned"

    @classmethod
    def load(cls, path: Path, name: str = "learned") -> LearnedPolicy:
        """Errors: WeightsError when the file holds no network for our rows."""
        return cls(Network.load(path, FEATURES), name)

    def begin(self, workload: Workload, cluster: Cluster, costs: Costs) -> LearnedDecider:
        return LearnedDecider(self.network)


class LearnedDecider(Backlog):
    """Goes on starting jobs until none fits or the network would rather wait."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def decide(self, simulation: Simulation) -> None:
        while self.waiting and simulation.pool.free:
            jobs = self.seen()
            mask = mask_of(simulation, jobs)
            slots = np.flatnonzero(mask[:WAIT])
            if not len(slots):
                return
            rows = rows_of(simulation, self, jobs)[[*slots.tolist(), -1] if mask[WAIT] else slots]
            picked = int(np.argmax(self.network.scores(rows))) if len(rows) > 1 else 0
            if picked == len(slots):
                return
            self.start(simulation, jobs[int(slots[picked])])
