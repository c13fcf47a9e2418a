"""Nobody goes without a turn for longer than the policy promises, where it promises anything (docs/algorithms.md)."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
from policy_searches import COST, GAP, LATE, TRIALS, alone
from policy_variants import Settings

from podium_core.domain.snapshot import TrialKey
from podium_core.policies.min_time_slice import MAX_SWITCH_SHARE
from podium_simulator.system.outcome import Outcome


def longest_gap(outcome: Outcome) -> float:
    """Virtual seconds that some trial had to show its next value in, its first one included."""
    shown: dict[TrialKey, list[float]] = defaultdict(list)
    for value in outcome.values:
        shown[value.trial].append(value.time)
    return max(later - earlier for times in shown.values() for earlier, later in pairwise([0.0, *times]))


def turn(least: float) -> float:
    """As a trial's own hand-overs make it, once they are measured."""
    return max(least, COST / MAX_SWITCH_SHARE)


def of_round_robin(quantum: float) -> float:
    """Two turns of each other trial, a turn lasting until the gain is worth a hand-over; and its own next value."""
    return 2 * (TRIALS - 1) * (turn(quantum) + 0.1 * quantum + COST + LATE) + GAP


def of_envelope(share: float) -> float:
    """Its docstring's, with one GPU; what a trial trains until its value is known counts as if it was needed."""
    overdue = (TRIALS - 1) * (max(GAP + LATE, turn(2.0)) + COST) / share
    return overdue * (1.0 + share) + turn(2.0) + LATE


BOUNDS: list[tuple[str, Settings, Settings | None, float]] = [
    # policy, settings, those with which it promises nothing (None: fifo), seconds
    ("round_robin", {"quantum": 4.0}, None, of_round_robin(4.0)),
    ("round_robin", {"quantum": 30.0}, None, of_round_robin(30.0)),
    ("envelope", {"minShare": 0.1}, {"minShare": 0.0}, of_envelope(0.1)),
    ("envelope", {"minShare": 0.5}, {"minShare": 0.0}, of_envelope(0.5)),
]


@pytest.mark.parametrize(("name", "settings", "without", "bound"), BOUNDS, ids=str)
def test_nobody_starves_beyond_the_bound(name: str, settings: Settings, without: Settings | None, bound: float) -> None:
    assert longest_gap(alone(name, settings, points=60)) <= bound
    free = alone("fifo", {}, points=60) if without is None else alone(name, without, points=60)
    assert longest_gap(free) > bound, "the search is one in which somebody would starve"
