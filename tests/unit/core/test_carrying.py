"""Which live trials are carried to another node, and each edge of the table that says how far one is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from plans import RUN, SLOW, P, of, sound, why

from podium_core.domain.actions import Carry, CreatePod, Plan, Requeue
from podium_core.domain.migration import (
    ASKED_SECONDS,
    BROKEN_SECONDS,
    DRAINED_SECONDS,
    OPEN,
    TABLE,
    TARGET_DRAINING,
    CarryFacts,
    CarryPhase,
    follow,
)
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import GpuView, Snapshot
from podium_core.testing.builders import make_gpu, make_job, make_snapshot, make_trial

ASKED, PUSHED, CREATED = CarryPhase.REQUESTED, CarryPhase.IMAGE_PUSHED, CarryPhase.POD_CREATED
ARRIVED, BACK = CarryPhase.RESTORED, CarryPhase.FAILED
CARRIES = make_job(max_trials=2, carries=True)


def asked(made: Plan) -> list[tuple[str, str]]:
    return [(a.trial.name, a.target) for a in of(made, Carry) if isinstance(a, Carry)]


def drained(
    phase: TrialPhase = RUN, *, job: Any = CARRIES, gpu: Any = None, other: Any = None, **trial: Any
) -> Snapshot:
    """One trial on node-a, which drains; node-b has a GPU that is free."""
    there = make_trial(0, gpus=["gpu-0"], node="node-a", phase=phase, values=SLOW, **trial)
    mine = make_gpu(trials=[there.key], **{"draining": True, "carries": True, **(gpu or {})})
    return make_snapshot(jobs=[job], trials=[there], gpus=[mine, free(**(other or {}))])


def free(uuid: str = "gpu-1", **gpu: Any) -> GpuView:
    return make_gpu(uuid, **{"node": "node-b", "carries": True, **gpu})


CASES: list[tuple[str, Snapshot, bool]] = [
    ("at work", drained(), True),
    ("suspended", drained(P.SUSPENDED), True),
    ("at its gate", drained(P.GATED), False),
    ("its job does not ask for it", drained(job=make_job(max_trials=2)), False),
    ("it saves", drained(job=make_job(max_trials=2, saves=True, carries=True)), False),
    ("its saves stay here", drained(job=make_job(max_trials=2, saves=True, saves_at="node", carries=True)), True),
    ("the node does not drain", drained(gpu={"draining": False}), False),
    ("its agent cannot", drained(gpu={"carries": False}), False),
    ("the other's agent cannot", drained(other={"carries": False}), False),
    ("the other drains too", drained(other={"draining": True}), False),
    ("the other is not heard", drained(other={"health": "Unknown"}), False),
    ("the other is full", drained(other={"shares": 0}), False),
    ("the other is of another product", drained(other={"product": "H200"}), False),
    ("the other is this node's", drained(other={"node": "node-a"}), False),
    ("too few GPUs there", drained(job=make_job(max_trials=2, carries=True, gpus_per_trial=2)), False),
    ("its pod goes", drained(leaving=True), False),
    ("it fell back", drained(carrying=BACK), False),
    ("it is asked", drained(P.SUSPENDED, carrying=ASKED, suspend=True), False),
]


@pytest.mark.parametrize(("snapshot", "carried"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_who_is_carried(snapshot: Snapshot, carried: bool) -> None:
    assert asked(sound(snapshot)) == ([("job-0", "node-b")] if carried else [])


def test_one_at_a_time_leaves_a_node_for_the_one_with_most_room() -> None:
    snapshot = drained()
    second = replace(make_trial(1, gpus=["gpu-0"], node="node-a", phase=P.SUSPENDED, values=SLOW))
    roomy = free("gpu-2", node="node-c", shares=9)
    both = replace(snapshot, trials=(*snapshot.trials, second), gpus=(*snapshot.gpus, roomy))
    assert [target for _, target in asked(sound(both))] == ["node-c"]
    first = replace(snapshot.trials[0], phase=P.SUSPENDED, carrying=ASKED, suspend=True)
    assert asked(sound(replace(both, trials=(first, second)))) == []
    assert asked(sound(replace(both, trials=(replace(first, carrying=CREATED, suspend=False), second)))) != []


def test_its_new_pod_is_made_when_its_image_is_there_and_taken_away_if_it_cannot_go_on() -> None:
    pushed = sound(drained(P.SUSPENDED, carrying=PUSHED, suspend=True))
    assert [(a.attempt, a.reason) for a in of(pushed, CreatePod) if isinstance(a, CreatePod)] == [(1, "Migrated")]
    assert why(pushed, "job-0") == "MigrationInProgress"
    goes = sound(drained(P.SUSPENDED, carrying=PUSHED, suspend=True, leaving=True, overdue=True))
    assert of(goes, CreatePod) == of(pushed, CreatePod), "nobody waits for a kubelet that does not end the old one"
    assert of(sound(drained(carrying=PUSHED, carried=True, attempt=1)), CreatePod) == [], "it is there already"
    broken = sound(drained(carrying=BACK, carried=True, attempt=1))
    assert [a.reason for a in of(broken, Requeue) if isinstance(a, Requeue)] == ["MigrationFailed"]


NO = ("RegistryUnreachable", "nobody listens there")
EDGES: list[tuple[CarryPhase, CarryFacts, CarryPhase | None, str]] = [
    (ASKED, CarryFacts(), None, ""),
    (ASKED, CarryFacts(pushed=True), PUSHED, ""),
    (ASKED, CarryFacts(refusal=NO), BACK, "RegistryUnreachable"),
    (ASKED, CarryFacts(over=True, pushed=True), BACK, "TrialEnded"),
    (ASKED, CarryFacts(draining=False), BACK, "DrainCancelled"),
    (ASKED, CarryFacts(old_pod=False), BACK, "PodDeleted"),
    (ASKED, CarryFacts(old_pod=False, draining=False), BACK, "PodDeleted"),
    (ASKED, CarryFacts(old_pod=False, draining=False, pushed=True), PUSHED, ""),
    (ASKED, CarryFacts(old_pod=False, pushed=True), PUSHED, ""),
    (ASKED, CarryFacts(old_pod=False, pushed=True, refusal=NO), BACK, "RegistryUnreachable"),
    (ASKED, CarryFacts(age=ASKED_SECONDS), BACK, "AgentTimeout"),
    (PUSHED, CarryFacts(age=ASKED_SECONDS), None, ""),
    (PUSHED, CarryFacts(old_pod=False), None, ""),
    (PUSHED, CarryFacts(made=True, new_pod=True), CREATED, ""),
    (PUSHED, CarryFacts(over=True), BACK, "TrialEnded"),
    (PUSHED, CarryFacts(refusal=("PodRefused", "quota")), BACK, "PodRefused"),
    (CREATED, CarryFacts(made=True, new_pod=True, age=ASKED_SECONDS), None, ""),
    (CREATED, CarryFacts(made=True, new_pod=True, printed=True), ARRIVED, ""),
    (CREATED, CarryFacts(made=True, new_pod=False, printed=True, over=True), ARRIVED, ""),
    (CREATED, CarryFacts(made=True, new_pod=True, over=True), BACK, "TrialEnded"),
    (CREATED, CarryFacts(made=True, new_pod=False), BACK, "RestoreFailed"),
    (CREATED, CarryFacts(made=True, new_pod=False, rejected=True), PUSHED, ""),
    (CREATED, CarryFacts(made=True, new_pod=False, rejected=True, over=True), BACK, "TrialEnded"),
    (CREATED, CarryFacts(made=True, new_pod=True, broken="ImagePullBackOff"), None, ""),
    (CREATED, CarryFacts(made=True, new_pod=True, broken="x", trying=BROKEN_SECONDS), BACK, "RestoreFailed"),
    (CREATED, CarryFacts(made=True, new_pod=True, broken="x", age=ASKED_SECONDS), None, ""),
    (CREATED, CarryFacts(made=True, new_pod=True, takes=False, bound=False), None, ""),
    (CREATED, CarryFacts(made=True, new_pod=True, takes=False, target=False), None, ""),
    (CREATED, CarryFacts(made=True, new_pod=True, takes=False, target=False, bound=False), BACK, "RestoreFailed"),
    (PUSHED, CarryFacts(takes=False), BACK, "TargetUnavailable"),
    (PUSHED, CarryFacts(made=True, new_pod=True, takes=False), CREATED, ""),
    (ASKED, CarryFacts(takes=False, pushed=True), BACK, "TargetUnavailable"),
    (ASKED, CarryFacts(takes=False, old_pod=False, pushed=True), PUSHED, ""),
    (ASKED, CarryFacts(takes=False, old_pod=False), BACK, "PodDeleted"),
    (PUSHED, CarryFacts(takes=False, old_pod=False), PUSHED, TARGET_DRAINING),
    (PUSHED, CarryFacts(takes=False, old_pod=False, age=DRAINED_SECONDS), PUSHED, TARGET_DRAINING),
    (PUSHED, CarryFacts(takes=False, old_pod=False, waits=True), None, ""),
    (PUSHED, CarryFacts(takes=False, old_pod=False, waits=True, age=DRAINED_SECONDS), BACK, "TargetUnavailable"),
    (PUSHED, CarryFacts(old_pod=False, waits=True, age=DRAINED_SECONDS), PUSHED, ""),
    (PUSHED, CarryFacts(takes=False, old_pod=False, target=False), BACK, "TargetUnavailable"),
    (ASKED, CarryFacts(room=False, pushed=True), BACK, "TargetFull"),
    (PUSHED, CarryFacts(room=False), BACK, "TargetFull"),
    (PUSHED, CarryFacts(room=False, old_pod=False), None, ""),
    (PUSHED, CarryFacts(room=False, made=True, new_pod=True), CREATED, ""),
    (CREATED, CarryFacts(room=False, made=True, new_pod=True, bound=False), None, ""),
]


@pytest.mark.parametrize(("phase", "facts", "after", "code"), EDGES)
def test_each_edge(phase: CarryPhase, facts: CarryFacts, after: CarryPhase | None, code: str) -> None:
    moved = follow(phase, facts)
    assert (moved and moved.phase, moved.code if moved else "") == (after, code)
    assert moved is None or bool(moved.message) == bool(code)


def test_the_table_has_every_phase_and_those_that_are_over_stay() -> None:
    assert set(TABLE) == set(CarryPhase)
    assert {phase for phase in CarryPhase if TABLE[phase]} == OPEN
