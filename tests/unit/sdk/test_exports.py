"""The names of `podium`: what the module loads, what its stub declares, and what the Python API offers."""

from __future__ import annotations

import re
from pathlib import Path

import podium
import podium_api

STUB = Path(__file__).parents[3] / "sdk" / "podium" / "__init__.pyi"
INNER = {"Dimension", "Point"}  # types that users need not import


def test_the_stub_declares_every_name_that_the_package_has() -> None:
    declared = set(re.findall(r"import \w+ as (\w+)$", STUB.read_text(), re.MULTILINE))
    assert declared == set(dir(podium)) - {"trial"}


def test_every_name_of_the_python_api_can_be_imported_from_podium() -> None:
    for name in set(podium_api.__all__) - INNER:
        assert getattr(podium, name) is getattr(podium_api, name)
        assert name in dir(podium)
