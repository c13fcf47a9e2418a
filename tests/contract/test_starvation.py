"""Starvation bounds: no trial waits longer than its policy guarantees (docs/explanation/switching.md)."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
from policy_searches import COST, DELAY, GAP, TRIALS, single_gpu_search
from policy_variants import Settings

from podium_core.domain.keys import TrialKey
from podium_core.policies.min_time_slice import MAX_SWITCH_SHARE
from podium_simulator.system.results.outcome import Outcome


def longest_gap(outcome: Outcome) -> float:
    """Return the longest virtual time between two values of a trial, the start of the search included."""
    times_of: dict[TrialKey, list[float]] = defaultdict(list)
    for value in outcome.values:
        times_of[value.trial].append(value.time)
    return max(later - earlier for times in times_of.values() for earlier, later in pairwise([0.0, *times]))


def time_slice(shortest: float) -> float:
    """Return the time slice of a trial once the cost of its switches is measured."""
    return max(shortest, COST / MAX_SWITCH_SHARE)


def round_robin_bound(quantum: float) -> float:
    """Return two time slices of each other trial, each until a switch is worth its cost, and the own next value."""
    return 2 * (TRIALS - 1) * (time_slice(quantum) + 0.1 * quantum + COST + DELAY) + GAP


def envelope_bound(share: float) -> float:
    """Return the bound in the policy's docstring for one GPU.

    Training until a value is known counts as if it was needed.
    """
    overdue = (TRIALS - 1) * (max(GAP + DELAY, time_slice(2.0)) + COST) / share
    return overdue * (1.0 + share) + time_slice(2.0) + DELAY


BOUNDS: list[tuple[str, Settings, Settings | None, float]] = [
    # policy, settings, settings without a guarantee (None: fifo), bound in seconds
    ("round_robin", {"quantum": 4.0}, None, round_robin_bound(4.0)),
    ("round_robin", {"quantum": 30.0}, None, round_robin_bound(30.0)),
    ("envelope", {"minShare": 0.1}, {"minShare": 0.0}, envelope_bound(0.1)),
    ("envelope", {"minShare": 0.5}, {"minShare": 0.0}, envelope_bound(0.5)),
]


@pytest.mark.parametrize(("name", "settings", "without", "bound"), BOUNDS, ids=str)
def test_no_trial_waits_longer_than_the_bound(
    name: str, settings: Settings, without: Settings | None, bound: float
) -> None:
    assert longest_gap(single_gpu_search(name, settings, points=60)) <= bound
    unguarded: tuple[str, Settings] = ("fifo", {}) if without is None else (name, without)
    longest = longest_gap(single_gpu_search(*unguarded, points=60))
    assert longest > bound, "without the guarantee a trial would starve in this search"
