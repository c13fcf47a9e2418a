"""A live trial on its way to another node: what is stored, what the agent is asked, and the pod that it goes on in.

All is derived from the objects, so each step is as an operator sees it that has just started.
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

from podium_core.domain.actions import Carry, CreatePod
from podium_core.domain.migration import METHOD, CarryPhase
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
    """Its target drains as well."""
    here, there = seen.nodes
    spec = there.spec.model_copy(update={"draining": True})
    return replace(seen, nodes=(here, there.model_copy(update={"spec": spec})))


STEPS: list[tuple[str, World, str | None, str]] = [
    ("asked, no answer", world(pod(), **way("Asked")), "Asked", ""),
    ("the answer is of an earlier pod", world(pod(), departure=MADE | {"podUid": "x"}, **way("Asked")), "Asked", ""),
    ("the image is there", world(pod(), departure=MADE, **way("Asked")), "Pushed", ""),
    ("the registry is away", world(pod(), departure=REFUSED, **way("Asked")), "FellBack", "RegistryUnreachable"),
    ("the agent says nothing", world(pod(), now=NOW + 1200, **way("Asked")), "FellBack", "NoAnswer"),
    ("its node is gone", world(**way("Asked")), "FellBack", "PodGone"),
    ("its node is gone, its image was told", world(departure=MADE, **way("Asked")), "Pushed", ""),
    ("its pod is told to go", world(pod(deleting=True), **way("Asked")), "FellBack", "PodGone"),
    ("the drain is undone", world(pod(), draining=False, **way("Asked")), "FellBack", "DrainUndone"),
    ("the trial is over", world(pod(), **way("Asked"), phase="EarlyStopped"), "FellBack", "TrialEnded"),
    ("no new pod yet", world(pod(), **PUSHED), "Pushed", ""),
    ("its node is gone, the image is not", world(**PUSHED), "Pushed", ""),
    ("the new pod is there", world(pod(), NEW_POD, **PUSHED), "Created", ""),
    ("the new pod is restored", world(NEW_POD, **way("Created")), "Created", ""),
    ("it has printed a value", world(NEW_POD, reader=READS, **way("Created")), "Arrived", ""),
    ("the old pod printed it", world(NEW_POD, reader=READS | {"podUid": OLD}, **way("Created")), "Created", ""),
    ("it printed none yet", world(NEW_POD, reader=READS | {"first": True}, **way("Created")), "Created", ""),
    ("the new node is gone", world(**way("Created")), "FellBack", "RestoreFailed"),
    ("the restore failed", world(pod(1, carried=True, phase="Failed"), **way("Created")), "FellBack", "RestoreFailed"),
    ("its kubelet rejected it", world(REJECTED, **way("Created")), "Pushed", ""),
    ("no restore yet", world(pod(1, carried=True, **STUCK), **way("Created")), "Created", ""),
    (
        "no restore for long",
        world(pod(1, carried=True, **STUCK), now=NOW + 60, **way("Created")),
        "FellBack",
        "RestoreFailed",
    ),
    (
        "no restore for a moment, after an hour at its gate",
        world(pod(1, carried=True, **STUCK | let_in(3590)), now=NOW + 3600, **way("Created")),
        "Created",
        "",
    ),
    (
        "no restore for long, after an hour at its gate",
        world(pod(1, carried=True, **STUCK | let_in(3540)), now=NOW + 3600, **way("Created")),
        "FellBack",
        "RestoreFailed",
    ),
    ("its target drains", drained(world(pod(), **PUSHED)), "FellBack", "TargetGone"),
    ("its target drains, the image is all that is left", drained(world(**PUSHED)), "Pushed", "TargetDrains"),
    ("its target is gone", world(pod(), target=False, **PUSHED), "FellBack", "TargetGone"),
    ("its target is gone, its new pod is there", world(NEW_POD, target=False, **PUSHED), "Created", ""),
    ("its node is not heard of", world(NEW_POD, target=False, **way("Created")), "Created", ""),
    ("it waits for a node", world(HOMELESS, **way("Created")), "Created", ""),
    ("it waits for a node that is gone", world(HOMELESS, target=False, **way("Created")), "FellBack", "RestoreFailed"),
    ("a pull goes on", world(pod(1, carried=True, **PULLS), now=NOW + 60, **way("Created")), "Created", ""),
    ("fell back, drains still", world(pod(), **way("FellBack", code="RestoreOff")), "FellBack", "RestoreOff"),
    ("fell back, another drain", world(pod(), draining=False, **way("FellBack", code="RestoreOff")), None, ""),
    (
        "fell back and the drain is undone, its image is still to be removed",
        world(pod(), draining=False, departure=MADE, **way("FellBack", code="RegistryUnreachable")),
        "FellBack",
        "DrainUndone",
    ),
    (
        "undone and drained again, its agent may not have seen it yet",
        world(pod(), now=NOW + 4, **way("FellBack", code="DrainUndone")),
        "FellBack",
        "DrainUndone",
    ),
    ("undone and drained again", world(pod(), now=NOW + 5, **way("FellBack", code="DrainUndone")), None, ""),
    ("the shares were taken", world(pod(), now=NOW + 5, **way("FellBack", code="TargetFull")), None, ""),
    (
        "undone and drained again, its image is still to be removed",
        world(pod(), now=NOW + 5, departure=MADE, **way("FellBack", code="DrainUndone")),
        "FellBack",
        "DrainUndone",
    ),
    (
        "undone and drained again, its agent is still asked",
        world(pod(carry="node-2"), now=NOW + 5, **way("FellBack", code="DrainUndone")),
        "FellBack",
        "DrainUndone",
    ),
    (
        "fell back for long, drains still",
        world(pod(), now=NOW + 3600, **way("FellBack", code="RestoreOff")),
        "FellBack",
        "RestoreOff",
    ),
    (
        "fell back, its image is still to be removed",
        world(pod(), draining=False, departure=MADE, **way("FellBack", code="DrainUndone")),
        "FellBack",
        "DrainUndone",
    ),
    (
        "fell back, its agent is still asked",
        world(pod(carry="node-2"), draining=False, **way("FellBack", code="DrainUndone")),
        "FellBack",
        "DrainUndone",
    ),
    ("goes to a GPU with fewer trials", world(pod(), draining=False, **levels("Asked")), "Asked", ""),
    ("the image for that is there", world(pod(), draining=False, departure=MADE, **levels("Asked")), "Pushed", ""),
    ("fell back from that", world(pod(), draining=False, now=NOW + 599, **levels("FellBack")), "FellBack", ""),
    ("fell back from that long ago", world(pod(), draining=False, now=NOW + 600, **levels("FellBack")), None, ""),
    ("fell back from that, its node drains", world(pod(), **levels("FellBack")), None, ""),
    (
        "fell back from that, its node drains, its agent is still asked",
        world(pod(carry="node-2"), **levels("FellBack", code="RestoreOff")),
        "FellBack",
        "RestoreOff",
    ),
    (
        "fell back from that since its share was taken",
        world(pod(), draining=False, now=NOW + 599, **levels("FellBack", code="TargetFull")),
        "FellBack",
        "TargetFull",
    ),
    (
        "fell back there, and goes on in a pod like any other",
        world(pod(2), draining=False, **way("FellBack", code="RestoreFailed")),
        "FellBack",
        "RestoreFailed",
    ),
    ("arrived for good", world(NEW_POD, draining=False, **way("Arrived")), "Arrived", ""),
]


def test_a_pod_that_its_kubelet_rejected_is_followed_by_another_from_the_same_image() -> None:
    """The agent of its node was being started anew, say; its answer may be gone from the status by then."""
    created = way("Created", image=IMAGE, arrives=ARRIVES)
    rejected = world(REJECTED, attempt=1, **created)
    stored = after(rejected)
    assert stored is not None
    assert (stored.phase, stored.attempt, stored.image) == (CarryPhase.PUSHED, 2, IMAGE)
    (made,) = (one for one in plan(build_snapshot(rejected, observe(rejected))).actions if isinstance(one, CreatePod))
    assert (came := arrival(rejected, rejected.trials[0], made.attempt)) is not None
    assert (came.attempt, came.image, came.arrives) == (2, IMAGE, ARRIVES)
    then = world(pod(2, carried=True), REJECTED, attempt=1, **created)
    (trial,) = build_snapshot(then, observe(then)).trials
    assert (trial.carrying, trial.carried, trial.carried_to) == (CarryPhase.CREATED, True, "node-2")


def test_an_image_waits_for_half_an_hour_from_when_its_target_drains() -> None:
    """It had waited for a share for an hour already."""
    waits: dict[str, Any] = PUSHED
    told = []
    for seconds, drains in ((3600, True), (5399, True), (5400, False), (5500, True), (7299, True), (7300, True)):
        seen = world(**waits, now=NOW + seconds)
        stored = after(drained(seen) if drains else seen)
        assert stored is not None
        waits = {"carrying": stored.model_dump(mode="json", by_alias=True)}
        told.append(stored.code or stored.phase.value)
    assert told == ["TargetDrains", "TargetDrains", "Pushed", "TargetDrains", "TargetDrains", "TargetGone"]


def test_its_old_pod_that_no_kubelet_ends_keeps_the_new_one_from_nothing() -> None:
    seen = world(pod(deleting=True), **PUSHED)
    (made,) = (one for one in plan(build_snapshot(seen, observe(seen))).actions if isinstance(one, CreatePod))
    assert (came := arrival(seen, seen.trials[0], made.attempt)) is not None
    assert (came.attempt, came.image) == (1, IMAGE)
    assert (stored := after(seen)) is not None
    assert stored.phase is CarryPhase.PUSHED, "until the new one is there"


def test_with_its_share_given_to_another_it_goes_on_where_it_was() -> None:
    """The scheduler knows nothing of what is promised. As an operator sees it that has just started."""
    seen = world(pod(), **PUSHED)
    full = make_node("node-2", uuid="GPU-2", shares=1, trials={"stranger-0": "Running"})
    for there, phase, code in ((seen.nodes[1], "Pushed", ""), (full, "FellBack", "TargetFull")):
        now = replace(seen, nodes=(seen.nodes[0], there))
        snapshot = build_snapshot(now, observe(now))
        crowded_out = promises(snapshot).broken
        stored = carryings(now, observe(now), {}, {}, (), crowded_out)[trial_key(now.trials[0])]
        assert (stored.phase.value, stored.code) == (phase, code)
        assert bool([action for action in plan(snapshot).actions if isinstance(action, CreatePod)]) is (
            there is not full
        )


@pytest.mark.parametrize(("seen", "phase", "code"), [s[1:] for s in STEPS], ids=[s[0] for s in STEPS])
def test_what_is_stored_next(seen: World, phase: str | None, code: str) -> None:
    stored = after(seen)
    assert (stored and stored.phase.value, stored.code if stored else "") == (phase, code)


def test_the_way_begins_with_the_pod_that_leaves_and_keeps_what_the_agent_says() -> None:
    seen = world(pod())
    key = trial_key(seen.trials[0])
    begun = after(seen, Carry(key, "node-2", "NodeDraining", "it drains"))
    assert begun is not None
    assert (begun.pod_uid, begun.attempt, begun.node, begun.target) == (OLD, 1, "node-1", "node-2")
    assert begun.reason == "NodeDraining"
    pushed = after(world(pod(), departure=MADE, **way("Asked")))
    assert pushed is not None
    assert (pushed.image, pushed.arrives) == (IMAGE, ARRIVES)
    assert after(seen, refused="quota") is None
    refused = after(world(pod(), **PUSHED), refused="exceeded quota")
    assert refused is not None
    assert (refused.code, refused.message) == ("PodRefused", "exceeded quota")


ASKS: list[tuple[str, World, list[tuple[str, str]]]] = [
    ("nobody is carried", world(pod()), []),
    ("asked", world(pod(), **way("Asked")), [("sweep-0-0", "node-2")]),
    ("asked already", world(pod(carry="node-2"), **way("Asked")), []),
    ("its new pod is there", world(pod(carry="node-2"), NEW_POD, **way("Created")), []),
    ("fell back", world(pod(carry="node-2"), **way("FellBack")), [("sweep-0-0", "")]),
    ("fell back and goes", world(pod(carry="node-2", deleting=True), **way("FellBack")), [("sweep-0-0", "")]),
    ("is over", world(pod(carry="node-2", phase="Failed"), **way("FellBack")), []),
]


@pytest.mark.parametrize(("seen", "expected"), [a[1:] for a in ASKS], ids=[a[0] for a in ASKS])
def test_what_agents_are_asked(seen: World, expected: list[tuple[str, str]]) -> None:
    assert [(one.name, target) for one, target in asks(seen)] == expected


VIEWS: list[tuple[str, World, tuple[CarryPhase | None, bool, bool]]] = [
    ("asked", world(pod(), **way("Asked")), (CarryPhase.ASKED, False, True)),
    ("pushed", world(pod(), **PUSHED), (CarryPhase.PUSHED, False, True)),
    ("created", world(pod(), NEW_POD, **PUSHED), (CarryPhase.PUSHED, True, False)),
    ("fell back there", world(NEW_POD, **way("FellBack")), (CarryPhase.FELL_BACK, True, False)),
    ("fell back here", world(pod(), **way("FellBack")), (CarryPhase.FELL_BACK, False, False)),
    ("a pod like any other", world(pod(1), **way("FellBack")), (None, False, False)),
    ("arrived", world(NEW_POD, **way("Arrived")), (None, False, False)),
]


@pytest.mark.parametrize(("seen", "expected"), [v[1:] for v in VIEWS], ids=[v[0] for v in VIEWS])
def test_what_the_planner_sees(seen: World, expected: tuple[CarryPhase | None, bool, bool]) -> None:
    snapshot = build_snapshot(seen, observe(seen))
    (trial,) = snapshot.trials
    assert (trial.carrying, trial.carried, trial.suspend) == expected
    assert snapshot.jobs[0].carries
    assert [gpu.carries for gpu in snapshot.gpus] == [True, False]


def test_a_node_that_only_carries_keeps_nobody_in_place() -> None:
    only = make_node()
    status = only.status.model_copy(update={"methods": ["freeze", METHOD]})
    seen = make_world(make_job(**ALIVE), only.model_copy(update={"status": status}))
    assert not build_snapshot(seen, {}).jobs[0].freezes


def test_the_pod_that_it_goes_on_in() -> None:
    seen = world(pod(), **PUSHED)
    stored = seen.trials[0].status.carrying
    made = make_pod(seen.jobs[0], seen.trials[0], 1, PodRules("podium", "podium.dev/gpu"), arrival=stored)
    main, gate = made["spec"]["containers"][0], made["spec"]["initContainers"][-1]
    assert (main["image"], gate["image"]) == (IMAGE, "localhost/busybox:1")
    required = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["node-2"]
    notes = made["metadata"]["annotations"]
    assert (notes["podium.dev/arrives"], notes["podium.dev/carried"]) == (ARRIVES, "node-1")


ARRIVALS: list[tuple[str, World, int, str | None]] = [
    ("its image is there", world(pod(), **PUSHED), 1, IMAGE),
    ("that was just told, and its old pod is gone", world(departure=MADE, **way("Asked")), 1, IMAGE),
    ("another attempt", world(departure=MADE, **way("Asked")), 2, None),
    ("refused, and its old pod is gone", world(departure=REFUSED, **way("Asked")), 1, None),
    ("told of an earlier pod", world(departure=MADE | {"podUid": "x"}, **way("Asked")), 1, None),
    ("fell back", world(departure=MADE, **way("FellBack", image=IMAGE)), 1, None),
    ("it was used", world(**way("Created", image=IMAGE)), 1, None),
    ("its pod was rejected", world(REJECTED, **way("Created", image=IMAGE, arrives=ARRIVES)), 2, IMAGE),
    ("its pod was rejected at once", world(REJECTED, **PUSHED), 2, IMAGE),
    ("its pod ran", world(pod(1, carried=True, phase="Failed", main=ENDED), **way("Created", image=IMAGE)), 2, None),
    ("its pod is there", world(NEW_POD, **way("Created", image=IMAGE)), 2, None),
]


@pytest.mark.parametrize(("seen", "attempt", "image"), [a[1:] for a in ARRIVALS], ids=[a[0] for a in ARRIVALS])
def test_what_the_next_attempt_goes_on_from(seen: World, attempt: int, image: str | None) -> None:
    came = arrival(seen, seen.trials[0], attempt)
    assert (came and came.image) == image
    assert came is None or came.arrives == ARRIVES
