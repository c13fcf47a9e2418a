"""Which running trials are migrated to another node, and each transition of the migration's table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from plans import RUN, SLOW, P, of, sound, why

from podium_core.domain.actions import CreatePod, Migrate, Plan, Requeue
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.migration import (
    IN_PROGRESS,
    REQUEST_TIMEOUT_SECONDS,
    START_TIMEOUT_SECONDS,
    TABLE,
    TARGET_DRAINING,
    TARGET_DRAINING_SECONDS,
    MigrationFacts,
    MigrationPhase,
    NewPodFacts,
    TargetFacts,
    next_step,
)
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Snapshot
from podium_core.testing.builders import change_trial, make_gpu, make_job, make_snapshot, make_trial

ASKED, PUSHED, CREATED = MigrationPhase.REQUESTED, MigrationPhase.IMAGE_PUSHED, MigrationPhase.POD_CREATED
ARRIVED, BACK = MigrationPhase.RESTORED, MigrationPhase.FAILED
CARRIES = make_job(max_trials=2, migratable=True)


def asked(made: Plan) -> list[tuple[str, str]]:
    return [(a.trial.name, a.target) for a in of(made, Migrate) if isinstance(a, Migrate)]


def drained(
    phase: TrialPhase = RUN, *, job: Any = CARRIES, gpu: Any = None, other: Any = None, **trial: Any
) -> Snapshot:
    """One trial on node-a, which drains; node-b has a GPU that is free."""
    there = make_trial(0, gpus=["gpu-0"], node="node-a", phase=phase, values=SLOW, **trial)
    mine = make_gpu(trials=[there.key], **{"draining": True, "supports_migration": True, **(gpu or {})})
    return make_snapshot(jobs=[job], trials=[there], gpus=[mine, free(**(other or {}))])


def free(uuid: str = "gpu-1", **gpu: Any) -> GpuView:
    return make_gpu(uuid, **{"node": "node-b", "supports_migration": True, **gpu})


CASES: list[tuple[str, Snapshot, bool]] = [
    ("running", drained(), True),
    ("suspended", drained(P.SUSPENDED), True),
    ("at its gate", drained(P.GATED), False),
    ("its job does not ask for it", drained(job=make_job(max_trials=2)), False),
    ("it checkpoints", drained(job=make_job(max_trials=2, checkpointable=True, migratable=True)), False),
    (
        "its checkpoints stay here",
        drained(job=make_job(max_trials=2, checkpointable=True, checkpoint_scope="node", migratable=True)),
        True,
    ),
    ("the node does not drain", drained(gpu={"draining": False}), False),
    ("its agent cannot", drained(gpu={"supports_migration": False}), False),
    ("the other's agent cannot", drained(other={"supports_migration": False}), False),
    ("the other drains too", drained(other={"draining": True}), False),
    ("the other is not heard", drained(other={"health": "Unknown"}), False),
    ("the other is full", drained(other={"slots": 0}), False),
    ("the other is of another product", drained(other={"product": "H200"}), False),
    ("the other is this node's", drained(other={"node": "node-a"}), False),
    ("too few GPUs there", drained(job=make_job(max_trials=2, migratable=True, gpus_per_trial=2)), False),
    ("its pod goes", drained(terminating=True), False),
    ("it failed", drained(migration=BACK), False),
    ("it is asked", drained(P.SUSPENDED, migration=ASKED, suspend=True), False),
]


@pytest.mark.parametrize(("snapshot", "carried"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_which_trials_are_migrated(snapshot: Snapshot, carried: bool) -> None:
    assert asked(sound(snapshot)) == ([("job-0", "node-b")] if carried else [])


def test_one_trial_at_a_time_migrates_to_the_node_with_most_free_slots() -> None:
    snapshot = drained()
    second = replace(make_trial(1, gpus=["gpu-0"], node="node-a", phase=P.SUSPENDED, values=SLOW))
    roomy = free("gpu-2", node="node-c", slots=9)
    both = replace(snapshot, trials=(*snapshot.trials, second), gpus=(*snapshot.gpus, roomy))
    assert [target for _, target in asked(sound(both))] == ["node-c"]
    first = change_trial(snapshot.trials[0], phase=P.SUSPENDED, migration=ASKED, suspend=True)
    assert asked(sound(replace(both, trials=(first, second)))) == []
    assert asked(sound(replace(both, trials=(change_trial(first, migration=CREATED, suspend=False), second)))) != []


def test_the_new_pod_is_created_from_the_image_and_requeued_if_it_fails() -> None:
    pushed = sound(drained(P.SUSPENDED, migration=PUSHED, suspend=True))
    assert [(a.attempt, a.reason) for a in of(pushed, CreatePod) if isinstance(a, CreatePod)] == [(1, "Migrated")]
    assert why(pushed, "job-0") == "MigrationInProgress"
    goes = sound(drained(P.SUSPENDED, migration=PUSHED, suspend=True, terminating=True, termination_overdue=True))
    assert of(goes, CreatePod) == of(pushed, CreatePod), (
        "the plan does not wait for a kubelet that does not end the old pod"
    )
    assert of(sound(drained(migration=PUSHED, migrated=True, attempt=1)), CreatePod) == [], "it is there already"
    broken = sound(drained(migration=BACK, migrated=True, attempt=1))
    assert [a.reason for a in of(broken, Requeue) if isinstance(a, Requeue)] == ["MigrationFailed"]


NO = ("RegistryUnreachable", "no trial listens there")
EDGES: list[tuple[MigrationPhase, MigrationFacts, MigrationPhase | None, str]] = [
    (ASKED, MigrationFacts(), None, ""),
    (ASKED, MigrationFacts(image_pushed=True), PUSHED, ""),
    (ASKED, MigrationFacts(refusal=NO), BACK, "RegistryUnreachable"),
    (ASKED, MigrationFacts(trial_ended=True, image_pushed=True), BACK, "TrialEnded"),
    (ASKED, MigrationFacts(draining=False), BACK, "DrainCancelled"),
    (ASKED, MigrationFacts(old_pod=False), BACK, "PodDeleted"),
    (ASKED, MigrationFacts(old_pod=False, draining=False), BACK, "PodDeleted"),
    (ASKED, MigrationFacts(old_pod=False, draining=False, image_pushed=True), PUSHED, ""),
    (ASKED, MigrationFacts(old_pod=False, image_pushed=True), PUSHED, ""),
    (ASKED, MigrationFacts(old_pod=False, image_pushed=True, refusal=NO), BACK, "RegistryUnreachable"),
    (ASKED, MigrationFacts(age=REQUEST_TIMEOUT_SECONDS), BACK, "AgentTimeout"),
    (PUSHED, MigrationFacts(age=REQUEST_TIMEOUT_SECONDS), None, ""),
    (PUSHED, MigrationFacts(old_pod=False), None, ""),
    (PUSHED, MigrationFacts(new_pod=NewPodFacts(created=True, live=True)), CREATED, ""),
    (PUSHED, MigrationFacts(trial_ended=True), BACK, "TrialEnded"),
    (PUSHED, MigrationFacts(refusal=("PodRefused", "quota")), BACK, "PodRefused"),
    (CREATED, MigrationFacts(age=REQUEST_TIMEOUT_SECONDS, new_pod=NewPodFacts(created=True, live=True)), None, ""),
    (CREATED, MigrationFacts(new_pod=NewPodFacts(created=True, live=True, value_printed=True)), ARRIVED, ""),
    (
        CREATED,
        MigrationFacts(trial_ended=True, new_pod=NewPodFacts(created=True, live=False, value_printed=True)),
        ARRIVED,
        "",
    ),
    (CREATED, MigrationFacts(trial_ended=True, new_pod=NewPodFacts(created=True, live=True)), BACK, "TrialEnded"),
    (CREATED, MigrationFacts(new_pod=NewPodFacts(created=True, live=False)), BACK, "RestoreFailed"),
    (CREATED, MigrationFacts(new_pod=NewPodFacts(created=True, live=False, rejected=True)), PUSHED, ""),
    (
        CREATED,
        MigrationFacts(trial_ended=True, new_pod=NewPodFacts(created=True, live=False, rejected=True)),
        BACK,
        "TrialEnded",
    ),
    (CREATED, MigrationFacts(new_pod=NewPodFacts(created=True, live=True, start_problem="ImagePullBackOff")), None, ""),
    (
        CREATED,
        MigrationFacts(
            new_pod=NewPodFacts(created=True, live=True, start_problem="x", starting_seconds=START_TIMEOUT_SECONDS)
        ),
        BACK,
        "RestoreFailed",
    ),
    (
        CREATED,
        MigrationFacts(age=REQUEST_TIMEOUT_SECONDS, new_pod=NewPodFacts(created=True, live=True, start_problem="x")),
        None,
        "",
    ),
    (
        CREATED,
        MigrationFacts(new_pod=NewPodFacts(created=True, live=True, bound=False), target=TargetFacts(accepts=False)),
        None,
        "",
    ),
    (
        CREATED,
        MigrationFacts(new_pod=NewPodFacts(created=True, live=True), target=TargetFacts(accepts=False, exists=False)),
        None,
        "",
    ),
    (
        CREATED,
        MigrationFacts(
            new_pod=NewPodFacts(created=True, live=True, bound=False),
            target=TargetFacts(accepts=False, exists=False),
        ),
        BACK,
        "RestoreFailed",
    ),
    (PUSHED, MigrationFacts(target=TargetFacts(accepts=False)), BACK, "TargetUnavailable"),
    (
        PUSHED,
        MigrationFacts(new_pod=NewPodFacts(created=True, live=True), target=TargetFacts(accepts=False)),
        CREATED,
        "",
    ),
    (ASKED, MigrationFacts(image_pushed=True, target=TargetFacts(accepts=False)), BACK, "TargetUnavailable"),
    (ASKED, MigrationFacts(old_pod=False, image_pushed=True, target=TargetFacts(accepts=False)), PUSHED, ""),
    (ASKED, MigrationFacts(old_pod=False, target=TargetFacts(accepts=False)), BACK, "PodDeleted"),
    (PUSHED, MigrationFacts(old_pod=False, target=TargetFacts(accepts=False)), PUSHED, TARGET_DRAINING),
    (
        PUSHED,
        MigrationFacts(old_pod=False, age=TARGET_DRAINING_SECONDS, target=TargetFacts(accepts=False)),
        PUSHED,
        TARGET_DRAINING,
    ),
    (PUSHED, MigrationFacts(old_pod=False, target=TargetFacts(accepts=False, waiting_for_drain=True)), None, ""),
    (
        PUSHED,
        MigrationFacts(
            old_pod=False, age=TARGET_DRAINING_SECONDS, target=TargetFacts(accepts=False, waiting_for_drain=True)
        ),
        BACK,
        "TargetUnavailable",
    ),
    (
        PUSHED,
        MigrationFacts(old_pod=False, age=TARGET_DRAINING_SECONDS, target=TargetFacts(waiting_for_drain=True)),
        PUSHED,
        "",
    ),
    (
        PUSHED,
        MigrationFacts(old_pod=False, target=TargetFacts(accepts=False, exists=False)),
        BACK,
        "TargetUnavailable",
    ),
    (ASKED, MigrationFacts(image_pushed=True, target=TargetFacts(slots_free=False)), BACK, "TargetFull"),
    (PUSHED, MigrationFacts(target=TargetFacts(slots_free=False)), BACK, "TargetFull"),
    (PUSHED, MigrationFacts(old_pod=False, target=TargetFacts(slots_free=False)), None, ""),
    (
        PUSHED,
        MigrationFacts(new_pod=NewPodFacts(created=True, live=True), target=TargetFacts(slots_free=False)),
        CREATED,
        "",
    ),
    (
        CREATED,
        MigrationFacts(new_pod=NewPodFacts(created=True, live=True, bound=False), target=TargetFacts(slots_free=False)),
        None,
        "",
    ),
]


@pytest.mark.parametrize(("phase", "facts", "after", "code"), EDGES)
def test_each_transition(phase: MigrationPhase, facts: MigrationFacts, after: MigrationPhase | None, code: str) -> None:
    moved = next_step(phase, facts)
    assert (moved and moved.phase, moved.code if moved else "") == (after, code)
    assert moved is None or bool(moved.message) == bool(code)


def test_the_table_has_every_phase_and_final_phases_remain() -> None:
    assert set(TABLE) == set(MigrationPhase)
    assert {phase for phase in MigrationPhase if TABLE[phase]} == IN_PROGRESS
