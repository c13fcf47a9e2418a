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
RANK_VARIABLES = ("RANK", "NODE_RANK", "PODIUM_RANK")
_HOSTNAME = "kubernetes.io/hostname"


def worker_environment(job: HyperParamJob, trial: HyperParamTrial, rank: int) -> Mapping[str, str]:
    """Return the variables by which the workers find each other; none for a trial of one pod."""
    name = trial.metadata.name
    if job.spec.trials.workers == 1 or job.spec.workload is not None:
        return {}
    ranks = dict.fromkeys(RANK_VARIABLES, str(rank))
    return {**group_environment(job.spec.trials.workers, f"{name}-0.{name}"), **ranks}


def group_environment(workers: int, master: str) -> Mapping[str, str]:
    """Return the variables that are the same in all workers of a trial. `master`: host name of worker 0."""
    return {
        "MASTER_ADDR": master,
        "MASTER_PORT": str(MASTER_PORT),
        "WORLD_SIZE": str(workers),
        "NNODES": str(workers),
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
    keep_apart(pod, name, label)


def keep_apart(pod: Manifest, name: str, label: str) -> None:
    """Keep a worker off the nodes of the other workers of trial `name`."""
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
