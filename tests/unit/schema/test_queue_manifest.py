"""GPUQueues from files: their usage, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from podium_core.schema.gpuqueue import GPUQueue, queue_view
from podium_core.schema.queue_manifest import parse_queue
from podium_core.schema.rules import Refusal


def manifest(**changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "podium.dev/v1alpha1",
        "kind": "GPUQueue",
        "metadata": {"name": "team"},
        "spec": {"weight": 2, "gpus": 4, "budget": {"gpuHours": 2}},
        **changes,
    }


def test_a_queue_of_a_cluster_brings_its_usage() -> None:
    queue = parse_queue(manifest(status={"window": {"used": 5.0, "deserved": 4.0}, "gpuSeconds": 7200.0}))
    assert isinstance(queue, GPUQueue)
    view = queue_view(queue)
    assert (view.name, view.weight, view.gpus, view.budget) == ("team", 2.0, 4, 7200.0)
    assert (view.usage.used, view.usage.deserved, view.usage.total, view.most) == (5.0, 4.0, 7200.0, 0)


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"apiVersion": "podium.dev/v2"}, "apiVersion", "write apiVersion: podium.dev/v1alpha1"),
    ({"metadata": {}}, "metadata.name", ""),
    ({"spec": {"weight": -1}}, "spec.weight", "must be greater than 0"),
    ({"spec": {"weight": 0.0001}}, "spec.weight", "must be at least 0.001"),
    ({"spec": {"gpus": 1.5}}, "spec.gpus", "must be an integer"),
    ({"spec": {"namespaces": ["A B"]}}, "spec.namespaces[0]", "write the name of a namespace"),
    ({"spec": {"borrowingLimit": 3}}, "spec.gpus", "without a quota nothing is borrowed"),
    ({"status": {"window": {"used": "many"}}}, "status.window.used", ""),
]


@pytest.mark.parametrize(
    ("changes", "field", "message"), WRONG, ids=[f"{row[1]}-{number}" for number, row in enumerate(WRONG)]
)
def test_the_first_error_names_field_and_cure(changes: dict[str, Any], field: str, message: str) -> None:
    found = parse_queue(manifest(**changes))
    assert isinstance(found, Refusal)
    assert found.field == field
    assert message in found.message
