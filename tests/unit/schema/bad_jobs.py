"""Reads bad_jobs.yaml: for the unit tests beside it and for tests/integration/test_crds.py, by path."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium_core.schema.manifests import read_manifests

_TABLE = read_manifests([Path(__file__).with_suffix(".yaml")])[0]


@dataclass(frozen=True, slots=True)
class BadJob:
    name: str
    manifest: dict[str, Any]
    field: str
    apply: str | None  # None: the API server takes it
    check: str
    code: str


def good() -> dict[str, Any]:
    return copy.deepcopy(_TABLE["good"])


def changed(change: dict[str, Any]) -> dict[str, Any]:
    """The good job with each path set to its value; null removes."""
    manifest = good()
    for path, value in change.items():
        *way, last = path.split(".")
        here: Any = manifest
        for part in way:
            here = here[int(part)] if isinstance(here, list) else here[part]
        if value is None:
            del here[last]
        else:
            here[last] = value
    return manifest


def bad() -> list[BadJob]:
    return [
        BadJob(
            one["name"],
            changed(one["change"]),
            one["field"],
            one.get("apply"),
            one.get("check") or one["apply"],
            one["code"],
        )
        for one in _TABLE["bad"]
    ]
