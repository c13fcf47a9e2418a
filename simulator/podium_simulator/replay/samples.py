"""Sample of a trace: the trials of one search, and the machine that replays them.

Every policy gets the same sample in the same order, so runs can be compared in pairs.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from podium_core.curves.non_finite import diverged
from podium_core.domain.snapshot import Costs
from podium_simulator.traces.trace import RecordedTrial, Trace


@dataclass(frozen=True, slots=True)
class Sample:
    """Trials of one search.

    `trials` are in the order of their creation. Values are as recorded; `sign` makes larger better.
    """

    task: str
    family: str
    seed: int
    maximize: bool
    target: float | None
    trials: tuple[RecordedTrial, ...]

    @property
    def sign(self) -> float:
        return 1.0 if self.maximize else -1.0

    @property
    def horizon(self) -> float:
        """H: seconds of the longest trial, the declared budget of all trials."""
        return max(trial.length for trial in self.trials)

    @property
    def gap(self) -> float:
        """Median seconds between evaluations."""
        gaps = [b - a for t in self.trials for a, b in pairwise(t.seconds)]
        return median(gaps) if gaps else self.horizon

    def best_of(self, trial: RecordedTrial) -> float:
        """Return the best value of a trial (larger is better); -inf where none is finite."""
        return max((self.sign * v for v in trial.values if not diverged(v)), default=-np.inf)

    @property
    def winner(self) -> int:
        """Number of the trial with the best value; the first among equals."""
        bests = [self.best_of(trial) for trial in self.trials]
        return bests.index(max(bests))


SHORT_SWITCH = Costs(4.0, 4.0)


@dataclass(frozen=True, slots=True)
class Machine:
    """GPUs that run one trial each, and the seconds of a suspension and a resumption."""

    gpus: int = 4
    costs: Costs = SHORT_SWITCH

    def slice(self, sample: Sample) -> float:
        """Return Q: the longest time between two decisions of a GPU."""
        return max(sample.gap, 10.0 * (self.costs.suspend + self.costs.resume))


def draw_sample(trace: Trace, seed: int, size: int = 64) -> Sample:
    """Return a random sample without replacement, in random order.

    Each task has its own random stream; otherwise all tasks of one source would get the same trial numbers.
    """
    random = np.random.default_rng([seed, zlib.crc32(trace.task.encode())])
    order = random.permutation(len(trace.trials))[: min(size, len(trace.trials))]
    trials = tuple(trace.trials[i] for i in order)
    return Sample(trace.task, trace.family, seed, trace.maximize, trace.target, trials)
