"""Parts of the pods of a trial that has several workers, and the headless Service that gives them names. Pure.

`pod_manifest` and `actuator` use it. A worker is reached as `<trial>-<rank>.<trial>`: its pod has that hostname, and
the Service that subdomain. The names are the same in every attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import RANK_LABEL, WORKERS_LABEL, HyperParamTrial

Manifest = dict[str, Any]

MASTER_PORT = 29500  # torchrun's own default
# A suspended worker answers nothing, and no limit of a library may end it for that. Podium itself ends the workers of a
# trial that has lost one.
LONGEST_SUSPENSION_SECONDS = 7 * 86400
_HOSTNAME = "kubernetes.io/hostname"


def worker_environment(job: HyperParamJob, trial: HyperParamTrial, rank: int) -> Mapping[str, str]:
    """Return the variables by which the workers find each other; none for a trial of one pod."""
    workers, name = job.spec.trials.workers, trial.metadata.name
    if workers == 1:
        return {}
    return {
        "MASTER_ADDR": f"{name}-0.{name}",
        "MASTER_PORT": str(MASTER_PORT),
        "RANK": str(rank),
        "WORLD_SIZE": str(workers),
        "NODE_RANK": str(rank),
        "NNODES": str(workers),
        "PODIUM_RANK": str(rank),
        "PODIUM_WORKERS": str(workers),
        # the watchdog of PyTorch's NCCL back-end measures by the clock, which does not stop during a suspension
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": str(LONGEST_SUSPENSION_SECONDS),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    }


def worker_labels(job: HyperParamJob, rank: int) -> Mapping[str, str]:
    """Return the labels by which agents and operator know a worker; none for a trial of one pod."""
    workers = job.spec.trials.workers
    return {} if workers == 1 else {RANK_LABEL: str(rank), WORKERS_LABEL: str(workers)}


def make_worker(pod: Manifest, trial: HyperParamTrial, rank: int, label: str) -> None:
    """Give the pod its name in the network, and keep it off the nodes of the trial's other workers.

    `label`: the label with the trial's name.
    """
    name = trial.metadata.name
    pod["hostname"], pod["subdomain"] = f"{name}-{rank}", name
    apart = {"labelSelector": {"matchLabels": {label: name}}, "topologyKey": _HOSTNAME}
    affinity = pod.setdefault("affinity", {}).setdefault("podAntiAffinity", {})
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity[field] = [*(affinity.get(field) or []), apart]


def make_service(trial: HyperParamTrial, label: str, owner: Manifest) -> Manifest:
    """Return the headless Service of the trial.

    A worker resolves the names of the others before it is ready: its gate, and its readiness gate, come after that.
    """
    name = trial.metadata.name
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": trial.metadata.namespace,
            "labels": {label: name},
            "ownerReferences": [owner],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {label: name},
            "ports": [{"name": "master", "port": MASTER_PORT}],
        },
    }
