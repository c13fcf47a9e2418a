"""Short builders of API objects for the operator's tests: a test names only what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from podium_cluster.client import Api
from podium_core.domain.actions import Action, EndTrial
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.gpuqueue import GPUQueue
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import pod_name
from podium_operator.act.actuator import Actuator
from podium_operator.act.pod_manifest import PodRules, owner
from podium_operator.act.rebalancing import Rebalancer
from podium_operator.cleanup.deleted_jobs import Cleanup
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.final_log_read import FinalLogReader
from podium_operator.observe.pod_state import PodState, parse_pod
from podium_operator.observe.trial_state import TrialState, parse_trial
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.queues.controller import QueueController
from podium_operator.reconciler import Actors, Reconciler
from podium_operator.report.status_writer import StatusWriter
from podium_operator.reservations.controller import ReservationController
from podium_operator.settings import OperatorSettings

NOW = 1_760_000_000.0
UUID = "GPU-1"
REGISTRY = "registry:5000"


def moment(seconds: float = 0.0) -> str:
    """Return the time `seconds` after NOW."""
    return datetime.fromtimestamp(NOW + seconds, UTC).isoformat().replace("+00:00", "Z")


def accepted(status: str = "True", generation: int = 1) -> dict[str, Any]:
    return {
        "type": "Accepted",
        "status": status,
        "reason": "Valid" if status == "True" else "InvalidFilter",
        "message": "said so",
        "observedGeneration": generation,
        "lastTransitionTime": moment(),
    }


def job_manifest(name: str = "sweep", **spec: Any) -> dict[str, Any]:
    """Return a job manifest; keywords replace fields of the spec, a container is `main: busybox`."""
    whole: dict[str, Any] = {
        "objective": {"metric": "acc", "direction": "maximize"},
        "parameters": [{"name": "lr", "min": 0.001, "max": 0.1, "scale": "log"}],
        "trials": {"max": 3, "parallel": 2, "maxSteps": 10},
        "template": {"spec": {"containers": [{"name": "main", "image": "localhost/busybox:1", "command": ["true"]}]}},
    }
    return {
        "apiVersion": "podium.dev/v1alpha1",
        "kind": "HyperParamJob",
        "metadata": {"name": name, "namespace": "lab"},
        "spec": whole | spec,
    }


def make_job(
    name: str = "sweep",
    *,
    status: Mapping[str, Any] | None = None,
    generation: int = 1,
    uid: str | None = None,
    **spec: Any,
) -> HyperParamJob:
    manifest = job_manifest(name, **spec)
    manifest["metadata"] |= {"uid": uid or f"uid-{name}", "generation": generation, "creationTimestamp": moment()}
    manifest["status"] = {"conditions": [accepted()], **(status or {})}
    return HyperParamJob.model_validate(manifest)


def make_trial(
    number: int = 0, *, job: str = "sweep", parameters: Mapping[str, Any] | None = None, **status: Any
) -> TrialState:
    name = f"{job}-{number}"
    return parse_trial(
        {
            "metadata": {
                "name": name,
                "namespace": "lab",
                "uid": f"uid-{name}",
                "creationTimestamp": moment(),
                "labels": {"podium.dev/job": job, "podium.dev/job-uid": f"uid-{job}"},
            },
            "spec": {"job": job, "number": number, "parameters": dict(parameters or {"lr": 0.01})},
            "status": status,
        },
        REGISTRY,
    )


def pod_payload(
    trial: str = "sweep-0",
    *,
    attempt: int = 0,
    phase: str = "Pending",
    node: str | None = "node-1",
    gate: Mapping[str, Any] | None = None,
    main: Mapping[str, Any] | None = None,
    gated: bool = True,
    deleting: bool = False,
    created: float = 0.0,
    rank: int = 0,
    workers: int = 1,
    **status: Any,
) -> dict[str, Any]:
    """Return a pod as the API serves it; `created` is in seconds after NOW.

    `rank`: of its worker, if there are several. `gate` and `main` are container states: {"running": {}},
    {"terminated": {...}} or {"waiting": {...}}.
    """
    whole: dict[str, Any] = {"phase": phase, **status}
    if gate is not None:
        whole["initContainerStatuses"] = [{"name": "podium-gate", "state": dict(gate)}]
    if main is not None:
        whole["containerStatuses"] = [{"name": "main", "state": dict(main)}]
    spec: dict[str, Any] = {"containers": [{"name": "main"}]}
    if gated:
        spec["initContainers"] = [{"name": "podium-gate"}]
    if node is not None:
        spec["nodeName"] = node
    metadata: dict[str, Any] = {
        "name": pod_name(trial, attempt, rank),
        "namespace": "lab",
        "uid": f"uid-{pod_name(trial, attempt, rank)}",
        "creationTimestamp": moment(created),
        "labels": {
            "podium.dev/job": trial.rpartition("-")[0],
            "podium.dev/trial": trial,
            "podium.dev/attempt": str(attempt),
            **({"podium.dev/rank": str(rank), "podium.dev/workers": str(workers)} if workers > 1 else {}),
        },
        "ownerReferences": [owner("HyperParamTrial", trial, f"uid-{trial}")],
    }
    if deleting:
        metadata["deletionTimestamp"] = moment()
    return {"metadata": metadata, "spec": spec, "status": whole}


def make_pod(trial: str = "sweep-0", **how: Any) -> PodState:
    return parse_pod(pod_payload(trial, **how))


def ended(code: int, *, after: float = 0.0, reason: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": moment(after)}}


def make_node(
    name: str = "node-1",
    *,
    uuid: str = UUID,
    slots: int = 4,
    trials: Mapping[str, str] | None = None,
    holder: str | None = None,
    order: Sequence[str] = (),
    epoch: int = 1,
    health: str = "Healthy",
    rank: int = 0,
) -> GPUNode:
    """Return a GPUNode; `trials` maps a trial's name to the agent's state of its pod of attempt 0 and this rank."""
    there = [
        {
            "namespace": "lab",
            "trial": trial,
            "uid": f"uid-{trial}",
            "pod": pod_name(trial, 0, rank),
            "podUID": f"uid-{pod_name(trial, 0, rank)}",
            "state": state,
            "since": moment(),
        }
        for trial, state in (trials or {}).items()
    ]
    gpu: dict[str, Any] = {"uuid": uuid, "index": 0, "health": health, "slots": slots, "trials": there}
    if holder is not None:
        gpu["holder"] = {"namespace": "lab", "trial": holder, "uid": f"uid-{holder}", "since": moment()}
    entries = [{"namespace": "lab", "trial": trial, "uid": f"uid-{trial}"} for trial in order]
    return GPUNode.model_validate(
        {
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {"epoch": epoch, "gpus": [{"uuid": uuid, "runQueue": entries}]},
            "status": {"gpus": [gpu]},
        }
    )


def make_cluster_state(
    *objects: HyperParamJob | TrialState | PodState | GPUNode | GPUQueue,
    now: float = NOW,
    unresponsive: Sequence[str] = (),
) -> ClusterState:
    return ClusterState(
        now=now,
        jobs=tuple(o for o in objects if isinstance(o, HyperParamJob)),
        trials=tuple(o for o in objects if isinstance(o, TrialState)),
        pods=tuple(o for o in objects if isinstance(o, PodState)),
        nodes=tuple(o for o in objects if isinstance(o, GPUNode)),
        unresponsive=frozenset(unresponsive),
        queues=tuple(o for o in objects if isinstance(o, GPUQueue)),
    )


async def carry_out(actuator: Actuator, cluster: ClusterState, actions: Iterable[Action]) -> tuple[EndTrial, ...]:
    """Run both halves of a reconcile; return trials that ended because they cannot be started."""
    actions = tuple(actions)
    await actuator.write_run_queues(cluster, actions)
    return await actuator.create(cluster, actions)


def make_reconciler(api: Api, caches: WatchCaches, settings: OperatorSettings, metrics: Metrics) -> Reconciler:
    """Return the reconciler with all of its parts, as `main` assembles it."""
    actors = Actors(
        Actuator(api, caches, PodRules("podium", "podium.dev/gpu"), metrics),
        Cleanup(api, caches.cluster_state, None),
        ReservationController(api, settings, metrics),
        Rebalancer(api, settings),
        QueueController(api, settings.status_seconds, metrics),
    )
    return Reconciler(settings, caches, FinalLogReader(api), actors, StatusWriter(api, 2.0, metrics), metrics)
