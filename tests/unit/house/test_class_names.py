"""A public class name means one thing in a package, and the words of the field mean one thing in all packages."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = sorted(path.parent for path in ROOT.glob("*/podium*/__init__.py"))
# the models of a user's template check other fields than those of a pod, under the names that Kubernetes gives both
SAME_THING = frozenset({"Container", "EnvVar", "PodSpec"})
# one meaning each, in all packages that run in a cluster
WORDS = ("Policy", "Node", "Forecast", "Outcome", "Demand", "Verdict", "Selection", "Ranking", "Search", "WarmStart")
IN_A_CLUSTER = (
    *("core", "searchers", "suspension", "cluster", "operator", "extender"),
    *("agent", "local", "api", "cli", "sdk"),
)


@cache
def classes(package: Path) -> dict[str, list[str]]:
    """Return the modules of the package that define each public class."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        if "_pb2" in path.name:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(ROOT)))
    return dict(found)


@pytest.mark.parametrize("package", PACKAGES, ids=[path.name for path in PACKAGES])
def test_a_class_name_means_one_thing_in_its_package(package: Path) -> None:
    several = {name: where for name, where in classes(package).items() if len(where) > 1}
    assert {name: where for name, where in several.items() if name not in SAME_THING} == {}


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_the_field_names_one_class_of_what_runs_in_a_cluster(word: str) -> None:
    found = [
        where for package in PACKAGES if package.parent.name in IN_A_CLUSTER for where in classes(package).get(word, [])
    ]
    assert len(found) <= 1, found
