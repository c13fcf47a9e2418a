"""Envelope policies as benchmarks need them.

They end at the best trial, have widths fitted on other tasks, or do not use similar configurations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar
from unittest.mock import patch

import numpy as np

from benchmarks.hpo.runs import Entrant
from podium_core.curves.curve_table import CurveTable
from podium_core.curves.prediction import multiples
from podium_core.curves.statistics import Floats
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies import envelope
from podium_core.policies.base import Policy, Ranked
from podium_core.policies.envelope import Envelope, Mask
from podium_core.policies.fifo import Fifo
from podium_simulator.replay.state import DEFAULT_RULES

RELATIVE_VALUE = "relative_value"  # function of the envelope's module: what similar configurations are worth


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A policy that behaves as `inner`, an envelope, in everything except `rank`."""

    inner: Policy
    name: ClassVar[str] = "envelope"
    needs_max_steps: ClassVar[bool] = True
    cuts: ClassVar[bool] = False

    @property
    def hysteresis(self) -> float:
        return self.inner.hysteresis

    def time_slice(self, costs: Costs) -> float:
        return self.inner.time_slice(costs)


@dataclass(frozen=True, slots=True)
class UntilBest(Wrapped):
    """The envelope until the best trial of the sample has completed, then fifo.

    After that moment no measured figure can change, and fifo is quicker to replay. `best`: index of the best trial.
    """

    best: int

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Sequence[Ranked]:
        completed = snapshot.trials[self.best].phase is TrialPhase.SUCCEEDED
        return (Fifo() if completed else self.inner).rank(job, trials, snapshot)


def until_best_entrant(policy: Policy) -> Entrant:
    """Return `policy`, an envelope, as an entrant whose replays end at the best trial."""
    return Entrant(lambda sample: UntilBest(policy, sample.winner), DEFAULT_RULES)


@contextmanager
def reading(interval_widths: tuple[Floats, Floats]) -> Iterator[None]:
    """Make the envelope's `undecided` read these widths (`multiples.interval_widths`) within the block."""
    shipped = multiples._WIDTH_BY_DOUBLINGS
    multiples._WIDTH_BY_DOUBLINGS = interval_widths
    multiples._first_width.cache_clear()
    try:
        yield
    finally:
        multiples._WIDTH_BY_DOUBLINGS = shipped
        multiples._first_width.cache_clear()


@dataclass(frozen=True, slots=True)
class Refitted(Wrapped):
    """The envelope with widths that were fitted on other tasks.

    The widths are the only fitted figures that the product reads.

    It sets the widths during each `rank`, so the result does not depend on what its process replayed before.
    """

    inner: Envelope
    interval_widths: tuple[Floats, Floats]

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Sequence[Ranked]:
        with reading(self.interval_widths):
            return self.inner.rank(job, trials, snapshot)


@dataclass(frozen=True, slots=True)
class WithoutSimilarConfigurations(Wrapped):
    """The envelope in which all unstarted trials are worth the same, whatever their parameters."""

    inner: Envelope

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Sequence[Ranked]:
        with patch.object(envelope, RELATIVE_VALUE, _alike):
            return self.inner.rank(job, trials, snapshot)


def _alike(_curves: CurveTable, new: Mask, *_others: object) -> Floats:
    return np.ones(int(np.count_nonzero(new)))
