"""The layout that packaging and imports rely on (docs/explanation/architecture.md, "Rooms and arrows")."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [Path(path) for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
MODULES = sorted(
    path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py") if "_pb2" not in path.name
)
ROOMS = sorted({package.parts[0] for package in PACKAGES})


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_holds_one_package_and_is_none_itself(room: str) -> None:
    found = [p.parent.name for p in (ROOT / room).glob("*/__init__.py")]
    assert not (ROOT / room / "__init__.py").exists(), f"{room}/__init__.py would shadow other modules"
    assert [f"{room}/{name}" for name in found] == [str(p) for p in PACKAGES if p.parts[0] == room]


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_package_names_shadow_nothing(package: Path) -> None:
    assert package.name not in sys.stdlib_module_names
    assert (ROOT / package / "__init__.py").read_text().startswith('"""'), "the package says what it is for"


def test_tests_have_no_packages() -> None:
    # importlib mode: tests/unit/operator/__init__.py would replace the standard module
    assert not list((ROOT / "tests").rglob("__init__.py"))


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_every_module_says_what_it_is_for_and_is_short(module: Path) -> None:
    text = (ROOT / module).read_text()
    assert text.startswith(('"""', 'r"""')), f"{module} has no docstring at its head"
    assert len(text.splitlines()) <= 400, f"{module} is long: is it one idea?"


def test_locks_name_no_index_and_are_hashed() -> None:
    for lock in ROOT.glob("**/requirements*.lock"):
        if ".venv" in lock.parts:
            continue
        text = lock.read_text()
        assert "://" not in text, f"{lock.name} names an address"
        assert text.count("==") <= text.count("--hash=sha256:")
