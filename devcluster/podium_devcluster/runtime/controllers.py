"""Kueue, JobSet and Kubeflow Trainer on a cluster: built from their Go modules, with their own manifests."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium_devcluster.artifacts.gomodule import GoModule, program_image
from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime import waiting
from podium_devcluster.shell import CommandError
from podium_devcluster.startup import ClusterError

PROGRAM = "manager"  # the name in the commands of the manifests
READY_SECONDS = 180.0
KUEUE_FEATURE_GATES = ("PriorityBoost=true",)
_POD = "/spec/template/spec/containers/0"
_PROBE_NAME = "probe-of-podium-devcluster"
_PROBE_POD = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "localhost/busybox:1"}]}
_USER = 65532  # the manifests forbid root, and the image names no user


@dataclass(frozen=True, slots=True)
class Controller:
    """What differs between controllers that make the certificate of their webhooks themselves.

    `module`: has the program `manager`, and the manifests as sources; `overlay`: a kustomization that refers to these
    sources; `deployment`, `secret`: where the controller runs, and has its certificate; `probe`: an object that the
    webhooks admit; `changes`: JSON patches of the deployment, beyond those that every controller gets; `requires`: what
    is installed before.
    """

    title: str
    module: GoModule
    overlay: Mapping[str, Any]
    namespace: str
    deployment: str
    secret: str
    probe: Mapping[str, Any]
    changes: Sequence[Mapping[str, Any]] = ()
    requires: Controller | None = None

    @property
    def image(self) -> str:
        """Return the name of the image."""
        return f"localhost/{self.module.name}:v{self.module.version}"

    def install(self, cluster: Cluster) -> None:
        """Install the controller, and wait until its webhooks answer. Another call accepts an installed one."""
        if not cluster.nodes:
            raise ClusterError(
                f"cluster {cluster.name} has no node that could run {self.title}; start it with --nodes 1 or more"
            )
        if self.requires is not None:
            self.requires.install(cluster)
        files = self.module.ensure(cluster.cache, cluster.progress)
        with cluster.progress.step(f"{self.title} {self.module.version}") as step:
            cluster.load_images([program_image(files, PROGRAM, self.image, cluster.cache)])
            step.detail("manifests")
            cluster.kubectl("apply", "--server-side", "-f", "-", stdin=self.manifests(cluster, files), timeout=120)
            step.detail("certificate")
            self._until(
                lambda: waiting.has_certificate(cluster, self.namespace, self.secret),
                f"the secret of {self.title}'s webhooks has a certificate",
            )
            if not self.answers(cluster):
                # A pod sees a secret that was filled after its start only a minute later; a new pod sees it at once.
                cluster.kubectl("-n", self.namespace, "rollout", "restart", f"deployment/{self.deployment}")
            step.detail("webhooks")
            self._until(lambda: self.answers(cluster), f"{self.title}'s webhooks answer")

    def manifests(self, cluster: Cluster, files: Path) -> str:
        """Return the manifests of the built module for this cluster, as kustomize renders them."""
        with tempfile.TemporaryDirectory() as folder:
            for source in self.module.sources:
                shutil.copytree(files / source, Path(folder) / source)
            (Path(folder) / "kustomization.yaml").write_text(json.dumps(self.kustomization()))
            return cluster.kubectl("kustomize", folder, timeout=60)

    def kustomization(self) -> dict[str, Any]:
        """Return the overlay with the image, and with what lets the controller start on a small busy machine."""
        changes: list[Mapping[str, Any]] = [
            {"op": "replace", "path": f"{_POD}/image", "value": self.image},
            {"op": "add", "path": f"{_POD}/imagePullPolicy", "value": "IfNotPresent"},
            {"op": "add", "path": f"{_POD}/resources", "value": {"requests": {"cpu": "200m", "memory": "128Mi"}}},
            {"op": "add", "path": f"{_POD}/securityContext/runAsUser", "value": _USER},
            {"op": "replace", "path": f"{_POD}/readinessProbe/initialDelaySeconds", "value": 1},
            {"op": "replace", "path": f"{_POD}/readinessProbe/periodSeconds", "value": 1},
            {"op": "add", "path": f"{_POD}/livenessProbe/timeoutSeconds", "value": 20},
            {"op": "add", "path": "/spec/strategy", "value": {"type": "Recreate"}},  # two at a time take twice as long
            {"op": "add", "path": "/spec/template/spec/terminationGracePeriodSeconds", "value": 1},
            *self.changes,
        ]
        target = {"kind": "Deployment", "name": self.deployment}
        return {**self.overlay, "patches": [{"target": target, "patch": json.dumps(changes)}]}

    def answers(self, cluster: Cluster) -> bool:
        """Return whether the CRDs are served and the webhooks admit an object."""
        try:
            cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(self.probe))
        except CommandError:
            return False
        return True

    def _until(self, ready: Callable[[], bool], what: str) -> None:
        hint = f"kubectl -n {self.namespace} logs deployment/{self.deployment}"
        waiting.until(ready, what, READY_SECONDS, hint=hint)


KUEUE = Controller(
    "Kueue",
    GoModule(
        "kueue",
        "sigs.k8s.io/kueue",
        {PROGRAM: "sigs.k8s.io/kueue/cmd/kueue"},
        seconds=540.0,  # measured; downloads of modules take ten seconds more
        sources=("config",),
    ),
    overlay={"resources": ["config/default"]},
    namespace="kueue-system",
    deployment="kueue-controller-manager",
    secret="kueue-webhook-server-cert",
    probe={"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": _PROBE_NAME}},
    changes=({"op": "add", "path": f"{_POD}/args/-", "value": f"--feature-gates={','.join(KUEUE_FEATURE_GATES)}"},),
)
JOBSET = Controller(
    "JobSet",
    GoModule("jobset", "sigs.k8s.io/jobset", {PROGRAM: "sigs.k8s.io/jobset"}, seconds=340.0, sources=("config",)),
    overlay={"resources": ["config/default"]},
    namespace="jobset-system",
    deployment="jobset-controller-manager",
    secret="jobset-webhook-server-cert",
    probe={
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": _PROBE_NAME, "namespace": "default"},
        "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": _PROBE_POD}}}}]},
    },
)
_TRAINER = "github.com/kubeflow/trainer/v2"
_TRAINER_SECRET = "kubeflow-trainer-webhook-cert"
TRAINER = Controller(
    "Kubeflow Trainer",
    GoModule(
        "trainer",
        _TRAINER,
        {PROGRAM: f"{_TRAINER}/cmd/trainer-controller-manager"},
        seconds=200.0,
        sources=("manifests",),
    ),
    # like the Trainer's overlay `manager`, which also takes JobSet from the web
    overlay={
        "namespace": "kubeflow-system",
        "resources": [
            "manifests/overlays/manager/namespace.yaml",
            *(f"manifests/base/{part}" for part in ("crds", "manager", "rbac", "webhook")),
        ],
        "secretGenerator": [{"name": _TRAINER_SECRET, "options": {"disableNameSuffixHash": True}}],
    },
    namespace="kubeflow-system",
    deployment="kubeflow-trainer-controller-manager",
    secret=_TRAINER_SECRET,
    probe={
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": _PROBE_NAME},
        "spec": {
            "template": {
                "spec": {
                    "replicatedJobs": [
                        {
                            "name": "node",
                            "template": {
                                "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                                "spec": {"template": {"spec": _PROBE_POD}},
                            },
                        }
                    ]
                }
            }
        },
    },
    requires=JOBSET,
)
BY_COMMAND = {controller.module.name: controller for controller in (KUEUE, JOBSET, TRAINER)}
