"""Every policy of the registry keeps the contract, with its defaults and with unusual settings."""

from __future__ import annotations

import pytest

from podium.policies.registry import NAMES, create
from podium.testing.policy_contract import CASES, CHECKS, Check

VARIANTS = [
    *((name, {}) for name in NAMES),
    ("hermes", {"start": "own"}),
    ("hermes", {"early": 0, "hysteresis": 0.0, "minRun": 0}),
    ("round_robin", {"quantum": 0.5}),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_contract(name: str, settings: dict[str, int | float | str], case: str, check: Check) -> None:
    check(create(name, settings), CASES[case])
