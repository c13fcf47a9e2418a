"""Live migration of a trial: what is stored, what the agent is asked, and the pod in which the trial continues.

Everything is derived from the objects, so each step is what an operator observes that has just started.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from carrying_builders import (
    ALIVE,
    ARRIVES,
    IMAGE,
    MADE,
    OLD,
    PULLS,
    PUSHED,
    READS,
    REFUSED,
    STUCK,
    after,
    let_in,
    levels,
    pod,
    way,
    world,
)
from operator_builders import NOW, make_job, make_node, make_world

from podium_core.domain.actions import CreatePod, Migrate
from podium_core.domain.migration import CONTAINER_CHECKPOINT, MigrationPhase
from podium_core.planning.planner import plan
from podium_core.planning.promised_slots import promises
from podium_operator.act.migration import arrival, asks, carryings
from podium_operator.act.pod_manifest import PodRules, make_pod
from podium_operator.observe.cluster_state import World, trial_key
from podium_operator.observe.observation import observe
from podium_operator.observe.snapshot import build_snapshot

NEW_POD = pod(1, carried=True)
ENDED = {"terminated": {"exitCode": 128, "reason": "StartError", "message": "criu: no"}}
REJECTED = pod(1, carried=True, phase="Failed", gate=None, main=None)
HOMELESS = replace(NEW_POD, facts=replace(NEW_POD.facts, node=None))


def drained(seen: World) -> World:
    """Return the state with a target that drains as well."""
    here, there = seen.nodes
    spec = there.spec.model_copy(update={"draining": True})
    return replace(seen, nodes=(here, there.model_copy(update={"spec": spec})))


STEPS: list[tuple[str, World, str | None, str]] = [
    ("asked, no answer", world(pod(), **way("Requested")), "Requested", ""),
    (
        "the answer is of an earlier pod",
        world(pod(), containerCheckpoint=MADE | {"podUid": "x"}, **way("Requested")),
        "Requested",
        "",
    ),
    ("the image is there", world(pod(), containerCheckpoint=MADE, **way("Requested")), "ImagePushed", ""),
    (
        "the registry is unreachable",
        world(pod(), containerCheckpoint=REFUSED, **way("Requested")),
        "Failed",
        "RegistryUnreachable",
    ),
    ("the agent does not answer", world(pod(), now=NOW + 1200, **way("Requested")), "Failed", "AgentTimeout"),
    ("its node is gone", world(**way("Requested")), "Failed", "PodDeleted"),
    (
        "its node is gone, its image was reported",
        world(containerCheckpoint=MADE, **way("Requested")),
        "ImagePushed",
        "",
    ),
    ("its pod is being deleted", world(pod(deleting=True), **way("Requested")), "Failed", "PodDeleted"),
    ("the drain is undone", world(pod(), draining=False, **way("Requested")), "Failed", "DrainCancelled"),
    ("the trial has ended", world(pod(), **way("Requested"), phase="EarlyStopped"), "Failed", "TrialEnded"),
    ("no new pod yet", world(pod(), **PUSHED), "ImagePushed", ""),
    ("its node is gone, the image is not", world(**PUSHED), "ImagePushed", ""),
    ("the new pod is there", world(pod(), NEW_POD, **PUSHED), "PodCreated", ""),
    ("the new pod is restored", world(NEW_POD, **way("PodCreated")), "PodCreated", ""),
    ("it has printed a value", world(NEW_POD, logCursor=READS, **way("PodCreated")), "Restored", ""),
    (
        "the old pod printed the value",
        world(NEW_POD, logCursor=READS | {"podUid": OLD}, **way("PodCreated")),
        "PodCreated",
        "",
    ),
    (
        "it printed none yet",
        world(NEW_POD, logCursor=READS | {"awaitingFirstValue": True}, **way("PodCreated")),
        "PodCreated",
        "",
    ),
    ("the new node is gone", world(**way("PodCreated")), "Failed", "RestoreFailed"),
    ("the restore failed", world(pod(1, carried=True, phase="Failed"), **way("PodCreated")), "Failed", "RestoreFailed"),
    ("its kubelet rejected it", world(REJECTED, **way("PodCreated")), "ImagePushed", ""),
    ("no restore yet", world(pod(1, carried=True, **STUCK), **way("PodCreated")), "PodCreated", ""),
    (
        "no restore for long",
        world(pod(1, carried=True, **STUCK), now=NOW + 60, **way("PodCreated")),
        "Failed",
        "RestoreFailed",
    ),
    (
        "no restore for a moment, after an hour at its gate",
        world(pod(1, carried=True, **STUCK | let_in(3590)), now=NOW + 3600, **way("PodCreated")),
        "PodCreated",
        "",
    ),
    (
        "no restore for long, after an hour at its gate",
        world(pod(1, carried=True, **STUCK | let_in(3540)), now=NOW + 3600, **way("PodCreated")),
        "Failed",
        "RestoreFailed",
    ),
    ("its target drains", drained(world(pod(), **PUSHED)), "Failed", "TargetUnavailable"),
    ("its target drains, the image is all that is left", drained(world(**PUSHED)), "ImagePushed", "TargetDraining"),
    ("its target is gone", world(pod(), target=False, **PUSHED), "Failed", "TargetUnavailable"),
    ("its target is gone, its new pod is there", world(NEW_POD, target=False, **PUSHED), "PodCreated", ""),
    ("its node is unresponsive", world(NEW_POD, target=False, **way("PodCreated")), "PodCreated", ""),
    ("it waits for a node", world(HOMELESS, **way("PodCreated")), "PodCreated", ""),
    ("it waits for a deleted node", world(HOMELESS, target=False, **way("PodCreated")), "Failed", "RestoreFailed"),
    (
        "the image is still being pulled",
        world(pod(1, carried=True, **PULLS), now=NOW + 60, **way("PodCreated")),
        "PodCreated",
        "",
    ),
    (
        "failed, its node still drains",
        world(pod(), **way("Failed", code="RestoreDisabled")),
        "Failed",
        "RestoreDisabled",
    ),
    ("failed, the node drains again", world(pod(), draining=False, **way("Failed", code="RestoreDisabled")), None, ""),
    (
        "failed and the drain was cancelled, its image has to be removed",
        world(pod(), draining=False, containerCheckpoint=MADE, **way("Failed", code="RegistryUnreachable")),
        "Failed",
        "DrainCancelled",
    ),
    (
        "cancelled and drained again, its agent may not have observed it yet",
        world(pod(), now=NOW + 4, **way("Failed", code="DrainCancelled")),
        "Failed",
        "DrainCancelled",
    ),
    ("cancelled and drained again", world(pod(), now=NOW + 5, **way("Failed", code="DrainCancelled")), None, ""),
    ("the slots were taken", world(pod(), now=NOW + 5, **way("Failed", code="TargetFull")), None, ""),
    (
        "cancelled and drained again, its image is still to be removed",
        world(pod(), now=NOW + 5, containerCheckpoint=MADE, **way("Failed", code="DrainCancelled")),
        "Failed",
        "DrainCancelled",
    ),
    (
        "cancelled and drained again, its agent is still asked",
        world(pod(carry="node-2"), now=NOW + 5, **way("Failed", code="DrainCancelled")),
        "Failed",
        "DrainCancelled",
    ),
    (
        "failed long ago, its node still drains",
        world(pod(), now=NOW + 3600, **way("Failed", code="RestoreDisabled")),
        "Failed",
        "RestoreDisabled",
    ),
    (
        "failed, its image has to be removed",
        world(pod(), draining=False, containerCheckpoint=MADE, **way("Failed", code="DrainCancelled")),
        "Failed",
        "DrainCancelled",
    ),
    (
        "failed, its agent is still asked",
        world(pod(carry="node-2"), draining=False, **way("Failed", code="DrainCancelled")),
        "Failed",
        "DrainCancelled",
    ),
    ("goes to a GPU with fewer trials", world(pod(), draining=False, **levels("Requested")), "Requested", ""),
    (
        "the image for that is there",
        world(pod(), draining=False, containerCheckpoint=MADE, **levels("Requested")),
        "ImagePushed",
        "",
    ),
    ("that failed", world(pod(), draining=False, now=NOW + 599, **levels("Failed")), "Failed", ""),
    ("that failed long ago", world(pod(), draining=False, now=NOW + 600, **levels("Failed")), None, ""),
    ("that failed, its node drains", world(pod(), **levels("Failed")), None, ""),
    (
        "that failed, its node drains, its agent is still asked",
        world(pod(carry="node-2"), **levels("Failed", code="RestoreDisabled")),
        "Failed",
        "RestoreDisabled",
    ),
    (
        "that failed because its slot was taken",
        world(pod(), draining=False, now=NOW + 599, **levels("Failed", code="TargetFull")),
        "Failed",
        "TargetFull",
    ),
    (
        "failed there, and continues in an ordinary pod",
        world(pod(2), draining=False, **way("Failed", code="RestoreFailed")),
        "Failed",
        "RestoreFailed",
    ),
    ("restored", world(NEW_POD, draining=False, **way("Restored")), "Restored", ""),
]


def test_a_rejected_pod_is_followed_by_another_one_from_the_same_image() -> None:
    """The agent of its node was just restarting, for example; its answer may be gone from the status by then."""
    created = way("PodCreated", image=IMAGE, gpuState=ARRIVES)
    rejected = world(REJECTED, attempt=1, **created)
    stored = after(rejected)
    assert stored is not None
    assert (stored.phase, stored.attempt, stored.image) == (MigrationPhase.IMAGE_PUSHED, 2, IMAGE)
    (made,) = (one for one in plan(build_snapshot(rejected, observe(rejected))).actions if isinstance(one, CreatePod))
    assert (came := arrival(rejected, rejected.trials[0], made.attempt)) is not None
    assert (came.attempt, came.image, came.gpu_state) == (2, IMAGE, ARRIVES)
    then = world(pod(2, carried=True), REJECTED, attempt=1, **created)
    (trial,) = build_snapshot(then, observe(then)).trials
    assert (trial.migration, trial.migrated, trial.migration_target) == (MigrationPhase.POD_CREATED, True, "node-2")


def test_an_image_waits_half_an_hour_for_a_draining_target() -> None:
    """It had waited for a slot for an hour already."""
    waits: dict[str, Any] = PUSHED
    told = []
    for seconds, drains in ((3600, True), (5399, True), (5400, False), (5500, True), (7299, True), (7300, True)):
        seen = world(**waits, now=NOW + seconds)
        stored = after(drained(seen) if drains else seen)
        assert stored is not None
        waits = {"migration": stored.model_dump(mode="json", by_alias=True)}
        told.append(stored.code or stored.phase.value)
    assert told == [
        "TargetDraining",
        "TargetDraining",
        "ImagePushed",
        "TargetDraining",
        "TargetDraining",
        "TargetUnavailable",
    ]


def test_an_old_pod_that_never_ends_does_not_block_the_new_one() -> None:
    seen = world(pod(deleting=True), **PUSHED)
    (made,) = (one for one in plan(build_snapshot(seen, observe(seen))).actions if isinstance(one, CreatePod))
    assert (came := arrival(seen, seen.trials[0], made.attempt)) is not None
    assert (came.attempt, came.image) == (1, IMAGE)
    assert (stored := after(seen)) is not None
    assert stored.phase is MigrationPhase.IMAGE_PUSHED, "until the new pod exists"


def test_a_migration_whose_slot_was_taken_fails_and_the_trial_stays() -> None:
    """The scheduler does not know about promised slots. This is the view of an operator that has just started."""
    seen = world(pod(), **PUSHED)
    full = make_node("node-2", uuid="GPU-2", shares=1, trials={"stranger-0": "Running"})
    for there, phase, code in ((seen.nodes[1], "ImagePushed", ""), (full, "Failed", "TargetFull")):
        now = replace(seen, nodes=(seen.nodes[0], there))
        snapshot = build_snapshot(now, observe(now))
        crowded_out = promises(snapshot).broken
        stored = carryings(now, observe(now), {}, {}, (), crowded_out)[trial_key(now.trials[0])]
        assert (stored.phase.value, stored.code) == (phase, code)
        assert bool([action for action in plan(snapshot).actions if isinstance(action, CreatePod)]) is (
            there is not full
        )


@pytest.mark.parametrize(("seen", "phase", "code"), [s[1:] for s in STEPS], ids=[s[0] for s in STEPS])
def test_the_next_stored_migration(seen: World, phase: str | None, code: str) -> None:
    stored = after(seen)
    assert (stored and stored.phase.value, stored.code if stored else "") == (phase, code)


def test_a_migration_starts_with_the_old_pod_and_keeps_the_agents_answer() -> None:
    seen = world(pod())
    key = trial_key(seen.trials[0])
    begun = after(seen, Migrate(key, "node-2", "NodeDraining", "it drains"))
    assert begun is not None
    assert (begun.pod_uid, begun.attempt, begun.source_node, begun.target_node) == (OLD, 1, "node-1", "node-2")
    assert begun.reason == "NodeDraining"
    pushed = after(world(pod(), containerCheckpoint=MADE, **way("Requested")))
    assert pushed is not None
    assert (pushed.image, pushed.gpu_state) == (IMAGE, ARRIVES)
    assert after(seen, refused="quota") is None
    refused = after(world(pod(), **PUSHED), refused="exceeded quota")
    assert refused is not None
    assert (refused.code, refused.message) == ("PodRefused", "exceeded quota")


ASKS: list[tuple[str, World, list[tuple[str, str]]]] = [
    ("no migration", world(pod()), []),
    ("asked", world(pod(), **way("Requested")), [("sweep-0-0", "node-2")]),
    ("asked already", world(pod(carry="node-2"), **way("Requested")), []),
    ("its new pod is there", world(pod(carry="node-2"), NEW_POD, **way("PodCreated")), []),
    ("fell back", world(pod(carry="node-2"), **way("Failed")), [("sweep-0-0", "")]),
    ("failed and is being deleted", world(pod(carry="node-2", deleting=True), **way("Failed")), [("sweep-0-0", "")]),
    ("is over", world(pod(carry="node-2", phase="Failed"), **way("Failed")), []),
]


@pytest.mark.parametrize(("seen", "expected"), [a[1:] for a in ASKS], ids=[a[0] for a in ASKS])
def test_annotations_that_ask_agents(seen: World, expected: list[tuple[str, str]]) -> None:
    assert [(one.name, target) for one, target in asks(seen)] == expected


VIEWS: list[tuple[str, World, tuple[MigrationPhase | None, bool, bool]]] = [
    ("asked", world(pod(), **way("Requested")), (MigrationPhase.REQUESTED, False, True)),
    ("pushed", world(pod(), **PUSHED), (MigrationPhase.IMAGE_PUSHED, False, True)),
    ("created", world(pod(), NEW_POD, **PUSHED), (MigrationPhase.IMAGE_PUSHED, True, False)),
    ("failed there", world(NEW_POD, **way("Failed")), (MigrationPhase.FAILED, True, False)),
    ("failed here", world(pod(), **way("Failed")), (MigrationPhase.FAILED, False, False)),
    ("an ordinary pod", world(pod(1), **way("Failed")), (None, False, False)),
    ("arrived", world(NEW_POD, **way("Restored")), (None, False, False)),
]


@pytest.mark.parametrize(("seen", "expected"), [v[1:] for v in VIEWS], ids=[v[0] for v in VIEWS])
def test_the_planners_view_of_a_migration(seen: World, expected: tuple[MigrationPhase | None, bool, bool]) -> None:
    snapshot = build_snapshot(seen, observe(seen))
    (trial,) = snapshot.trials
    assert (trial.migration, trial.migrated, trial.suspend) == expected
    assert snapshot.jobs[0].migratable
    assert [gpu.supports_migration for gpu in snapshot.gpus] == [True, False]


def test_container_checkpoint_alone_keeps_no_trial_in_place() -> None:
    only = make_node()
    status = only.status.model_copy(update={"methods": ["freeze", CONTAINER_CHECKPOINT]})
    seen = make_world(make_job(**ALIVE), only.model_copy(update={"status": status}))
    assert not build_snapshot(seen, {}).jobs[0].suspendable


def test_the_new_pod_of_a_migrated_trial() -> None:
    seen = world(pod(), **PUSHED)
    stored = seen.trials[0].status.migration
    made = make_pod(seen.jobs[0], seen.trials[0], 1, PodRules("podium", "podium.dev/gpu"), arrival=stored)
    main, gate = made["spec"]["containers"][0], made["spec"]["initContainers"][-1]
    assert (main["image"], gate["image"]) == (IMAGE, "localhost/busybox:1")
    required = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["node-2"]
    notes = made["metadata"]["annotations"]
    assert (notes["podium.dev/gpu-state"], notes["podium.dev/migrated"]) == (ARRIVES, "node-1")


ARRIVALS: list[tuple[str, World, int, str | None]] = [
    ("its image is there", world(pod(), **PUSHED), 1, IMAGE),
    ("that was just reported, and its old pod is gone", world(containerCheckpoint=MADE, **way("Requested")), 1, IMAGE),
    ("another attempt", world(containerCheckpoint=MADE, **way("Requested")), 2, None),
    ("refused, and its old pod is gone", world(containerCheckpoint=REFUSED, **way("Requested")), 1, None),
    ("reported of an earlier pod", world(containerCheckpoint=MADE | {"podUid": "x"}, **way("Requested")), 1, None),
    ("fell back", world(containerCheckpoint=MADE, **way("Failed", image=IMAGE)), 1, None),
    ("it was used", world(**way("PodCreated", image=IMAGE)), 1, None),
    ("its pod was rejected", world(REJECTED, **way("PodCreated", image=IMAGE, gpuState=ARRIVES)), 2, IMAGE),
    ("its pod was rejected at once", world(REJECTED, **PUSHED), 2, IMAGE),
    ("its pod ran", world(pod(1, carried=True, phase="Failed", main=ENDED), **way("PodCreated", image=IMAGE)), 2, None),
    ("its pod is there", world(NEW_POD, **way("PodCreated", image=IMAGE)), 2, None),
]


@pytest.mark.parametrize(("seen", "attempt", "image"), [a[1:] for a in ARRIVALS], ids=[a[0] for a in ARRIVALS])
def test_the_image_that_the_next_attempt_continues_from(seen: World, attempt: int, image: str | None) -> None:
    came = arrival(seen, seen.trials[0], attempt)
    assert (came and came.image) == image
    assert came is None or came.gpu_state == ARRIVES
