"""What the operator reads of a trial: an image that it may not run is never seen by a decision."""

from __future__ import annotations

from typing import Any

import pytest

from podium_core.domain.migration import MigrationPhase
from podium_operator.observe.trial_state import parse_trial

REGISTRY = "registry:5000"
DIGEST = f"sha256:{'1' * 64}"
IMAGE = f"{REGISTRY}/podium-checkpoints/lab/sweep-0-0@{DIGEST}"
FORGED = [
    "docker.example/miner:latest",
    f"{REGISTRY}/podium-checkpoints/other/sweep-0-0@{DIGEST}",
    f"{REGISTRY}/podium-checkpoints/lab/sweep-1-0@{DIGEST}",
]


def payload(image: str, stored: str = "", phase: str = "Requested") -> dict[str, Any]:
    migration = {
        "phase": phase,
        "since": "2026-01-01T00:00:00Z",
        "podUid": "p",
        "attempt": 1,
        "sourceNode": "a",
        "targetNode": "b",
        "reason": "NodeDraining",
        "image": stored,
    }
    answer = {"podUid": "p", "image": image, "gpuState": "{}"}
    return {
        "metadata": {"name": "sweep-0", "namespace": "lab", "uid": "u"},
        "spec": {"job": "sweep", "number": 0, "parameters": {}},
        "status": {"containerCheckpoint": answer, "migration": migration},
    }


def test_the_trials_own_image_is_accepted() -> None:
    status = parse_trial(payload(IMAGE, IMAGE, "ImagePushed"), REGISTRY).status
    assert status.container_checkpoint is not None
    assert status.container_checkpoint.image == IMAGE
    assert status.migration is not None
    assert status.migration.image == IMAGE


@pytest.mark.parametrize("image", FORGED)
def test_an_agents_answer_with_another_image_is_a_refusal(image: str) -> None:
    answer = parse_trial(payload(image), REGISTRY).status.container_checkpoint
    assert answer is not None
    assert (answer.image, answer.gpu_state) == ("", "")
    assert answer.code == "ImageNotAccepted"
    assert answer.message


@pytest.mark.parametrize("image", [*FORGED, IMAGE])
def test_without_a_registry_no_image_is_run(image: str) -> None:
    answer = parse_trial(payload(image), "").status.container_checkpoint
    assert answer is not None
    assert answer.code == "ImageNotAccepted"


@pytest.mark.parametrize("image", FORGED)
def test_a_stored_migration_with_another_image_has_failed(image: str) -> None:
    migration = parse_trial(payload(IMAGE, image, "ImagePushed"), REGISTRY).status.migration
    assert migration is not None
    assert (migration.phase, migration.image, migration.code) == (MigrationPhase.FAILED, "", "ImageNotAccepted")


def test_a_migration_that_is_over_is_unchanged() -> None:
    migration = parse_trial(payload(IMAGE, IMAGE, "Restored"), "").status.migration
    assert migration is not None
    assert migration.phase is MigrationPhase.RESTORED
