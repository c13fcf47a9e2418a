"""Kueue on a cluster, built from its Go module, with its own manifests and the feature gate `PriorityBoost`."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from podium_devcluster.artifacts.gomodule import GoModule, program_image
from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime import waiting
from podium_devcluster.shell import CommandError
from podium_devcluster.startup import ClusterError

_PROGRAM, _CONFIG = "manager", "config"
MODULE = GoModule(
    "kueue",
    "sigs.k8s.io/kueue",
    {_PROGRAM: "sigs.k8s.io/kueue/cmd/kueue"},
    seconds=540.0,  # measured; downloads of modules take ten seconds more
    sources=(_CONFIG,),
)
IMAGE = f"localhost/kueue:v{MODULE.version}"
NAMESPACE = "kueue-system"
FEATURE_GATES = ("PriorityBoost=true",)
READY_SECONDS = 180.0
_MANAGER, _SECRET = "kueue-controller-manager", "kueue-webhook-server-cert"
_USER = 65532  # the manifests forbid root, and the image names no user
_POD = "/spec/template/spec/containers/0"
_PROBE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ResourceFlavor",
    "metadata": {"name": "probe-of-podium-devcluster"},
}


def install(cluster: Cluster) -> None:
    """Install Kueue, and wait until its webhooks answer. Another call accepts an installed Kueue."""
    if not cluster.nodes:
        raise ClusterError(f"cluster {cluster.name} has no node that could run Kueue; start it with --nodes 1 or more")
    files = MODULE.ensure(cluster.cache, cluster.progress)
    with cluster.progress.step(f"Kueue {MODULE.version}") as step:
        cluster.load_images([program_image(files, _PROGRAM, IMAGE, cluster.cache)])
        step.detail("manifests")
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=manifests(cluster, files), timeout=120)
        step.detail("certificate")
        _until(
            lambda: waiting.has_certificate(cluster, NAMESPACE, _SECRET),
            "the secret of Kueue's webhooks has a certificate",
        )
        if not answers(cluster):
            # A pod sees a secret that was filled after its start only a minute later; a new pod sees it at once.
            cluster.kubectl("-n", NAMESPACE, "rollout", "restart", f"deployment/{_MANAGER}")
        step.detail("webhooks")
        _until(lambda: answers(cluster), "Kueue's webhooks answer")


def manifests(cluster: Cluster, files: Path) -> str:
    """Return the manifests of the built module for this cluster, as kustomize renders them."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(files / _CONFIG, Path(folder) / "kueue")
        (Path(folder) / "kustomization.yaml").write_text(json.dumps(kustomization(IMAGE)))
        return cluster.kubectl("kustomize", folder, timeout=60)


def kustomization(image: str) -> dict[str, Any]:
    """Return the changes to Kueue's manifests. Pure.

    They name the image and the feature gates, and let Kueue start on a small busy machine.
    """
    changes: list[dict[str, Any]] = [
        {"op": "replace", "path": f"{_POD}/image", "value": image},
        {"op": "add", "path": f"{_POD}/imagePullPolicy", "value": "IfNotPresent"},
        {"op": "add", "path": f"{_POD}/resources", "value": {"requests": {"cpu": "200m", "memory": "128Mi"}}},
        {"op": "add", "path": f"{_POD}/securityContext/runAsUser", "value": _USER},
        {"op": "replace", "path": f"{_POD}/readinessProbe/initialDelaySeconds", "value": 1},
        {"op": "replace", "path": f"{_POD}/readinessProbe/periodSeconds", "value": 1},
        {"op": "add", "path": f"{_POD}/livenessProbe/timeoutSeconds", "value": 20},
        {"op": "add", "path": "/spec/strategy", "value": {"type": "Recreate"}},  # two at a time take twice as long
        {"op": "replace", "path": "/spec/template/spec/terminationGracePeriodSeconds", "value": 1},
        {"op": "add", "path": f"{_POD}/args/-", "value": f"--feature-gates={','.join(FEATURE_GATES)}"},
    ]
    target = {"kind": "Deployment", "name": _MANAGER}
    return {"resources": ["kueue/default"], "patches": [{"target": target, "patch": json.dumps(changes)}]}


def answers(cluster: Cluster) -> bool:
    """Return whether Kueue's CRDs are served and its webhooks admit an object."""
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(_PROBE))
    except CommandError:
        return False
    return True


def _until(ready: Callable[[], bool], what: str) -> None:
    waiting.until(ready, what, READY_SECONDS, hint=f"kubectl -n {NAMESPACE} logs deployment/{_MANAGER}")
