"""A live trial on its way to another node: what is stored, what the agent is asked, and the pod that it goes on in.

All is derived from the objects, so each step is as an operator sees it that has just started.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from operator_builders import NOW, make_job, make_node, make_trial, make_world, moment, pod_payload

from podium.domain.actions import Carry, CreatePod
from podium.domain.carrying import METHOD, CarryPhase
from podium.domain.phase import TrialPhase
from podium.schema.gpunode import GPUNode
from podium.schema.trial import Carrying
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import Resource
from podium_operator.actuator import Actuator
from podium_operator.announcements import Announcements
from podium_operator.carrying import asks, carryings
from podium_operator.metrics import Metrics
from podium_operator.mirror import Mirror
from podium_operator.observed import observe
from podium_operator.pods import PodRules, make_pod
from podium_operator.seen import SeenPod, parse_pod
from podium_operator.settings import OperatorSettings
from podium_operator.snapshot import build_snapshot
from podium_operator.trial_status import trial_status
from podium_operator.world import World, trial_key

OLD, NEW = "uid-sweep-0-0", "uid-sweep-0-1"
IMAGE, ARRIVES = "registry:5000/podium-checkpoints/lab/sweep-0-0@sha256:1", '{"gpus":{"GPU-1":4},"processes":1}'
ALIVE = {"suspension": {"methods": ["cuda-checkpoint", METHOD]}, "gpus": {"memory": "8Gi"}}
MADE = {"podUid": OLD, "image": IMAGE, "arrives": ARRIVES}
REFUSED = {"podUid": OLD, "code": "RegistryUnreachable", "message": "nobody listens"}
WORKS: dict[str, Any] = {"phase": "Running", "gate": {"terminated": {"exitCode": 0}}, "main": {"running": {}}}
STUCK = WORKS | {"phase": "Pending", "main": {"waiting": {"reason": "CreateContainerError", "message": "no CRIU"}}}
PULLS = WORKS | {"phase": "Pending", "main": {"waiting": {"reason": "ErrImagePull", "message": "again"}}}
READS = {"podUid": NEW, "step": 12.0}


def way(phase: str, since: float = 0.0, **more: Any) -> dict[str, Any]:
    stored = {"phase": phase, "since": moment(since), "podUid": OLD, "attempt": 1, "node": "node-1", "target": "node-2"}
    return {"carrying": stored | more}


def levels(phase: str) -> dict[str, Any]:
    return way(phase, reason="Levelling")


PUSHED = way("Pushed", image=IMAGE, arrives=ARRIVES)


def pod(attempt: int = 0, *, carry: str = "", carried: bool = False, **how: Any) -> SeenPod:
    payload = pod_payload(attempt=attempt, node=f"node-{attempt + 1}", **{**WORKS, **how})
    named = {"podium.dev/carry": carry, "podium.dev/carried": "node-1" if carried else ""}
    payload["metadata"]["annotations"] = {name: value for name, value in named.items() if value}
    return parse_pod(payload)


def node(draining: bool = True) -> GPUNode:
    made = make_node(trials={"sweep-0": "Suspended"})
    about = {"methods": ["freeze", "cuda-checkpoint", METHOD]}
    return made.model_copy(
        update={
            "spec": made.spec.model_copy(update={"draining": draining}),
            "status": made.status.model_copy(update=about),
        }
    )


def world(*pods: SeenPod, draining: bool = True, target: bool = True, now: float = NOW, **status: Any) -> World:
    trial = make_trial(**{"phase": "Suspended", "pod": "sweep-0-0", "node": "node-1", **status})
    nodes = (node(draining), *((make_node("node-2", uuid="GPU-2"),) if target else ()))
    return make_world(make_job(**ALIVE), trial, *nodes, *pods, now=now)


def after(seen: World, *actions: Carry, refused: str | None = None) -> Carrying | None:
    key = trial_key(seen.trials[0])
    said = {} if refused is None else {key: refused}
    return carryings(seen, observe(seen), {action.trial: action for action in actions}, said).get(key)


def let_in(seconds: float) -> dict[str, Any]:
    return {"gate": {"terminated": {"exitCode": 0, "finishedAt": moment(seconds)}}}


NEW_POD = pod(1, carried=True)
HOMELESS = replace(NEW_POD, facts=replace(NEW_POD.facts, node=None))
STEPS: list[tuple[str, World, str | None, str]] = [
    ("asked, no answer", world(pod(), **way("Asked")), "Asked", ""),
    ("the answer is of an earlier pod", world(pod(), departure=MADE | {"podUid": "x"}, **way("Asked")), "Asked", ""),
    ("the image is there", world(pod(), departure=MADE, **way("Asked")), "Pushed", ""),
    ("the registry is away", world(pod(), departure=REFUSED, **way("Asked")), "FellBack", "RegistryUnreachable"),
    ("the agent says nothing", world(pod(), now=NOW + 1200, **way("Asked")), "FellBack", "NoAnswer"),
    ("its node is gone", world(**way("Asked")), "FellBack", "PodGone"),
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
    ("its target is gone", world(pod(), target=False, **PUSHED), "FellBack", "TargetGone"),
    ("its target is gone, its new pod is there", world(NEW_POD, target=False, **PUSHED), "Created", ""),
    ("its node is not heard of", world(NEW_POD, target=False, **way("Created")), "Created", ""),
    ("it waits for a node", world(HOMELESS, **way("Created")), "Created", ""),
    ("it waits for a node that is gone", world(HOMELESS, target=False, **way("Created")), "FellBack", "RestoreFailed"),
    ("a pull goes on", world(pod(1, carried=True, **PULLS), now=NOW + 60, **way("Created")), "Created", ""),
    ("fell back, drains still", world(pod(), **way("FellBack", code="RestoreOff")), "FellBack", "RestoreOff"),
    ("fell back, another drain", world(pod(), draining=False, **way("FellBack", code="RestoreOff")), None, ""),
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
    ("arrived for good", world(NEW_POD, draining=False, **way("Arrived")), "Arrived", ""),
]


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


class Wire:
    """Notes what is sent; refuses pods with `refusal`."""

    def __init__(self, refusal: ApiError | None = None) -> None:
        self.calls: list[tuple[str, Any]] = []
        self._refusal = refusal

    async def patch(self, _: Resource, name: str, __: str, body: Any, **___: Any) -> None:
        self.calls.append((name, body["metadata"]["annotations"]))

    async def delete(self, _: Resource, name: str, __: str, **how: Any) -> None:
        self.calls.append((name, how))

    async def create(self, resource: Resource, body: Any, **_: Any) -> None:
        self.calls.append((body["metadata"].get("name", resource.kind), body))
        if self._refusal is not None:
            raise self._refusal


def test_the_old_pod_has_nothing_to_save_any_more() -> None:
    wire, seen = Wire(), world(pod(carry="node-2"), NEW_POD, **PUSHED)
    api = cast(Api, wire)
    actuator = Actuator(api, Mirror(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
    asyncio.run(actuator.carry_out(seen, []))
    assert wire.calls == [("sweep-0-0", {"uid": OLD, "grace_seconds": 1})]


@pytest.mark.parametrize("status", [403, 422])
def test_a_new_pod_that_is_refused_ends_no_trial(status: int) -> None:
    wire, seen = Wire(ApiError(status, "No", "exceeded quota")), world(pod(), **PUSHED)
    api, key = cast(Api, wire), trial_key(seen.trials[0])
    actuator = Actuator(api, Mirror(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
    assert asyncio.run(actuator.carry_out(seen, [CreatePod(key, 1, "Carried", "")])) == ()
    assert [name for name, _ in wire.calls] == ["sweep-0-0", "sweep-0-1"]
    assert wire.calls[0][1] == {"podium.dev/carry": "node-2"}
    assert wire.calls[1][1]["spec"]["containers"][0]["image"] == IMAGE
    assert actuator.uncarried() == {key: "exceeded quota"}
    assert actuator.refused() == {}
    asyncio.run(actuator.carry_out(seen, []))
    assert actuator.uncarried() == {}, "each refusal is told once: the trial has fallen back by then"


@pytest.mark.parametrize("status", [0, 429, 500, 504])
def test_a_new_pod_that_may_be_there_after_all_ends_no_carrying(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trial must not fall back: both pods would be ended, and the image with them."""
    monkeypatch.setattr("podium_operator.actuator.ECHO_SECONDS", 3600.0)
    wire, seen = Wire(ApiError(status, "Timeout", "no answer")), world(pod(carry="node-2"), **PUSHED)
    api, key = cast(Api, wire), trial_key(seen.trials[0])
    actuator = Actuator(api, Mirror(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
    asyncio.run(actuator.carry_out(seen, [CreatePod(key, 1, "Carried", "")]))
    assert [name for name, _ in wire.calls] == ["sweep-0-1"]
    assert actuator.uncarried() == {}
    assert key in actuator.refused(), "after a pause"
    nowhere = world(pod(), target=False, **PUSHED)
    stored = carryings(nowhere, observe(nowhere), {}, {}, actuator.sent()).get(key)
    assert stored is not None
    assert stored.phase is CarryPhase.PUSHED, "it falls back when it is sure that the pod is not there"


def test_a_new_pod_that_does_not_show_yet_is_not_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota that it fills itself would refuse the second one, and the trial fall back with both pods there."""
    monkeypatch.setattr("podium_operator.actuator.ECHO_SECONDS", 3600.0)
    wire, seen = Wire(), world(pod(carry="node-2"), **PUSHED)
    api, key = cast(Api, wire), trial_key(seen.trials[0])
    actuator = Actuator(api, Mirror(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
    for _ in range(2):
        asyncio.run(actuator.carry_out(seen, [CreatePod(key, 1, "Carried", "")]))
    assert [name for name, _ in wire.calls] == ["sweep-0-1"]


def test_no_pod_is_made_for_a_node_that_takes_none() -> None:
    wire, seen = Wire(), world(pod(carry="node-2"), target=False, **PUSHED)
    api, key = cast(Api, wire), trial_key(seen.trials[0])
    actuator = Actuator(api, Mirror(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
    asyncio.run(actuator.carry_out(seen, [CreatePod(key, 1, "Carried", "")]))
    assert (wire.calls, list(actuator.sent())) == ([], [])


def test_a_restore_that_fails_is_no_failure_of_the_trial() -> None:
    end = {"terminated": {"exitCode": 128, "reason": "StartError", "message": "criu: no"}}
    seen = world(pod(1, carried=True, phase="Failed", main=end), attempt=1, **way("Created"), phase="Pending")
    (sight,) = observe(seen).values()
    assert (sight.phase, sight.reason, sight.failures) == (TrialPhase.REQUEUED, "CarryFailed", 0)


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (None, "Asked", ["CarryBegun"]),
        ("Asked", "Asked", []),
        ("Asked", "Pushed", []),
        ("Asked", "FellBack", ["CarryFailed"]),
        ("Created", "Arrived", ["Carried"]),
    ],
)
def test_it_is_stored_and_told_once(before: str | None, now: str, told: list[str]) -> None:
    wire = Wire()
    seen = world(pod(), **(way(before) if before else {}))
    stored = Carrying.model_validate(way(now, code="RestoreOff", message="no")["carrying"])
    status = trial_status(seen.trials[0], seen.jobs[0], next(iter(observe(seen).values())), now=NOW, carrying=stored)
    assert Carrying.model_validate(status["carrying"]) == stored
    asyncio.run(Announcements(cast(Api, wire)).carrying(seen.trials[0], status))
    assert [body["reason"] for _, body in wire.calls] == told


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("NodeDraining", "NodeDraining: the trial is carried from node-1 to node-2, alive."),
        ("Levelling", "Levelling: the trial is carried from node-1 to node-2, alive."),
    ],
)
def test_it_is_told_why_it_is_carried(reason: str, told: str) -> None:
    wire = Wire()
    asyncio.run(Announcements(cast(Api, wire)).carrying(world(pod()).trials[0], way("Asked", reason=reason)))
    assert [body["message"] for _, body in wire.calls] == [told]


@pytest.mark.parametrize(
    ("code", "kind"), [("RestoreOff", "Warning"), ("TrialEnded", "Normal"), ("DrainUndone", "Normal")]
)
def test_what_need_not_be_carried_any_more_is_no_trouble(code: str, kind: str) -> None:
    wire, seen = Wire(), world(pod(), **way("Asked"))
    status = way("FellBack", code=code, message="no")
    asyncio.run(Announcements(cast(Api, wire)).carrying(seen.trials[0], status))
    assert [body["type"] for _, body in wire.calls] == [kind]
