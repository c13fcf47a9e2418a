"""Reads bad_jobs.yaml for the unit tests in this folder and for tests/integration/test_crds.py."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium_core.schema.manifests import read_manifests

_TABLE = read_manifests([Path(__file__).with_suffix(".yaml")])[0]


@dataclass(frozen=True, slots=True)
class BadJob:
    """An invalid job and the words of its rejection; bad_jobs.yaml describes the fields."""

    name: str
    manifest: dict[str, Any]
    field: str
    apply: str | None  # None: the API server accepts it
    check: str
    code: str


def good() -> dict[str, Any]:
    """Return a valid job."""
    return copy.deepcopy(_TABLE["good"])


def changed(change: dict[str, Any]) -> dict[str, Any]:
    """Return the valid job with each path set to its value; null removes the field."""
    manifest = good()
    for path, value in change.items():
        *parents, last = path.split(".")
        node: Any = manifest
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node[part]
        if value is None:
            del node[last]
        else:
            node[last] = value
    return manifest


def bad() -> list[BadJob]:
    """Return all invalid jobs of the table."""
    return [
        BadJob(
            row["name"],
            changed(row["change"]),
            row["field"],
            row.get("apply"),
            row.get("check") or row["apply"],
            row["code"],
        )
        for row in _TABLE["bad"]
    ]
