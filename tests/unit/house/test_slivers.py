"""A module of few lines that only one other module imports belongs into that module, or into a neighbour."""

from __future__ import annotations

import ast
import io
import tokenize
import tomllib
from collections.abc import Mapping
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [Path(path) for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
FEW_LINES = 40  # of code: without docstrings, comments and empty lines

# what one of these imports is a plug-in, and has a module of its own; so has the table itself
REGISTRIES = frozenset(
    {
        "podium_cli.exports.formats",
        "podium_core.placement.policies.registry",
        "podium_core.policies.registry",
        "podium_optimisers.learning.train",
        "podium_optimisers.makespan.registry",
        "podium_searchers.registry",
    }
)
EXCEPTIONS = {
    "podium_agent.observe.sources.stdout": "a source of metrics, beside file, push, prometheus and tensorboard",
    "podium_cli.doctor.diagnosis": "the pure end of the checks, apart from the command, which reads and prints",
    "podium_cli.sample_watch": "needs no cluster; commands/watch.py would have 280 lines with it",
    "podium_core.policies.envelope_texts": "texts, apart from the formulas; envelope.py would have 280 lines with them",
    "podium_dashboard.background.waiting": "what a task computes, beside importance and replay; the child imports one",
    "podium_dashboard.pages.importance": "a drawing of the page of a search, beside parallel",
    "podium_dashboard.settings": "the settings of a component, where agent, extender and operator have theirs",
    "podium_devcluster.runtime.dns": "names for pods of any cluster, with or without Katib",
    "podium_optimisers.preemptive.las": "an ordering from a paper, beside gittins",
    "podium_optimisers.sharing.makespan": "an objective of shares, beside max_min, drf and proportional",
}


def code_lines(source: str) -> int:
    """Return the number of lines with code."""
    lines: set[int] = set()
    blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in blank:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def slivers(imports: grimp.ImportGraph, sources: Mapping[str, str]) -> dict[str, str]:
    """Return the small modules that belong into another one, each with a sentence that names both."""
    result = {}
    for module, source in sources.items():
        importers = sorted(imports.find_modules_that_directly_import(module) & sources.keys())
        if module in REGISTRIES or len(importers) != 1 or not REGISTRIES.isdisjoint(importers):
            continue
        if (lines := code_lines(source)) < FEW_LINES:
            result[module] = (
                f"{module} has {lines} lines of code and only {importers[0]} imports it: merge it into {importers[0]} "
                "or a neighbour, or add it to EXCEPTIONS with the reason"
            )
    return result


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """The slivers of the product; a package's `__init__` neither is one nor counts as an importer."""
    sources = {
        ".".join(path.relative_to(ROOT / package.parent).with_suffix("").parts): path.read_text()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py" and "_pb2" not in path.name
    }
    imports = grimp.build_graph(*(package.name for package in PACKAGES), cache_dir=None)
    assert sources.keys() <= imports.modules
    assert sources.keys() >= REGISTRIES
    return slivers(imports, sources)


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_no_small_module_has_one_importer(package: Path, found: dict[str, str]) -> None:
    mine = {module: text for module, text in found.items() if module.partition(".")[0] == package.name}
    assert not [text for module, text in mine.items() if module not in EXCEPTIONS]


def test_every_exception_is_needed(found: dict[str, str]) -> None:
    assert EXCEPTIONS.keys() <= found.keys(), "remove the others from EXCEPTIONS"


@pytest.mark.parametrize(
    ("importers", "lines", "named"),
    [
        pytest.param(["a.user"], 39, True, id="one importer"),
        pytest.param(["a.user"], 40, False, id="enough lines"),
        pytest.param(["a.user", "a.second"], 39, False, id="two importers"),
        pytest.param(["a"], 39, False, id="a package alone"),
        pytest.param(["a.user", "a"], 39, True, id="a package beside its importer"),
        pytest.param(["a.user", "podium_searchers.registry"], 39, False, id="a plug-in"),
        pytest.param([], 1, False, id="a program"),
    ],
)
def test_what_a_sliver_is(importers: list[str], lines: int, named: bool) -> None:
    imports = grimp.ImportGraph()
    others = dict.fromkeys(("a.user", "a.second", "podium_searchers.registry"), "z = 1\n" * FEW_LINES)
    for module in ("a.small", *others):
        imports.add_module(module)
    for importer in importers:
        imports.add_import(importer=importer, imported="a.small")
    source = '"""Text\nof two lines."""\n\n# a comment\n' + "x = (\n    1\n)\n" * (lines // 3) + "y = 1\n" * (lines % 3)
    made = slivers(imports, {"a.small": source, **others})
    assert list(made) == ["a.small"] * named
    assert not named or f"a.small has {lines} lines of code and only a.user imports it" in made["a.small"]
