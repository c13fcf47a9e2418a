"""The include graph of the C sources: layers without a cycle, as in the driver's README."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

AGENT = Path(__file__).resolve().parents[3] / "agent"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@pytest.mark.parametrize("folder", ["driver", "helper"])
def test_modules_include_headers_only_and_without_a_cycle(folder: str) -> None:
    """A module is a C file and the header with the same name."""
    graph: dict[str, set[str]] = {}
    for source in (AGENT / folder).glob("*.[ch]"):
        included = INCLUDE.findall(source.read_text())
        assert [name for name in included if not name.endswith(".h")] == [], source.name
        graph.setdefault(source.stem, set()).update({Path(name).stem for name in included} - {source.stem})
    assert len(graph) > 2
    TopologicalSorter(graph).prepare()  # raises CycleError
