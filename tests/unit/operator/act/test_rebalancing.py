"""Rebalancing, the operator's part: which trials may move, what is stored, which node the new pod prefers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from operator_builders import (
    NOW,
    ended,
    make_cluster_state,
    make_job,
    make_node,
    make_pod,
    make_trial,
    moment,
    pod_payload,
)

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import NODES, PODS, Resource
from podium_core.domain.actions import Action, DeletePod, Migrate, Requeue
from podium_core.domain.rebalancing import REBALANCING
from podium_operator.act.actuator import Actuator
from podium_operator.act.pod_manifest import PodRules
from podium_operator.act.pod_manifest import make_pod as new_pod
from podium_operator.act.rebalancing import ECHO_SECONDS, RECHECK_SECONDS, Rebalancer, chosen_node
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState, trial_key
from podium_operator.observe.observation import observe
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.report.trial_status import TrialReport, trial_status
from podium_operator.settings import OperatorSettings

RUNNING_POD: dict[str, Any] = {"phase": "Running", "gate": ended(0), "main": {"running": {}}}
CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "9"}
JOB = make_job()


class FakeServer:
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


def rebalancer(server: FakeServer, **settings: Any) -> Rebalancer:
    return Rebalancer(cast(Api, server), OperatorSettings(rebalancing=True, **settings))


def suspended(**status: Any) -> ClusterState:
    trial = make_trial(phase="Suspended", pod="sweep-0-0", node="node-1", **status)
    nodes = make_node(trials={"sweep-0": "Suspended"}), make_node("node-2", uuid="GPU-2")
    return make_cluster_state(JOB, trial, make_pod(**RUNNING_POD), *nodes)


def move(cluster: ClusterState, target: str = "node-2") -> Requeue:
    return Requeue(trial_key(cluster.trials[0]), REBALANCING, "fewer there", target)


def admit(one: Rebalancer, cluster: ClusterState, *actions: Action) -> tuple[Action, ...]:
    return asyncio.run(one.admit(cluster, observe(cluster), actions))


BUSY = {"metadata": {}, "spec": {"containers": [{"resources": {"requests": {"cpu": "3"}}}]}}
SERVERS: list[tuple[str, FakeServer, bool]] = [
    ("room", FakeServer(CAPACITY), True),
    ("no CPUs", FakeServer(CAPACITY, [BUSY]), False),
    ("the server is unreachable", FakeServer(CAPACITY, away=True), False),
    ("a node that cannot be parsed", FakeServer({"cpu": cast(str, None)}), False),
    ("CPUs that cannot be parsed", FakeServer(CAPACITY | {"cpu": "many"}), False),
]


@pytest.mark.parametrize(("server", "goes"), [c[1:] for c in SERVERS], ids=[c[0] for c in SERVERS])
@pytest.mark.parametrize("migratable", [False, True])
def test_trials_move_only_to_a_node_with_capacity(server: FakeServer, goes: bool, migratable: bool) -> None:
    cluster, one = suspended(), rebalancer(server)
    asked: Action = move(cluster)
    if migratable:
        asked = Migrate(trial_key(cluster.trials[0]), "node-2", REBALANCING, "fewer there")
    others: tuple[Action, ...] = (
        DeletePod(asked.trial, "TrialEnded", "over"),
        Requeue(asked.trial, "NodeDraining", "it drains"),
        Migrate(asked.trial, "node-2", "NodeDraining", "it drains"),
    )
    assert admit(one, cluster, *others, asked) == (*others, *([asked] if goes else []))
    place = (JOB.metadata.namespace, JOB.metadata.name), "node-2"
    assert set(one.full_nodes(NOW)) == (set() if goes else {place})
    assert not one.full_nodes(NOW + RECHECK_SECONDS), "it is asked again"


@pytest.mark.parametrize("migratable", [False, True])
def test_no_other_trial_moves_before_the_cache_shows_the_last_move(migratable: bool) -> None:
    first, second = (make_trial(i, phase="Suspended", pod=f"sweep-{i}-0", node="node-1") for i in range(2))
    pods = (make_pod(**RUNNING_POD), make_pod("sweep-1", **RUNNING_POD))
    nodes = make_node(trials={"sweep-0": "Suspended", "sweep-1": "Suspended"}), make_node("node-2", uuid="GPU-2")
    cluster, one = make_cluster_state(JOB, first, second, *pods, *nodes), rebalancer(FakeServer(CAPACITY))
    moves: list[Action] = [
        Migrate(trial_key(trial), "node-2", REBALANCING, "fewer")
        if migratable
        else Requeue(trial_key(trial), REBALANCING, "fewer", "node-2")
        for trial in cluster.trials
    ]
    assert admit(one, cluster, moves[0]) == (moves[0],)
    assert admit(one, cluster, moves[1]) == ()
    assert admit(one, cluster, moves[0]) == (moves[0],), "it may be requeued again"
    later = replace(cluster, now=cluster.now + ECHO_SECONDS)
    assert admit(one, later, moves[1]) == (moves[1],)
    assert admit(rebalancer(FakeServer(CAPACITY)), cluster, *moves) == tuple(moves), "two of one plan do not conflict"


def test_an_unreadable_template_does_not_affect_other_jobs() -> None:
    template = {"spec": {**JOB.spec.template["spec"], "tolerations": [{"key": {}}]}}
    odd, seen = make_job(template=template), suspended()
    cluster = make_cluster_state(odd, *seen.trials, *seen.pods, *seen.nodes)
    assert admit(rebalancer(FakeServer(CAPACITY)), cluster, move(cluster)) == ()


def test_a_move_within_a_node_is_not_checked() -> None:
    cluster, server = suspended(), FakeServer({})
    assert admit(rebalancer(server), cluster, move(cluster, "node-1"))
    assert server.asked == []


def test_a_move_is_repeated_until_the_status_shows_it_and_counted_once() -> None:
    cluster, one = suspended(), rebalancer(FakeServer(CAPACITY))
    admit(one, cluster, move(cluster))
    move_stored = one.moves_to_store(cluster)[trial_key(cluster.trials[0])]
    assert (move_stored.source_node, move_stored.target_node, move_stored.attempt, move_stored.count) == (
        "node-1",
        "node-2",
        1,
        1,
    )
    assert one.moves_to_store(cluster) == {trial_key(cluster.trials[0]): move_stored}, (
        "the write was refused: once more"
    )
    written = trial_status(
        cluster.trials[0], JOB, observe(cluster)[trial_key(cluster.trials[0])], TrialReport(rebalanced=move_stored), NOW
    )
    shown = suspended(rebalanced=written["rebalanced"])
    assert one.moves_to_store(shown) == {trial_key(shown.trials[0]): move_stored}
    admit(one, shown, move(shown, "node-3"))
    again = one.moves_to_store(shown)[trial_key(shown.trials[0])]
    assert (again.target_node, again.attempt, again.count) == ("node-3", 1, 1), "its pod was not deleted the first time"
    later = suspended(rebalanced=written["rebalanced"] | {"attempt": 0})
    admit(one, later, move(later))
    assert one.moves_to_store(later)[trial_key(later.trials[0])].count == 2
    assert one.moves_to_store(make_cluster_state(JOB)) == {}


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

    cluster, one, api = suspended(), rebalancer(FakeServer(CAPACITY)), cast(Api, Wire())
    actuator = Actuator(api, WatchCaches(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
    for _ in range(2):  # the second time it is not even tried
        asyncio.run(actuator.write_run_queues(cluster, admit(one, cluster, move(cluster))))
        assert len(one.moves_to_store(cluster, actuator.undeleted())) == moves


def test_a_pod_whose_deletion_is_in_backoff_is_not_checked_but_still_requeued() -> None:
    cluster, server = suspended(), FakeServer(CAPACITY)
    one, kept = rebalancer(server), {cluster.pods[0].uid}
    assert asyncio.run(one.admit(cluster, observe(cluster), [move(cluster)], kept)) == (move(cluster),)
    assert server.asked == []
    assert one.moves_to_store(cluster) == {}


def rebalancing_status(attempt: int = 1) -> dict[str, Any]:
    return {"at": moment(), "sourceNode": "node-1", "targetNode": "node-2", "attempt": attempt, "count": 1}


MIGRATION = {"since": moment(), "podUid": "uid-sweep-0-0", "attempt": 1, "sourceNode": "node-1", "targetNode": "node-3"}
TERMINATING_POD = make_pod(**RUNNING_POD, deleting=True)
TARGETS: list[tuple[str, ClusterState, str | None]] = [
    ("it stays", suspended(), None),
    ("requeued, not yet being deleted", suspended(rebalanced=rebalancing_status()), None),
    (
        "it leaves",
        make_cluster_state(JOB, make_trial(phase="Running", pod="p", rebalanced=rebalancing_status()), TERMINATING_POD),
        "node-2",
    ),
    (
        "it waits for a pod",
        make_cluster_state(JOB, make_trial(phase="Requeued", pod="p", rebalanced=rebalancing_status())),
        "node-2",
    ),
    (
        "its pod starts",
        make_cluster_state(
            JOB, make_trial(phase="Pending", attempt=1, rebalanced=rebalancing_status()), make_pod(attempt=1)
        ),
        "node-2",
    ),
    (
        "it has moved",
        make_cluster_state(
            JOB,
            make_trial(phase="Gated", attempt=1, rebalanced=rebalancing_status()),
            make_pod(attempt=1, gate={"running": {}}),
        ),
        None,
    ),
    (
        "it is requeued later for another reason",
        make_cluster_state(
            JOB, make_trial(phase="Running", pod="p", rebalanced=rebalancing_status(0)), TERMINATING_POD
        ),
        None,
    ),
    ("it is being migrated", suspended(migration=MIGRATION | {"phase": "Requested"}), "node-3"),
    ("it was migrated", suspended(migration=MIGRATION | {"phase": "Restored"}), None),
]


@pytest.mark.parametrize(("cluster", "node"), [o[1:] for o in TARGETS], ids=[o[0] for o in TARGETS])
def test_the_target_of_a_move(cluster: ClusterState, node: str | None) -> None:
    trial = cluster.trials[0]
    assert chosen_node(trial, observe(cluster)[trial_key(trial)]) == node
    (seen,) = build_snapshot(cluster, observe(cluster)).trials
    assert seen.relocation.destination == node
    assert seen.relocation.rebalance_count == (1 if trial.status.rebalanced else 0)


@pytest.mark.parametrize(("attempt", "there"), [(0, False), (1, True), (2, False)])
def test_the_new_pod_prefers_its_target(attempt: int, there: bool) -> None:
    trial = make_trial(rebalanced=rebalancing_status())
    made = new_pod(JOB, trial, attempt, PodRules("podium", "podium.dev/gpu"))
    pool_demand = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]}
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    wanted = {"nodeAffinity": {field: [{"weight": 100, "preference": pool_demand}]}}
    assert made["spec"].get("affinity") == (wanted if there else None)


def test_rebalancing_is_off_by_default() -> None:
    assert Rebalancer(cast(Api, FakeServer(CAPACITY)), OperatorSettings()).rules is None
    rules = rebalancer(FakeServer(CAPACITY), rebalancing_min_stay_seconds=60.0).rules
    assert rules is not None
    assert [rules.min_stay_after(moves) for moves in (0, 1, 2)] == [60.0, 120.0, 240.0]
