"""Contract of every registered placement policy, for all combinations of pods and nodes."""

from __future__ import annotations

import pytest

from podium_core.placement.policies.registry import POLICIES, UnknownPlacementError, placement_policy
from podium_core.testing.placement_contract import CHECKS, CLUSTERS, QUESTIONS, Check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("name", POLICIES)
def test_placement_policy_contract(name: str, cluster: str, check: Check) -> None:
    for question in QUESTIONS.values():
        check(placement_policy(name), question, CLUSTERS[cluster])


def test_the_error_for_an_unknown_policy_lists_the_known_ones() -> None:
    with pytest.raises(UnknownPlacementError, match="auto, load_balance, fragmentation, fill, binpack, spread, random"):
        placement_policy("tetris")
