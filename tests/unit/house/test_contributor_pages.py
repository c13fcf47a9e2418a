"""The pages for contributors, followed to the letter: their toy policy and toy searcher keep the contracts."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from podium_core.schema.job import JobSpec
from podium_core.testing.policy_contract import CASES, CHECKS, Check
from podium_searchers.random import RandomSearcher

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
SPACE = [
    {"name": "lr", "min": 1e-4, "max": 1e-1, "scale": "log"},
    {"name": "dropout", "min": 0.0, "max": 0.5, "step": 0.1},
    {"name": "width", "type": "int", "min": 16, "max": 96, "step": 16},
    {"name": "activation", "values": ["relu", "tanh", "gelu"]},
    {"name": "nesterov", "type": "boolean"},
]


def module_of(page: str, name: str) -> ModuleType:
    """Return the module whose text is the page's first block of Python."""
    block = re.findall(r"^```python\n(.*?)^```", (HOW_TO / page).read_text(), re.MULTILINE | re.DOTALL)[0]
    module = ModuleType(name)
    sys.modules[name] = module  # dataclasses look their module up
    exec(compile(block, page, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("warmup", [0, 1])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_toy_policy_keeps_the_contract(check: Check, warmup: int) -> None:
    policy = module_of("add-a-policy.md", "toy_policy").NewestFirst(warmup=warmup)
    for case in CASES.values():
        check(policy, case)


def make_spec() -> JobSpec:
    container = {"name": "main", "image": "i"}
    return JobSpec.model_validate(
        {
            "objective": {"metric": "acc", "direction": "maximize"},
            "parameters": SPACE,
            "trials": {"max": 100, "maxSteps": 10},
            "template": {"spec": {"containers": [container]}},
        }
    )


def test_the_toy_searcher_tries_every_corner_once() -> None:
    spec, searcher = make_spec(), module_of("add-a-searcher.md", "toy_searcher").CornerSearcher()
    size = searcher.size(spec)
    assert size == 2 * 2 * 2 * 3 * 2
    proposals: list[dict[str, Any]] = [searcher.propose(spec, number) for number in range(size)]
    assert len({tuple(proposal.values()) for proposal in proposals}) == size
    assert searcher.propose(spec, size) is None
    for proposal in proposals:
        assert list(proposal) == list(RandomSearcher().propose(spec, 0) or {})
        assert proposal["lr"] in (1e-4, 1e-1)
        assert proposal["dropout"] == pytest.approx(0.0) or proposal["dropout"] == pytest.approx(0.5)
        assert proposal["width"] in (16, 96)
        assert isinstance(proposal["width"], int)


def test_the_places_that_the_pages_name_exist() -> None:
    root = HOW_TO.parents[1]
    policies = (HOW_TO / "add-a-policy.md").read_text()
    assert "_TABLE" in (root / "core/podium_core/policies/registry.py").read_text()
    assert "POLICIES_WITHOUT_MAX_STEPS" in (root / "core/podium_core/schema/job_rules.py").read_text()
    assert "VARIANTS" in (root / "tests/policy_variants.py").read_text()
    assert all(name in policies for name in ("_TABLE", "POLICIES_WITHOUT_MAX_STEPS", "VARIANTS"))
    settings = (root / "core/podium_core/schema/search_settings.py").read_text()
    assert "KNOWN" in settings
    assert "LEARNING" in settings
    assert "SEARCHERS" in (root / "searchers/podium_searchers/registry.py").read_text()
    assert "CASES" in (root / "tests/contract/test_searchers.py").read_text()
