"""Live migration of a trial: what is stored, what the agent is asked, and the pod in which the trial continues.

Everything is derived from the objects, so each step is what an operator observes that has just started.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from migration_builders import (
    GPU_STATE,
    IMAGE,
    IMAGE_ANSWER,
    NEW_POD,
    OLD,
    PULLING,
    PUSHED,
    READ_CURSOR,
    REFUSED,
    REJECTED,
    STUCK,
    cluster,
    gate_passed_at,
    migration_status,
    next_migration,
    pod,
    rebalancing_status,
)
from operator_builders import NOW, make_node

from podium_core.domain.actions import CreatePod, Migrate
from podium_core.domain.migration import MigrationPhase
from podium_core.planning.planner import plan
from podium_core.planning.slots.promised_slots import promises
from podium_operator.act.migration import MigrationNews, migration_of_attempt, migrations_to_store
from podium_operator.observe.cluster_state import ClusterState, trial_key
from podium_operator.observe.observation import observe
from podium_operator.observe.snapshot import build_snapshot

UNSCHEDULED = replace(NEW_POD, facts=replace(NEW_POD.facts, node=None))


def drained(seen: ClusterState) -> ClusterState:
    """Return the state with a target that drains as well."""
    here, there = seen.nodes
    spec = there.spec.model_copy(update={"draining": True})
    return replace(seen, nodes=(here, there.model_copy(update={"spec": spec})))


STEPS: list[tuple[str, ClusterState, str | None, str]] = [
    ("asked, no answer", cluster(pod(), **migration_status("Requested")), "Requested", ""),
    (
        "the answer is of an earlier pod",
        cluster(pod(), containerCheckpoint=IMAGE_ANSWER | {"podUid": "x"}, **migration_status("Requested")),
        "Requested",
        "",
    ),
    (
        "the image is there",
        cluster(pod(), containerCheckpoint=IMAGE_ANSWER, **migration_status("Requested")),
        "ImagePushed",
        "",
    ),
    (
        "the registry is unreachable",
        cluster(pod(), containerCheckpoint=REFUSED, **migration_status("Requested")),
        "Failed",
        "RegistryUnreachable",
    ),
    (
        "the agent does not answer",
        cluster(pod(), now=NOW + 1200, **migration_status("Requested")),
        "Failed",
        "AgentTimeout",
    ),
    ("its node is gone", cluster(**migration_status("Requested")), "Failed", "PodDeleted"),
    (
        "its node is gone, its image was reported",
        cluster(containerCheckpoint=IMAGE_ANSWER, **migration_status("Requested")),
        "ImagePushed",
        "",
    ),
    ("its pod is being deleted", cluster(pod(deleting=True), **migration_status("Requested")), "Failed", "PodDeleted"),
    (
        "the drain is undone",
        cluster(pod(), draining=False, **migration_status("Requested")),
        "Failed",
        "DrainCancelled",
    ),
    (
        "the trial has ended",
        cluster(pod(), **migration_status("Requested"), phase="EarlyStopped"),
        "Failed",
        "TrialEnded",
    ),
    ("no new pod yet", cluster(pod(), **PUSHED), "ImagePushed", ""),
    ("its node is gone, the image is not", cluster(**PUSHED), "ImagePushed", ""),
    ("the new pod is there", cluster(pod(), NEW_POD, **PUSHED), "PodCreated", ""),
    ("the new pod is restored", cluster(NEW_POD, **migration_status("PodCreated")), "PodCreated", ""),
    (
        "it has printed a value",
        cluster(NEW_POD, logCursor=READ_CURSOR, **migration_status("PodCreated")),
        "Restored",
        "",
    ),
    (
        "the old pod printed the value",
        cluster(NEW_POD, logCursor=READ_CURSOR | {"podUid": OLD}, **migration_status("PodCreated")),
        "PodCreated",
        "",
    ),
    (
        "it printed none yet",
        cluster(NEW_POD, logCursor=READ_CURSOR | {"awaitingFirstValue": True}, **migration_status("PodCreated")),
        "PodCreated",
        "",
    ),
    ("the new node is gone", cluster(**migration_status("PodCreated")), "Failed", "RestoreFailed"),
    (
        "the restore failed",
        cluster(pod(1, migrated=True, phase="Failed"), **migration_status("PodCreated")),
        "Failed",
        "RestoreFailed",
    ),
    ("its kubelet rejected it", cluster(REJECTED, **migration_status("PodCreated")), "ImagePushed", ""),
    ("no restore yet", cluster(pod(1, migrated=True, **STUCK), **migration_status("PodCreated")), "PodCreated", ""),
    (
        "no restore for long",
        cluster(pod(1, migrated=True, **STUCK), now=NOW + 60, **migration_status("PodCreated")),
        "Failed",
        "RestoreFailed",
    ),
    (
        "no restore for a moment, after an hour at its gate",
        cluster(
            pod(1, migrated=True, **STUCK | gate_passed_at(3590)), now=NOW + 3600, **migration_status("PodCreated")
        ),
        "PodCreated",
        "",
    ),
    (
        "no restore for long, after an hour at its gate",
        cluster(
            pod(1, migrated=True, **STUCK | gate_passed_at(3540)), now=NOW + 3600, **migration_status("PodCreated")
        ),
        "Failed",
        "RestoreFailed",
    ),
    ("its target drains", drained(cluster(pod(), **PUSHED)), "Failed", "TargetUnavailable"),
    ("its target drains, the image is all that is left", drained(cluster(**PUSHED)), "ImagePushed", "TargetDraining"),
    ("its target is gone", cluster(pod(), target=False, **PUSHED), "Failed", "TargetUnavailable"),
    ("its target is gone, its new pod is there", cluster(NEW_POD, target=False, **PUSHED), "PodCreated", ""),
    ("its node is unresponsive", cluster(NEW_POD, target=False, **migration_status("PodCreated")), "PodCreated", ""),
    ("it waits for a node", cluster(UNSCHEDULED, **migration_status("PodCreated")), "PodCreated", ""),
    (
        "it waits for a deleted node",
        cluster(UNSCHEDULED, target=False, **migration_status("PodCreated")),
        "Failed",
        "RestoreFailed",
    ),
    (
        "the image is still being pulled",
        cluster(pod(1, migrated=True, **PULLING), now=NOW + 60, **migration_status("PodCreated")),
        "PodCreated",
        "",
    ),
    (
        "failed, its node still drains",
        cluster(pod(), **migration_status("Failed", code="RestoreDisabled")),
        "Failed",
        "RestoreDisabled",
    ),
    (
        "failed, the node drains again",
        cluster(pod(), draining=False, **migration_status("Failed", code="RestoreDisabled")),
        None,
        "",
    ),
    (
        "failed and the drain was cancelled, its image has to be removed",
        cluster(
            pod(),
            draining=False,
            containerCheckpoint=IMAGE_ANSWER,
            **migration_status("Failed", code="RegistryUnreachable"),
        ),
        "Failed",
        "DrainCancelled",
    ),
    (
        "cancelled and drained again, its agent may not have observed it yet",
        cluster(pod(), now=NOW + 4, **migration_status("Failed", code="DrainCancelled")),
        "Failed",
        "DrainCancelled",
    ),
    (
        "cancelled and drained again",
        cluster(pod(), now=NOW + 5, **migration_status("Failed", code="DrainCancelled")),
        None,
        "",
    ),
    ("the slots were taken", cluster(pod(), now=NOW + 5, **migration_status("Failed", code="TargetFull")), None, ""),
    (
        "cancelled and drained again, its image is still to be removed",
        cluster(
            pod(), now=NOW + 5, containerCheckpoint=IMAGE_ANSWER, **migration_status("Failed", code="DrainCancelled")
        ),
        "Failed",
        "DrainCancelled",
    ),
    (
        "cancelled and drained again, its agent is still asked",
        cluster(pod(migrate_to="node-2"), now=NOW + 5, **migration_status("Failed", code="DrainCancelled")),
        "Failed",
        "DrainCancelled",
    ),
    (
        "failed long ago, its node still drains",
        cluster(pod(), now=NOW + 3600, **migration_status("Failed", code="RestoreDisabled")),
        "Failed",
        "RestoreDisabled",
    ),
    (
        "failed, its image has to be removed",
        cluster(
            pod(), draining=False, containerCheckpoint=IMAGE_ANSWER, **migration_status("Failed", code="DrainCancelled")
        ),
        "Failed",
        "DrainCancelled",
    ),
    (
        "failed, its agent is still asked",
        cluster(pod(migrate_to="node-2"), draining=False, **migration_status("Failed", code="DrainCancelled")),
        "Failed",
        "DrainCancelled",
    ),
    (
        "goes to a GPU with fewer trials",
        cluster(pod(), draining=False, **rebalancing_status("Requested")),
        "Requested",
        "",
    ),
    (
        "the image for that is there",
        cluster(pod(), draining=False, containerCheckpoint=IMAGE_ANSWER, **rebalancing_status("Requested")),
        "ImagePushed",
        "",
    ),
    ("that failed", cluster(pod(), draining=False, now=NOW + 599, **rebalancing_status("Failed")), "Failed", ""),
    ("that failed long ago", cluster(pod(), draining=False, now=NOW + 600, **rebalancing_status("Failed")), None, ""),
    ("that failed, its node drains", cluster(pod(), **rebalancing_status("Failed")), None, ""),
    (
        "that failed, its node drains, its agent is still asked",
        cluster(pod(migrate_to="node-2"), **rebalancing_status("Failed", code="RestoreDisabled")),
        "Failed",
        "RestoreDisabled",
    ),
    (
        "that failed because its slot was taken",
        cluster(pod(), draining=False, now=NOW + 599, **rebalancing_status("Failed", code="TargetFull")),
        "Failed",
        "TargetFull",
    ),
    (
        "failed there, and continues in an ordinary pod",
        cluster(pod(2), draining=False, **migration_status("Failed", code="RestoreFailed")),
        "Failed",
        "RestoreFailed",
    ),
    ("restored", cluster(NEW_POD, draining=False, **migration_status("Restored")), "Restored", ""),
]


def test_a_rejected_pod_is_followed_by_another_one_from_the_same_image() -> None:
    """The agent of its node was just restarting, for example; its answer may be gone from the status by then."""
    created = migration_status("PodCreated", image=IMAGE, gpuState=GPU_STATE)
    rejected = cluster(REJECTED, attempt=1, **created)
    stored = next_migration(rejected)
    assert stored is not None
    assert (stored.phase, stored.attempt, stored.image) == (MigrationPhase.IMAGE_PUSHED, 2, IMAGE)
    (made,) = (one for one in plan(build_snapshot(rejected, observe(rejected))).actions if isinstance(one, CreatePod))
    assert (came := migration_of_attempt(rejected, rejected.trials[0], made.attempt)) is not None
    assert (came.attempt, came.image, came.gpu_state) == (2, IMAGE, GPU_STATE)
    then = cluster(pod(2, migrated=True), REJECTED, attempt=1, **created)
    (trial,) = build_snapshot(then, observe(then)).trials
    assert (trial.relocation.migration, trial.relocation.migrated, trial.relocation.target) == (
        MigrationPhase.POD_CREATED,
        True,
        "node-2",
    )


def test_an_image_waits_half_an_hour_for_a_draining_target() -> None:
    """It had waited for a slot for an hour already."""
    waits: dict[str, Any] = PUSHED
    progress = []
    for seconds, drains in ((3600, True), (5399, True), (5400, False), (5500, True), (7299, True), (7300, True)):
        seen = cluster(**waits, now=NOW + seconds)
        stored = next_migration(drained(seen) if drains else seen)
        assert stored is not None
        waits = {"migration": stored.model_dump(mode="json", by_alias=True)}
        progress.append(stored.code or stored.phase.value)
    assert progress == [
        "TargetDraining",
        "TargetDraining",
        "ImagePushed",
        "TargetDraining",
        "TargetDraining",
        "TargetUnavailable",
    ]


def test_an_old_pod_that_never_ends_does_not_block_the_new_one() -> None:
    seen = cluster(pod(deleting=True), **PUSHED)
    (made,) = (one for one in plan(build_snapshot(seen, observe(seen))).actions if isinstance(one, CreatePod))
    assert (came := migration_of_attempt(seen, seen.trials[0], made.attempt)) is not None
    assert (came.attempt, came.image) == (1, IMAGE)
    assert (stored := next_migration(seen)) is not None
    assert stored.phase is MigrationPhase.IMAGE_PUSHED, "until the new pod exists"


def test_a_migration_whose_slot_was_taken_fails_and_the_trial_stays() -> None:
    """The scheduler does not know about promised slots. This is the view of an operator that has just started."""
    seen = cluster(pod(), **PUSHED)
    full = make_node("node-2", uuid="GPU-2", slots=1, trials={"other-0": "Running"})
    for there, phase, code in ((seen.nodes[1], "ImagePushed", ""), (full, "Failed", "TargetFull")):
        now = replace(seen, nodes=(seen.nodes[0], there))
        snapshot = build_snapshot(now, observe(now))
        news = MigrationNews(slots_taken=promises(snapshot).broken)
        stored = migrations_to_store(now, observe(now), news)[trial_key(now.trials[0])]
        assert (stored.phase.value, stored.code) == (phase, code)
        assert bool([action for action in plan(snapshot).actions if isinstance(action, CreatePod)]) is (
            there is not full
        )


@pytest.mark.parametrize(("seen", "phase", "code"), [s[1:] for s in STEPS], ids=[s[0] for s in STEPS])
def test_the_next_stored_migration(seen: ClusterState, phase: str | None, code: str) -> None:
    stored = next_migration(seen)
    assert (stored and stored.phase.value, stored.code if stored else "") == (phase, code)


def test_a_migration_starts_with_the_old_pod_and_keeps_the_agents_answer() -> None:
    seen = cluster(pod())
    key = trial_key(seen.trials[0])
    begun = next_migration(seen, Migrate(key, "node-2", "NodeDraining", "it drains"))
    assert begun is not None
    assert (begun.pod_uid, begun.attempt, begun.source_node, begun.target_node) == (OLD, 1, "node-1", "node-2")
    assert begun.reason == "NodeDraining"
    pushed = next_migration(cluster(pod(), containerCheckpoint=IMAGE_ANSWER, **migration_status("Requested")))
    assert pushed is not None
    assert (pushed.image, pushed.gpu_state) == (IMAGE, GPU_STATE)
    assert next_migration(seen, refused="quota") is None
    refused = next_migration(cluster(pod(), **PUSHED), refused="exceeded quota")
    assert refused is not None
    assert (refused.code, refused.message) == ("PodRefused", "exceeded quota")
