"""Snapshots of the synthetic search at several times, with single fields changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from podium_cli.objects import snapshot_of
from podium_cli.samples import BEGIN, search_at
from podium_views.job_snapshot import JobSnapshot

sys.path.insert(0, str(Path(__file__).parent))  # for `api_server`
Snapshot = Callable[..., JobSnapshot]


def _merge(target: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = value


@pytest.fixture
def snapshot() -> Snapshot:
    """`snapshot(elapsed, {"digits-3": {"status": {...}}})`: changes are merged into the objects by name."""

    def build(elapsed: float, changes: Mapping[str, Mapping[str, Any]] | None = None) -> JobSnapshot:
        objects = search_at(elapsed)
        for one in objects:
            _merge(one, (changes or {}).get(one["metadata"]["name"], {}))
        return snapshot_of(objects, None, None, BEGIN + timedelta(seconds=elapsed))

    return build
