"""Contract of every registered policy, with default and with unusual settings."""

from __future__ import annotations

import pytest
from policy_variants import VARIANTS, Settings

from podium_core.policies.registry import _TABLE, NAMES, create
from podium_core.testing.policy_contract import CASES, CHECKS, Check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_policy_contract(name: str, settings: Settings, check: Check) -> None:
    policy = create(name, settings)
    for case in CASES.values():
        check(policy, case)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_and_each_of_its_words_is_covered(name: str) -> None:
    given = [settings for variant, settings in VARIANTS if variant == name]
    for setting, known in _TABLE[name].settings.items():
        words = known.kind if isinstance(known.kind, tuple) else ()  # numeric settings have none
        tried = {settings[setting] for settings in given if setting in settings}
        assert tried >= set(words)
        assert tried
