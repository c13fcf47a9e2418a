"""Writes and reads that a tenant, an agent or a stranger attempts. Each can be repeated, and is a change each time."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, JOBS, LEASES, PODS, TRIALS

CONTAINER = {"name": "main", "image": "none"}
GPUNODE: dict[str, Any] = {"apiVersion": "podium.dev/v1alpha1", "kind": "GPUNode", "spec": {}}
JOB: dict[str, Any] = {
    "apiVersion": "podium.dev/v1alpha1",
    "kind": "HyperParamJob",
    "spec": {
        "objective": {"metric": "acc", "direction": "maximize"},
        "parameters": [{"name": "lr", "min": 0.001, "max": 0.1}],
        "trials": {"max": 3, "parallel": 2, "maxSteps": 10},
        "template": {"spec": {"containers": [CONTAINER]}},
    },
}


@dataclass(frozen=True)
class Site:
    """The namespaces of Podium and of the attacked trial `sweep-0`, and its node."""

    system: str
    victim: str
    node: str


Attack = Callable[[Api, Site], Awaitable[Any]]


def trial(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "podium.dev/v1alpha1",
        "kind": "HyperParamTrial",
        "metadata": {"name": name, "namespace": namespace, "labels": {"podium.dev/job": "sweep"}},
        "spec": {"job": "sweep", "number": int(name.rpartition("-")[2]), "parameters": {"lr": 0.01}},
    }


def pod(namespace: str, name: str, of: str | None) -> dict[str, Any]:
    labels = {} if of is None else {"podium.dev/trial": of, "podium.dev/attempt": "0"}
    meta = {"name": name, "namespace": namespace, "labels": labels, "annotations": {"podium.dev/methods": "freeze"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [CONTAINER]}}


def fresh() -> str:
    return uuid.uuid4().hex[:8]


async def create_pod(api: Api, at: Site) -> None:
    await api.create(PODS, pod(at.victim, f"forged-{fresh()}", "sweep-0"), manager="test")


async def create_reservation(api: Api, at: Site) -> None:
    body = pod(at.victim, f"forged-{fresh()}", None)
    body["metadata"]["labels"] = {"podium.dev/gpu-reservation": "true"}
    await api.create(PODS, body, manager="test")


async def label_pod(api: Api, at: Site) -> None:
    body = pod(at.victim, f"plain-{fresh()}", None)
    await api.create(PODS, body, manager="test")
    change = {"metadata": {"labels": {"podium.dev/trial": "sweep-0"}}}
    await api.patch(PODS, body["metadata"]["name"], at.victim, change, manager="test")


async def relabel_trial_pod(api: Api, at: Site) -> None:
    change = {"metadata": {"labels": {"podium.dev/attempt": fresh()}}}
    await api.patch(PODS, "sweep-0-0", at.victim, change, manager="test")


async def unlabel_trial_pod(api: Api, at: Site) -> None:
    """Remove one label of several; the operator gives it back, so that the attack can be repeated."""
    change = {"metadata": {"labels": {"podium.dev/attempt": None}}}
    await api.patch(PODS, "sweep-0-0", at.victim, change, manager="test")
    await api.patch(PODS, "sweep-0-0", at.victim, {"metadata": {"labels": {"podium.dev/attempt": "0"}}}, manager="test")


async def ask_for_migration(api: Api, at: Site) -> None:
    change = {"metadata": {"annotations": {"podium.dev/migrate": fresh()}}}
    await api.patch(PODS, "sweep-0-0", at.victim, change, manager="test")


async def change_methods(api: Api, at: Site) -> None:
    change = {"metadata": {"annotations": {"podium.dev/methods": fresh()}}}
    await api.patch(PODS, "sweep-0-0", at.victim, change, manager="test")


async def create_trial(api: Api, at: Site) -> None:
    await api.create(TRIALS, trial(at.victim, f"sweep-{uuid.uuid4().int % 10**6}"), manager="test")


async def relabel_trial(api: Api, at: Site) -> None:
    change = {"metadata": {"labels": {"podium.dev/job-uid": fresh()}}}
    await api.patch(TRIALS, "sweep-0", at.victim, change, manager="test")


async def rank_trial(api: Api, at: Site) -> None:
    await write_status(api, at, {"rank": uuid.uuid4().int % 1000})


async def end_trial(api: Api, at: Site) -> None:
    await write_status(api, at, {"message": fresh()})


async def forge_image(api: Api, at: Site) -> None:
    answer = {"podUid": fresh(), "image": "evil.example/miner:1"}
    await write_status(api, at, {"containerCheckpoint": answer})


async def forge_node(api: Api, at: Site) -> None:
    await write_status(api, at, {"nodes": [fresh()]})


async def report(api: Api, at: Site) -> None:
    await write_status(api, at, {"gpuSeconds": float(uuid.uuid4().int % 10**6), "logCursor": {"podUid": fresh()}})


async def write_status(api: Api, at: Site, status: dict[str, Any]) -> None:
    await api.patch(TRIALS, "sweep-0", at.victim, {"status": status}, manager="test", subresource="status")


async def accept_job(api: Api, at: Site) -> None:
    change = {"status": {"observedGeneration": uuid.uuid4().int % 10**6}}
    await api.patch(JOBS, "sweep", at.victim, change, manager="test", subresource="status")


async def queue_trial(api: Api, at: Site) -> None:
    epoch = time.monotonic_ns()  # it must not decrease
    await api.patch(GPUNODES, at.node, None, {"spec": {"epoch": epoch}}, manager="test")


async def forge_heartbeat(api: Api, at: Site) -> None:
    about = {"name": f"podium-agent-{at.node}", "namespace": at.system}
    await api.apply(LEASES, {"metadata": about, "spec": {"holderIdentity": fresh()}}, manager="test")


async def forge_condition(api: Api, at: Site) -> None:
    entry = {"type": "podium.dev/Suspended", "status": "False", "reason": "Running", "message": fresh()}
    change = {"status": {"conditions": [entry]}}
    await api.strategic_patch(PODS, "sweep-0-0", at.victim, change, manager="test", subresource="status")


async def read_trial(api: Api, at: Site) -> None:
    await api.get(TRIALS, "sweep-0", at.victim)


async def list_gpus(api: Api, at: Site) -> None:
    await api.list(GPUNODES)
