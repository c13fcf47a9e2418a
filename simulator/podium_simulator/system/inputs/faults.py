"""Random faults of a run, drawn from its seed. The engine calls it.

Each kind has its own random stream, so switching one kind off does not move the others.
"""

from __future__ import annotations

import math

import numpy as np

from podium_simulator.system.inputs.scenario import Faults, Method


class RandomFaults:
    def __init__(self, faults: Faults, seed: int) -> None:
        self._faults = faults
        self._nodes, self._pods, self._crashes, self._acts, self._agents = (
            np.random.default_rng([seed, stream]) for stream in range(5)
        )

    def node_lifetime(self) -> float:
        """Return the seconds until a node fails; infinity: it does not."""
        return _draw(self._nodes, self._faults.node)

    def node_downtime(self, evict: float) -> float:
        """Return the seconds until it is back, never before its pods are evicted."""
        return evict + _draw(self._nodes, self._faults.repair)

    def pod_lifetime(self) -> float:
        return _draw(self._pods, self._faults.pod)

    def process_lifetime(self) -> float:
        return _draw(self._crashes, self._faults.crash)

    def seconds_until_silence(self) -> float:
        """Return the seconds until a node's agent falls silent."""
        return _draw(self._agents, self._faults.silence)

    def silence_duration(self) -> float:
        return _draw(self._agents, self._faults.silent)

    def jittered(self, seconds: float, method: Method) -> float:
        if method.jitter == 0.0 or seconds == 0.0:
            return seconds
        return seconds * float(self._acts.uniform(1.0 - method.jitter, 1.0 + method.jitter))


def _draw(random: np.random.Generator, mean: float) -> float:
    return math.inf if math.isinf(mean) else float(random.exponential(mean))
