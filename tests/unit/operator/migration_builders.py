"""Cluster states in which a trial migrates from node-1 to node-2. Used by act/test_migration*.py."""

from __future__ import annotations

from typing import Any

from operator_builders import NOW, make_cluster_state, make_job, make_node, make_trial, moment, pod_payload

from podium_core.domain.actions import Migrate
from podium_core.domain.migration import CONTAINER_CHECKPOINT
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.trial import Migration
from podium_operator.act.migration import MigrationNews, migrations_to_store
from podium_operator.observe.cluster_state import ClusterState, trial_key
from podium_operator.observe.observation import observe
from podium_operator.observe.pod_state import PodState, parse_pod

OLD, NEW = "uid-sweep-0-0", "uid-sweep-0-1"
IMAGE, GPU_STATE = (
    "registry:5000/podium-checkpoints/lab/sweep-0-0@sha256:" + "1" * 64,
    '{"gpus":{"GPU-1":4},"processes":1}',
)
MIGRATABLE = {"suspension": {"methods": ["cuda-checkpoint", CONTAINER_CHECKPOINT]}, "gpus": {"memory": "8Gi"}}
IMAGE_ANSWER = {"podUid": OLD, "image": IMAGE, "gpuState": GPU_STATE}
REFUSED = {"podUid": OLD, "code": "RegistryUnreachable", "message": "connection refused"}
RUNNING_POD: dict[str, Any] = {"phase": "Running", "gate": {"terminated": {"exitCode": 0}}, "main": {"running": {}}}
STUCK = RUNNING_POD | {
    "phase": "Pending",
    "main": {"waiting": {"reason": "CreateContainerError", "message": "no CRIU"}},
}
PULLING = RUNNING_POD | {"phase": "Pending", "main": {"waiting": {"reason": "ErrImagePull", "message": "again"}}}
READ_CURSOR = {"podUid": NEW, "step": 12.0}


def migration_status(phase: str, since: float = 0.0, **more: Any) -> dict[str, Any]:
    stored = {
        "phase": phase,
        "since": moment(since),
        "podUid": OLD,
        "attempt": 1,
        "sourceNode": "node-1",
        "targetNode": "node-2",
    }
    return {"migration": stored | more}


def rebalancing_status(phase: str, **more: Any) -> dict[str, Any]:
    return migration_status(phase, reason="Rebalancing", **more)


PUSHED = migration_status("ImagePushed", image=IMAGE, gpuState=GPU_STATE)


def pod(attempt: int = 0, *, migrate_to: str = "", migrated: bool = False, **how: Any) -> PodState:
    payload = pod_payload(attempt=attempt, node=f"node-{attempt + 1}", **{**RUNNING_POD, **how})
    named = {"podium.dev/migrate": migrate_to, "podium.dev/migrated": "node-1" if migrated else ""}
    payload["metadata"]["annotations"] = {name: value for name, value in named.items() if value}
    return parse_pod(payload)


def node(draining: bool = True) -> GPUNode:
    made = make_node(trials={"sweep-0": "Suspended"})
    about = {"methods": ["freeze", "cuda-checkpoint", CONTAINER_CHECKPOINT]}
    return made.model_copy(
        update={
            "spec": made.spec.model_copy(update={"draining": draining}),
            "status": made.status.model_copy(update=about),
        }
    )


def cluster(
    *pods: PodState, draining: bool = True, target: bool = True, now: float = NOW, **status: Any
) -> ClusterState:
    trial = make_trial(**{"phase": "Suspended", "pod": "sweep-0-0", "node": "node-1", **status})
    nodes = (node(draining), *((make_node("node-2", uuid="GPU-2"),) if target else ()))
    return make_cluster_state(make_job(**MIGRATABLE), trial, *nodes, *pods, now=now)


def next_migration(seen: ClusterState, *actions: Migrate, refused: str | None = None) -> Migration | None:
    key = trial_key(seen.trials[0])
    refusals = {} if refused is None else {key: refused}
    news = MigrationNews({action.trial: action for action in actions}, refusals)
    return migrations_to_store(seen, observe(seen), news).get(key)


def gate_passed_at(seconds: float) -> dict[str, Any]:
    return {"gate": {"terminated": {"exitCode": 0, "finishedAt": moment(seconds)}}}


NEW_POD = pod(1, migrated=True)
REJECTED = pod(1, migrated=True, phase="Failed", gate=None, main=None)
