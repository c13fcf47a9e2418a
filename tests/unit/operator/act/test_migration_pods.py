"""What a stored migration means for pods: what agents are asked, the planner's view, and the pod that continues.

Everything is derived from the objects, so each case is what an operator observes that has just started.
"""

from __future__ import annotations

import pytest
from migration_builders import (
    GPU_STATE,
    IMAGE,
    IMAGE_ANSWER,
    MIGRATABLE,
    NEW_POD,
    PUSHED,
    REFUSED,
    REJECTED,
    cluster,
    migration_status,
    pod,
)
from operator_builders import make_cluster_state, make_job, make_node

from podium_core.domain.migration import CONTAINER_CHECKPOINT, MigrationPhase
from podium_operator.act.migration import annotation_changes, migration_of_attempt
from podium_operator.act.pod_manifest import (
    PodOrigin,
    PodRules,
    make_pod,
)
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.observation import observe
from podium_operator.observe.snapshot import build_snapshot

ENDED = {"terminated": {"exitCode": 128, "reason": "StartError", "message": "criu: no"}}
ANNOTATIONS: list[tuple[str, ClusterState, list[tuple[str, str]]]] = [
    ("no migration", cluster(pod()), []),
    ("asked", cluster(pod(), **migration_status("Requested")), [("sweep-0-0", "node-2")]),
    ("asked already", cluster(pod(migrate_to="node-2"), **migration_status("Requested")), []),
    ("its new pod is there", cluster(pod(migrate_to="node-2"), NEW_POD, **migration_status("PodCreated")), []),
    ("fell back", cluster(pod(migrate_to="node-2"), **migration_status("Failed")), [("sweep-0-0", "")]),
    (
        "failed and is being deleted",
        cluster(pod(migrate_to="node-2", deleting=True), **migration_status("Failed")),
        [("sweep-0-0", "")],
    ),
    ("is over", cluster(pod(migrate_to="node-2", phase="Failed"), **migration_status("Failed")), []),
]


@pytest.mark.parametrize(("seen", "expected"), [a[1:] for a in ANNOTATIONS], ids=[a[0] for a in ANNOTATIONS])
def test_annotations_that_ask_agents(seen: ClusterState, expected: list[tuple[str, str]]) -> None:
    assert [(one.name, target) for one, target in annotation_changes(seen)] == expected


VIEWS: list[tuple[str, ClusterState, tuple[MigrationPhase | None, bool, bool]]] = [
    ("asked", cluster(pod(), **migration_status("Requested")), (MigrationPhase.REQUESTED, False, True)),
    ("pushed", cluster(pod(), **PUSHED), (MigrationPhase.IMAGE_PUSHED, False, True)),
    ("created", cluster(pod(), NEW_POD, **PUSHED), (MigrationPhase.IMAGE_PUSHED, True, False)),
    ("failed there", cluster(NEW_POD, **migration_status("Failed")), (MigrationPhase.FAILED, True, False)),
    ("failed here", cluster(pod(), **migration_status("Failed")), (MigrationPhase.FAILED, False, False)),
    ("an ordinary pod", cluster(pod(1), **migration_status("Failed")), (None, False, False)),
    ("arrived", cluster(NEW_POD, **migration_status("Restored")), (None, False, False)),
]


@pytest.mark.parametrize(("seen", "expected"), [v[1:] for v in VIEWS], ids=[v[0] for v in VIEWS])
def test_the_planners_view_of_a_migration(
    seen: ClusterState, expected: tuple[MigrationPhase | None, bool, bool]
) -> None:
    snapshot = build_snapshot(seen, observe(seen))
    (trial,) = snapshot.trials
    assert (trial.relocation.migration, trial.relocation.migrated, trial.intent.suspend) == expected
    assert snapshot.jobs[0].abilities.migratable
    assert [gpu.supports_migration for gpu in snapshot.gpus] == [True, False]


def test_container_checkpoint_alone_keeps_no_trial_in_place() -> None:
    only = make_node()
    status = only.status.model_copy(update={"methods": ["freeze", CONTAINER_CHECKPOINT]})
    seen = make_cluster_state(make_job(**MIGRATABLE), only.model_copy(update={"status": status}))
    assert not build_snapshot(seen, {}).jobs[0].abilities.suspendable


def test_the_new_pod_of_a_migrated_trial() -> None:
    seen = cluster(pod(), **PUSHED)
    stored = seen.trials[0].status.migration
    made = make_pod(seen.jobs[0], seen.trials[0], 1, PodRules("podium", "podium.dev/gpu"), PodOrigin(migration=stored))
    main, gate = made["spec"]["containers"][0], made["spec"]["initContainers"][-1]
    assert (main["image"], gate["image"]) == (IMAGE, "localhost/busybox:1")
    required = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["node-2"]
    notes = made["metadata"]["annotations"]
    assert (notes["podium.dev/gpu-state"], notes["podium.dev/migrated"]) == (GPU_STATE, "node-1")


IMAGES: list[tuple[str, ClusterState, int, str | None]] = [
    ("its image is there", cluster(pod(), **PUSHED), 1, IMAGE),
    (
        "that was just reported, and its old pod is gone",
        cluster(containerCheckpoint=IMAGE_ANSWER, **migration_status("Requested")),
        1,
        IMAGE,
    ),
    ("another attempt", cluster(containerCheckpoint=IMAGE_ANSWER, **migration_status("Requested")), 2, None),
    (
        "refused, and its old pod is gone",
        cluster(containerCheckpoint=REFUSED, **migration_status("Requested")),
        1,
        None,
    ),
    (
        "reported of an earlier pod",
        cluster(containerCheckpoint=IMAGE_ANSWER | {"podUid": "x"}, **migration_status("Requested")),
        1,
        None,
    ),
    ("fell back", cluster(containerCheckpoint=IMAGE_ANSWER, **migration_status("Failed", image=IMAGE)), 1, None),
    ("it was used", cluster(**migration_status("PodCreated", image=IMAGE)), 1, None),
    (
        "its pod was rejected",
        cluster(REJECTED, **migration_status("PodCreated", image=IMAGE, gpuState=GPU_STATE)),
        2,
        IMAGE,
    ),
    ("its pod was rejected at once", cluster(REJECTED, **PUSHED), 2, IMAGE),
    (
        "its pod ran",
        cluster(pod(1, migrated=True, phase="Failed", main=ENDED), **migration_status("PodCreated", image=IMAGE)),
        2,
        None,
    ),
    ("its pod is there", cluster(NEW_POD, **migration_status("PodCreated", image=IMAGE)), 2, None),
]


@pytest.mark.parametrize(("seen", "attempt", "image"), [a[1:] for a in IMAGES], ids=[a[0] for a in IMAGES])
def test_the_image_that_the_next_attempt_continues_from(seen: ClusterState, attempt: int, image: str | None) -> None:
    came = migration_of_attempt(seen, seen.trials[0], attempt)
    assert (came and came.image) == image
    assert came is None or came.gpu_state == GPU_STATE
