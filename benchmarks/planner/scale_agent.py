"""An agent's node for bench-scale: the kubelet's limit of pods, each of a trial whose log is still to be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from podium_cluster.client import Api
from podium_cluster.resources import NODES, PODS, TRIALS
from podium_core.schema.metrics.config import METRICS_ANNOTATION
from podium_operator.act.pod_manifest import owner

PODS_A_NODE = 110  # the kubelet's default limit
LINES = 256
METRICS = {"metric": "acc", "direction": "maximize", "stepKey": "epoch", "format": "json", "container": "main"}
Manifest = dict[str, Any]


async def add_node(api: Api, node: str) -> None:
    """Create the Node of the agent; without it the pods would be deleted."""
    await api.create(NODES, {"metadata": {"name": node}}, manager="bench")


async def add_pod(api: Api, node: str, trial: Manifest, logs: Path) -> None:
    """Create the trial, its running pod, and its log."""
    made = await api.create(TRIALS, trial, manager="bench")
    name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
    status = {"phase": "Running", "attempt": 0, "node": node}
    await api.patch(TRIALS, name, namespace, {"status": status}, manager="bench", subresource="status")
    pod = await api.create(PODS, _pod(made, node), manager="bench")
    uid = pod["metadata"]["uid"]
    running = {
        "name": "main",
        "containerID": f"containerd://{uid}",
        "image": "none",
        "imageID": "none",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
    shown = {"status": {"phase": "Running", "containerStatuses": [running]}}
    await api.patch(PODS, pod["metadata"]["name"], namespace, shown, manager="bench", subresource="status")
    folder = logs / f"{namespace}_{pod['metadata']['name']}_{uid}" / "main"
    folder.mkdir(parents=True)
    lines = [
        f"2026-01-01T00:00:00.{step:09}Z stdout F {json.dumps({'epoch': step, 'acc': 1 - 1 / step})}\n"
        for step in range(1, LINES + 1)
    ]
    (folder / "0.log").write_text("".join(lines))


async def is_read(api: Api, trial: Manifest) -> bool:
    """Return whether the agent has reported the last line of the trial's log."""
    there = await api.get(TRIALS, trial["metadata"]["name"], trial["metadata"]["namespace"])
    return bool(there["status"].get("lastStep") == LINES)


async def remove(api: Api, trial: Manifest) -> None:
    """Delete the trial and its pod at once."""
    name, namespace = trial["metadata"]["name"], trial["metadata"]["namespace"]
    await api.delete(PODS, f"{name}-0", namespace, grace_seconds=0)
    await api.delete(TRIALS, name, namespace)


def _pod(trial: Manifest, node: str) -> Manifest:
    name, uid = trial["metadata"]["name"], trial["metadata"]["uid"]
    return {
        "metadata": {
            "name": f"{name}-0",
            "namespace": trial["metadata"]["namespace"],
            "labels": {"podium.dev/job": trial["spec"]["job"], "podium.dev/trial": name, "podium.dev/attempt": "0"},
            "annotations": {METRICS_ANNOTATION: json.dumps(METRICS)},
            "ownerReferences": [owner("HyperParamTrial", name, uid)],
        },
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none"}],
            "tolerations": [{"operator": "Exists"}],
        },
    }
