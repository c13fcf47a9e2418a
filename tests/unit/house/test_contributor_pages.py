"""The pages for contributors, followed to the letter: their toy policy and toy searcher keep the contracts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from podium_core.schema.job import JobSpec
from podium_core.schema.search.conditions import point_problem
from podium_core.testing.policy_contract import CASES, CHECKS, Check

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
SPACE = [
    {"name": "lr", "min": 1e-4, "max": 1e-1, "scale": "log"},
    {"name": "dropout", "min": 0.0, "max": 0.5, "step": 0.1},
    {"name": "width", "type": "int", "min": 16, "max": 96, "step": 16},
    {"name": "activation", "values": ["relu", "tanh", "gelu"]},
    {"name": "warm", "type": "int", "min": 0, "max": 5, "when": {"parameter": "nesterov", "in": [True]}},
    {"name": "nesterov", "type": "boolean"},
]


def first_block(page: str) -> str:
    return str(re.findall(r"^```python\n(.*?)^```", (HOW_TO / page).read_text(), re.MULTILINE | re.DOTALL)[0])


def module_of(page: str, name: str) -> ModuleType:
    """Return the module whose text is the page's first block of Python."""
    block = first_block(page)
    module = ModuleType(name)
    sys.modules[name] = module  # dataclasses look their module up
    exec(compile(block, page, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize(
    ("page", "path"),
    [
        ("add-a-policy.md", "core/podium_core/policies/toy.py"),
        ("add-a-searcher.md", "searchers/podium_searchers/toy.py"),
    ],
)
def test_the_printed_code_passes_the_linter(page: str, path: str) -> None:
    for command in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--no-cache", "--stdin-filename", path, "-"]
        done = subprocess.run(
            ruff, cwd=HOW_TO.parents[1], input=first_block(page), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


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


def test_the_toy_searcher_fills_the_space_evenly() -> None:
    spec, searcher = make_spec(), module_of("add-a-searcher.md", "toy_searcher").GoldenSearcher()
    assert searcher.size(spec) is None
    proposals: list[dict[str, Any]] = [searcher.propose(spec, number) for number in range(64)]
    assert proposals == [searcher.propose(spec, number) for number in reversed(range(64))][::-1]
    for proposal in proposals:
        assert point_problem(spec, proposal) is None
        assert list(proposal) == [one.name for one in spec.parameters if one.name in proposal]
    counts = Counter(str(proposal["activation"]) for proposal in proposals)
    assert min(counts.values()) >= 18  # of 64 / 3
    assert len({proposal["lr"] for proposal in proposals}) == 64
    assert {proposal["width"] for proposal in proposals} == {16, 32, 48, 64, 80, 96}
    assert {"warm" in proposal for proposal in proposals} == {True, False}


def test_the_places_that_the_pages_name_exist() -> None:
    root = HOW_TO.parents[1]
    policies = (HOW_TO / "add-a-policy.md").read_text()
    assert "_TABLE" in (root / "core/podium_core/policies/registry.py").read_text()
    assert "POLICIES_WITHOUT_MAX_STEPS" in (root / "core/podium_core/schema/job_rules.py").read_text()
    assert "VARIANTS" in (root / "tests/policy_variants.py").read_text()
    assert "POLICIES_THAT_STOP" in (root / "core/podium_core/schema/job_rules.py").read_text()
    names = ("_TABLE", "POLICIES_WITHOUT_MAX_STEPS", "POLICIES_THAT_STOP", "VARIANTS")
    assert all(name in policies for name in names)
    settings = (root / "core/podium_core/schema/search/settings.py").read_text()
    assert "KNOWN" in settings
    assert "LEARNING" in settings
    assert "SEARCHERS" in (root / "searchers/podium_searchers/registry.py").read_text()
    contract = (root / "tests/contract/test_searchers.py").read_text()
    assert all(name in contract for name in ("CASES", "ENDING", "SETTINGS", "SPACES"))
