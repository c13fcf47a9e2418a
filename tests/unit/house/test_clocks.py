"""No component reads a wall clock, which may be set at any moment: `podium_cluster.clock` is the one exception."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("agent", "suspension", "operator", "extender", "core", "cluster", "cli", "local", "sdk")
WALL_CLOCKS = {("time", "time"), ("time", "time_ns")} | {("datetime", name) for name in ("now", "utcnow", "today")}
# file: why a wall clock is right there
ALLOWED = {
    "cluster/podium_cluster/clock.py": "it is the clock until the first response of the API server",
    "agent/podium_agent/report/metrics_reader.py": "the difference to the clock by which the runtime writes log lines",
    "agent/podium_agent/observe/sources/base.py": "lines of all sources have times by the same clock as log lines",
    "operator/podium_operator/jobs/connection.py": "kopf compares it with the wall clock",
    "local/podium_local/clock.py": "there is no API server; taken once in a run, and compared with events",
    "cli/podium_cli/objects.py": "files without any time in them",
}


def wall_clocks(path: Path) -> list[str]:
    """Return the reads of a wall clock in a module, as `line: expression`."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            found += [f"{node.lineno}: import {one.name}" for one in node.names if ("time", one.name) in WALL_CLOCKS]
        elif isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if (owner, node.attr) in WALL_CLOCKS:
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_module_reads_a_wall_clock(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    names = {str(file.relative_to(ROOT)): wall_clocks(file) for file in files}
    assert {name: found for name, found in names.items() if found and name not in ALLOWED} == {}
    assert [name for name in ALLOWED if name.startswith(f"{folder}/") and not names.get(name)] == [], "no longer needed"


def test_reads_of_a_wall_clock_are_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    lines = ["import time, datetime", "from time import time_ns", "a = time.time", "b = datetime.datetime.now(UTC)"]
    module.write_text("\n".join(lines))
    assert len(wall_clocks(module)) == 3
