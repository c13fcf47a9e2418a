"""The repository layout that packaging and imports rely on (docs/explanation/architecture.md)."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [Path(path) for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
MODULES = sorted(
    path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py") if "_pb2" not in path.name
)
FOLDERS = sorted({package.parts[0] for package in PACKAGES})


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_package_folder_holds_its_packages_and_is_not_one_itself(folder: str) -> None:
    names = [path.parent.name for path in (ROOT / folder).glob("*/__init__.py")]
    assert not (ROOT / folder / "__init__.py").exists(), f"{folder}/__init__.py would shadow other modules"
    assert [f"{folder}/{name}" for name in names] == [str(path) for path in PACKAGES if path.parts[0] == folder]


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_package_names_do_not_shadow_the_standard_library(package: Path) -> None:
    assert package.name not in sys.stdlib_module_names
    assert (ROOT / package / "__init__.py").read_text().startswith('"""'), "the package needs a docstring"


def test_test_folders_are_not_packages() -> None:
    # in importlib mode tests/unit/operator/__init__.py would replace the standard module
    assert not list((ROOT / "tests").rglob("__init__.py"))


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_every_module_has_a_docstring_and_is_short(module: Path) -> None:
    text = (ROOT / module).read_text()
    assert text.startswith(('"""', 'r"""')), f"{module} has no module docstring"
    assert len(text.splitlines()) <= 400, f"{module} has more than 400 lines; split it"


def test_the_wheel_has_the_templates_and_assets_of_the_pages() -> None:
    packed = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    needed = {
        path.relative_to(ROOT / folder).as_posix()
        for folder in ("cli", "views", "dashboard")
        for kind in ("templates", "assets")
        for path in (ROOT / folder).rglob(f"{kind}/*")
    }
    assert len(needed) >= 20
    assert needed <= packed


def test_lock_files_have_hashes_and_no_index() -> None:
    for lock in ROOT.glob("**/requirements*.lock"):
        if ".venv" in lock.parts:
            continue
        text = lock.read_text()
        assert "://" not in text, f"{lock.name} contains an address"
        assert text.count("==") <= text.count("--hash=sha256:")
