"""Every reason, condition, event and error code in the code is in the table of the reference page, and vice versa."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = (
    "sdk",
    "core",
    "simulator",
    "cluster",
    "searchers",
    "suspension",
    "local",
    "operator",
    "extender",
    "agent",
    "cli",
    "api",
    "optimisers",
    "realtime",
)
NAME = re.compile(r"[A-Z][a-z0-9]*(?:[A-Z][A-Za-z0-9]*)?")
CONSTRUCTORS = {
    *("Refusal", "NodeRefusal", "Rule", "Verdict", "TrialRank", "DerivedPhase", "MigrationStep"),
    *("CreateTrial", "CreatePod", "DeletePod", "Requeue", "Migrate", "EndTrial", "EndJob"),
    *("RequestReservation", "ReleaseReservation", "PodQuota", "Reason"),
}
# The agent composes the codes of a failed driver call from its step (`podium_suspension.processes`).
DRIVER_STEPS = {
    f"{step}{end}" for step in ("Lock", "Checkpoint", "Restore", "Unlock") for end in ("Refused", "Timeout")
}


def table() -> set[str]:
    """Return the names of the table."""
    lines = (ROOT / "tools" / "reasons.tsv").read_text().splitlines()
    return {line.split("\t")[0] for line in lines if line}


def sources() -> Iterator[tuple[Path, ast.Module]]:
    """Yield every module of the packages with its syntax tree."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "_pb2" not in path.name:
                yield path, ast.parse(path.read_text())


def text(node: ast.expr | None) -> str:
    """Return the value of a string constant; empty for any other expression."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def reasons(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of each reason: class attributes `code`, keywords, and arguments of known constructors."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.Assign) and [getattr(target, "id", "") for target in one.targets] == ["code"]:
                    yield one.lineno, text(one.value)
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in ("reason", "code"):
                    yield node.lineno, text(keyword.value)
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if called in CONSTRUCTORS:
                for argument in node.args[:3]:
                    yield node.lineno, text(argument)


def test_every_reason_in_the_code_is_in_the_table() -> None:
    known = table()
    missing = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path, tree in sources()
        for line, name in reasons(tree)
        if NAME.fullmatch(name) and name not in known
    ]
    assert missing == []


def test_every_reason_in_the_table_is_in_the_code() -> None:
    used: set[str] = set()
    for _, tree in sources():
        for node in ast.walk(tree):
            used.update(re.findall(NAME, text(node) if isinstance(node, ast.expr) else ""))
    for path in (*(ROOT / "agent").rglob("*.[ch]"), *(ROOT / "charts").rglob("*.yaml")):
        used.update(re.findall(NAME, path.read_text()))
    assert sorted(table() - used - DRIVER_STEPS) == []
