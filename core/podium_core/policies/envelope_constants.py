"""Constants of the envelope policy. They are not settings."""

from __future__ import annotations

from dataclasses import dataclass

TINY = 1e-12  # keeps quotients of gains finite


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants that were chosen on recorded curves (docs/explanation/envelope.md)."""

    unit: float = 1.0  # a deficit of this many units makes a trial e times less likely to be the best
    spread: float = 0.28  # how much less a deficit counts where trials gain more than they differ
    slope: float = 0.8  # doublings for which the difference of a trial's and the leader's gain is extrapolated
    less_trained: float = 0.3  # weight of a lag behind a less trained trial at that trial's step
    evaluations: float = 1.5  # a warm-up lasts at least this many evaluations
    prior: float = 0.1  # probability, after the warm-up, that the values so far carry no information
    trust: float = 2.0  # number of completed trials that weigh as much as the assumption that order persists


CHOSEN = Constants()
