"""Rebalancing, the operator's part: which trials may move, what is stored, which node the new pod prefers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from operator_builders import NOW, ended, make_job, make_node, make_pod, make_trial, make_world, moment, pod_payload

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import NODES, PODS, Resource
from podium_core.domain.actions import Action, DeletePod, Migrate, Requeue
from podium_core.domain.rebalancing import REBALANCING
from podium_operator.act.actuator import Actuator
from podium_operator.act.pod_manifest import PodRules
from podium_operator.act.pod_manifest import make_pod as new_pod
from podium_operator.act.rebalancing import AGAIN_SECONDS, ECHO_SECONDS, Leveller, bound_for
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import World, trial_key
from podium_operator.observe.observation import observe
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.observe.trial_state import SeenTrial
from podium_operator.observe.watch_caches import Mirror
from podium_operator.report.trial_status import trial_status
from podium_operator.settings import OperatorSettings

WORKS: dict[str, Any] = {"phase": "Running", "gate": ended(0), "main": {"running": {}}}
ROOM = {"cpu": "4", "memory": "8Gi", "pods": "9"}
JOB = make_job()


class Cluster:
    """Replaces the API server: one other node with the pods `there` on it."""

    def __init__(self, has: dict[str, str], there: Sequence[dict[str, Any]] = (), away: bool = False) -> None:
        self.has, self.there, self.away = has, there, away
        self.asked: list[tuple[str, str]] = []

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> dict[str, Any]:
        self.asked.append((resource.kind, name))
        if self.away:
            raise ApiError(503, "Unavailable", "the server is unreachable")
        if resource is NODES:
            return {"metadata": {"name": name}, "status": {"allocatable": self.has}}
        made = pod_payload()
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2", "podium.dev/gpu": "1"}}
        return made

    async def list(self, resource: Resource, *, fields: str) -> dict[str, Any]:
        node, *phases = fields.split(",")
        assert (resource, phases) == (PODS, ["status.phase!=Succeeded", "status.phase!=Failed"])
        assert node in ("spec.nodeName=node-2", "spec.nodeName=node-3")
        return {"items": list(self.there)}


def leveller(cluster: Cluster, **settings: Any) -> Leveller:
    return Leveller(cast(Api, cluster), OperatorSettings(rebalancing=True, **settings))


def suspended(**status: Any) -> World:
    trial = make_trial(phase="Suspended", pod="sweep-0-0", node="node-1", **status)
    nodes = make_node(trials={"sweep-0": "Suspended"}), make_node("node-2", uuid="GPU-2")
    return make_world(JOB, trial, make_pod(**WORKS), *nodes)


def move(world: World, target: str = "node-2") -> Requeue:
    return Requeue(trial_key(world.trials[0]), REBALANCING, "fewer there", target)


def admit(one: Leveller, world: World, *actions: Action) -> tuple[Action, ...]:
    return asyncio.run(one.admit(world, observe(world), actions))


BUSY = {"metadata": {}, "spec": {"containers": [{"resources": {"requests": {"cpu": "3"}}}]}}
CLUSTERS: list[tuple[str, Cluster, bool]] = [
    ("room", Cluster(ROOM), True),
    ("no CPUs", Cluster(ROOM, [BUSY]), False),
    ("the server is unreachable", Cluster(ROOM, away=True), False),
    ("a node that cannot be parsed", Cluster({"cpu": cast(str, None)}), False),
    ("CPUs that cannot be parsed", Cluster(ROOM | {"cpu": "many"}), False),
]


@pytest.mark.parametrize(("cluster", "goes"), [c[1:] for c in CLUSTERS], ids=[c[0] for c in CLUSTERS])
@pytest.mark.parametrize("alive", [False, True])
def test_trials_move_only_to_a_node_with_capacity(cluster: Cluster, goes: bool, alive: bool) -> None:
    world, one = suspended(), leveller(cluster)
    asked: Action = move(world)
    if alive:
        asked = Migrate(trial_key(world.trials[0]), "node-2", REBALANCING, "fewer there")
    others: tuple[Action, ...] = (
        DeletePod(asked.trial, "TrialEnded", "over"),
        Requeue(asked.trial, "NodeDraining", "it drains"),
        Migrate(asked.trial, "node-2", "NodeDraining", "it drains"),
    )
    assert admit(one, world, *others, asked) == (*others, *([asked] if goes else []))
    place = (JOB.metadata.namespace, JOB.metadata.name), "node-2"
    assert set(one.no_room(NOW)) == (set() if goes else {place})
    assert not one.no_room(NOW + AGAIN_SECONDS), "it is asked again"


@pytest.mark.parametrize("alive", [False, True])
def test_no_other_trial_moves_before_the_cache_shows_the_last_move(alive: bool) -> None:
    first, second = (make_trial(i, phase="Suspended", pod=f"sweep-{i}-0", node="node-1") for i in range(2))
    pods = (make_pod(**WORKS), make_pod("sweep-1", **WORKS))
    nodes = make_node(trials={"sweep-0": "Suspended", "sweep-1": "Suspended"}), make_node("node-2", uuid="GPU-2")
    world, one = make_world(JOB, first, second, *pods, *nodes), leveller(Cluster(ROOM))
    moves: list[Action] = [
        Migrate(trial_key(trial), "node-2", REBALANCING, "fewer")
        if alive
        else Requeue(trial_key(trial), REBALANCING, "fewer", "node-2")
        for trial in world.trials
    ]
    assert admit(one, world, moves[0]) == (moves[0],)
    assert admit(one, world, moves[1]) == ()
    assert admit(one, world, moves[0]) == (moves[0],), "it may be requeued again"
    later = replace(world, now=world.now + ECHO_SECONDS)
    assert admit(one, later, moves[1]) == (moves[1],)
    assert admit(leveller(Cluster(ROOM)), world, *moves) == tuple(moves), "two of one plan do not conflict"


def test_an_unreadable_template_does_not_affect_other_jobs() -> None:
    template = {"spec": {**JOB.spec.template["spec"], "tolerations": [{"key": {}}]}}
    odd, seen = make_job(template=template), suspended()
    world = make_world(odd, *seen.trials, *seen.pods, *seen.nodes)
    assert admit(leveller(Cluster(ROOM)), world, move(world)) == ()


def test_a_move_within_a_node_is_not_checked() -> None:
    world, cluster = suspended(), Cluster({})
    assert admit(leveller(cluster), world, move(world, "node-1"))
    assert cluster.asked == []


def test_a_move_is_repeated_until_the_status_shows_it_and_counted_once() -> None:
    world, one = suspended(), leveller(Cluster(ROOM))
    admit(one, world, move(world))
    told = one.levelled(world)[trial_key(world.trials[0])]
    assert (told.source_node, told.target_node, told.attempt, told.count) == ("node-1", "node-2", 1, 1)
    assert one.levelled(world) == {trial_key(world.trials[0]): told}, "the write was refused: once more"
    written = trial_status(world.trials[0], JOB, observe(world)[trial_key(world.trials[0])], now=NOW, levelled=told)
    shown = suspended(rebalanced=written["rebalanced"])
    assert one.levelled(shown) == {trial_key(shown.trials[0]): told}
    admit(one, shown, move(shown, "node-3"))
    again = one.levelled(shown)[trial_key(shown.trials[0])]
    assert (again.target_node, again.attempt, again.count) == ("node-3", 1, 1), "its pod was not deleted the first time"
    later = suspended(rebalanced=written["rebalanced"] | {"attempt": 0})
    admit(one, later, move(later))
    assert one.levelled(later)[trial_key(later.trials[0])].count == 2
    assert one.levelled(make_world(JOB)) == {}


REFUSED = ApiError(403, "Forbidden", "a webhook refuses it")


@pytest.mark.parametrize(
    ("refusal", "verb", "moves"),
    [
        (None, "", 1),
        (REFUSED, "patch", 0),
        (REFUSED, "delete", 0),
        (ApiError(0, "Unreachable", "no answer"), "delete", 1),  # the pod may be gone
        (ApiError(404, "NotFound", "no such pod"), "delete", 1),
    ],
)
def test_a_move_that_the_api_server_refuses_is_not_counted(refusal: ApiError | None, verb: str, moves: int) -> None:
    class Wire:
        def __getattr__(self, name: str) -> Any:
            async def call(*_: Any, **__: Any) -> None:
                if name == verb and refusal is not None:
                    raise refusal

            return call

    world, one, api = suspended(), leveller(Cluster(ROOM)), cast(Api, Wire())
    actuator = Actuator(api, Mirror(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
    for _ in range(2):  # the second time it is not even tried
        asyncio.run(actuator.order(world, admit(one, world, move(world))))
        assert len(one.levelled(world, actuator.stays())) == moves


def test_a_pod_whose_deletion_backs_off_is_not_checked_but_still_requeued() -> None:
    world, cluster = suspended(), Cluster(ROOM)
    one, kept = leveller(cluster), {world.pods[0].uid}
    assert asyncio.run(one.admit(world, observe(world), [move(world)], kept)) == (move(world),)
    assert cluster.asked == []
    assert one.levelled(world) == {}


def way(attempt: int = 1) -> dict[str, Any]:
    return {"at": moment(), "sourceNode": "node-1", "targetNode": "node-2", "attempt": attempt, "count": 1}


CARRY = {"since": moment(), "podUid": "uid-sweep-0-0", "attempt": 1, "sourceNode": "node-1", "targetNode": "node-3"}
LEAVES = make_pod(**WORKS, deleting=True)
ON_ITS_WAY: list[tuple[str, World, str | None]] = [
    ("it stays", suspended(), None),
    ("requeued, not yet being deleted", suspended(rebalanced=way()), None),
    ("it leaves", make_world(JOB, make_trial(phase="Running", pod="p", rebalanced=way()), LEAVES), "node-2"),
    ("it waits for a pod", make_world(JOB, make_trial(phase="Requeued", pod="p", rebalanced=way())), "node-2"),
    (
        "its pod starts",
        make_world(JOB, make_trial(phase="Pending", attempt=1, rebalanced=way()), make_pod(attempt=1)),
        "node-2",
    ),
    (
        "it has moved",
        make_world(
            JOB, make_trial(phase="Gated", attempt=1, rebalanced=way()), make_pod(attempt=1, gate={"running": {}})
        ),
        None,
    ),
    (
        "it is requeued later for another reason",
        make_world(JOB, make_trial(phase="Running", pod="p", rebalanced=way(0)), LEAVES),
        None,
    ),
    ("it is being migrated", suspended(migration=CARRY | {"phase": "Requested"}), "node-3"),
    ("it was migrated", suspended(migration=CARRY | {"phase": "Restored"}), None),
]


@pytest.mark.parametrize(("world", "node"), [o[1:] for o in ON_ITS_WAY], ids=[o[0] for o in ON_ITS_WAY])
def test_the_target_of_a_move(world: World, node: str | None) -> None:
    trial = world.trials[0]
    assert bound_for(trial, observe(world)[trial_key(trial)]) == node
    (seen,) = build_snapshot(world, observe(world)).trials
    assert seen.destination == node
    assert seen.rebalance_count == (1 if trial.status.rebalanced else 0)


@pytest.mark.parametrize(("attempt", "there"), [(0, False), (1, True), (2, False)])
def test_the_new_pod_prefers_its_target(attempt: int, there: bool) -> None:
    trial = SeenTrial.model_validate(make_trial(rebalanced=way()).model_dump(by_alias=True))
    made = new_pod(JOB, trial, attempt, PodRules("podium", "podium.dev/gpu"))
    wish = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]}
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    wanted = {"nodeAffinity": {field: [{"weight": 100, "preference": wish}]}}
    assert made["spec"].get("affinity") == (wanted if there else None)


def test_rebalancing_is_off_by_default() -> None:
    assert Leveller(cast(Api, Cluster(ROOM)), OperatorSettings()).rules is None
    rules = leveller(Cluster(ROOM), rebalancing_min_stay_seconds=60.0).rules
    assert rules is not None
    assert [rules.min_stay_after(moves) for moves in (0, 1, 2)] == [60.0, 120.0, 240.0]
