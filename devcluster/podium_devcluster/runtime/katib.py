"""Katib on a cluster with DNS, with its own manifests and a PostgreSQL server beside the control plane."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from podium_devcluster.artifacts import katib
from podium_devcluster.artifacts.debian import install_packages
from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime import dns, waiting
from podium_devcluster.runtime.controlplane import inside
from podium_devcluster.runtime.network import CONTROL_PLANE_IP, netns_path
from podium_devcluster.shell import CommandError, run
from podium_devcluster.startup import ENVIRONMENT, ClusterError

NAMESPACE = "kubeflow"
DEPLOYMENTS = (katib.CONTROLLER, katib.DB_MANAGER)
INJECTION = "katib.kubeflow.org/metrics-collector-injection"  # label of a namespace with trials
READY_SECONDS = 180.0
DATABASE = "katib-database"  # its process and its log
_COMPONENTS = ("controller", "crd", "db-manager", "webhook")
_SECRET = "katib-webhook-cert"
_POD = "/spec/template/spec/containers/0"
_SERVERS = Path("/usr/lib/postgresql")
# Katib's defaults ask for ephemeral storage, which the nodes do not announce; -1 switches that off
_RESOURCES = {
    "limits": {"ephemeral-storage": "-1", "memory": "256Mi"},
    "requests": {"ephemeral-storage": "-1", "cpu": "10m", "memory": "10Mi"},
}
_PROBE = {
    "apiVersion": "kubeflow.org/v1beta1",
    "kind": "Experiment",
    "metadata": {"name": "probe-of-podium-devcluster", "namespace": NAMESPACE},
}


def install(cluster: Cluster) -> None:
    """Install Katib, and wait until it answers. The cluster needs `KubeletSettings(dns=True)`."""
    if not cluster.spec.kubelet.dns:
        raise ClusterError(
            f"cluster {cluster.name} has no DNS, and Katib's parts call each other by name; start it with it"
        )
    dns.install(cluster)
    files = katib.ensure(cluster.cache, cluster.progress)
    start_database(cluster)
    with cluster.progress.step(f"Katib {files.version}") as step:
        cluster.load_images(files.archives)
        step.detail("manifests")
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(namespace))
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=manifests(cluster, files), timeout=120)
        step.detail("certificate")
        _until(
            lambda: waiting.has_certificate(cluster, NAMESPACE, _SECRET),
            "the secret of Katib's webhooks has a certificate",
        )
        # a pod sees a secret that was filled after its start only a minute later; a new pod sees it at once
        cluster.kubectl("-n", NAMESPACE, "rollout", "restart", f"deployment/{katib.CONTROLLER}")
        step.detail("rollout")
        wait(cluster)
        _until(lambda: _answers(cluster), "Katib's webhooks answer")
        inject(cluster, True)


def scale(cluster: Cluster, replicas: int) -> None:
    """Set the replicas of all of Katib's deployments, and wait until they have them."""
    if not replicas:
        inject(cluster, False)
    for name in DEPLOYMENTS:
        cluster.kubectl("-n", NAMESPACE, "scale", f"deployment/{name}", f"--replicas={replicas}")
    wait(cluster)
    if replicas:
        _until(lambda: _answers(cluster), "Katib's webhooks answer")
        inject(cluster, True)
    else:
        selector = "katib.kubeflow.org/component in (controller, db-manager)"
        cluster.kubectl("-n", NAMESPACE, "wait", "--for=delete", "pod", "-l", selector, "--timeout=60s", timeout=70)


def inject(cluster: Cluster, wanted: bool) -> None:
    """Let Katib add its collector to the pods of trials, or not.

    Its webhook has to see every pod of such a namespace, its own too, so its controller could not start.
    """
    cluster.kubectl("label", "--overwrite", "namespace", NAMESPACE, f"{INJECTION}{'=enabled' if wanted else '-'}")


def wait(cluster: Cluster) -> None:
    """Wait until Katib's deployments are rolled out."""
    for name in DEPLOYMENTS:
        rollout = ("rollout", "status", f"deployment/{name}", f"--timeout={READY_SECONDS:g}s")
        cluster.kubectl("-n", NAMESPACE, *rollout, timeout=READY_SECONDS + 10)


def manifests(cluster: Cluster, files: katib.Katib) -> str:
    """Return the manifests of Katib for this cluster, as kustomize renders them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(files.manifests, folder / "katib")
        config = YAML(typ="safe").load((files.manifests / "installs/katib-standalone/katib-config.yaml").read_text())
        (folder / "katib-config.yaml").write_text(json.dumps(configuration(config, files.images)))
        (folder / "kustomization.yaml").write_text(json.dumps(kustomization(files.images)))
        return cluster.kubectl("kustomize", name, timeout=60)


def configuration(config: dict[str, Any], images: Mapping[str, str]) -> dict[str, Any]:
    """Return Katib's configuration with the images that were built here. Pure."""

    def container(part: str) -> dict[str, Any]:
        return {"image": images[part], "imagePullPolicy": "IfNotPresent", "resources": _RESOURCES}

    runtime = {
        "metricsCollectors": [{"kind": "StdOut", **container(katib.COLLECTOR)}],
        "suggestions": [{"algorithmName": name, **container(katib.SUGGESTION)} for name in ("random", "tpe")],
        "earlyStoppings": [{"algorithmName": "medianstop", **container(katib.MEDIANSTOP)}],
    }
    controller = config["init"]["controller"] | {"trialResources": ["Job.v1.batch"]}
    return config | {"runtime": runtime, "init": config["init"] | {"controller": controller}}


def kustomization(images: Mapping[str, str]) -> dict[str, Any]:
    """Return the changes to Katib's manifests: images, and the database of this cluster. Pure."""
    database = {
        "DB_NAME": "postgres",
        "DB_USER": "katib",
        "DB_PASSWORD": "none",
        "KATIB_POSTGRESQL_DB_HOST": CONTROL_PLANE_IP,
    }
    environment = [{"name": name, "value": value} for name, value in database.items()]
    changes = {
        name: [
            {"op": "replace", "path": f"{_POD}/image", "value": images[name]},
            {"op": "replace", "path": f"{_POD}/command", "value": [f"/{name}"]},
            {"op": "add", "path": f"{_POD}/imagePullPolicy", "value": "IfNotPresent"},
            {"op": "add", "path": "/spec/strategy", "value": {"type": "Recreate"}},
            {"op": "add", "path": "/spec/template/spec/terminationGracePeriodSeconds", "value": 1},
        ]
        for name in DEPLOYMENTS
    }
    changes[katib.DB_MANAGER].append({"op": "replace", "path": f"{_POD}/env", "value": environment})
    named = {"options": {"disableNameSuffixHash": True}}
    return {
        "namespace": NAMESPACE,
        "resources": [f"katib/components/{name}" for name in _COMPONENTS],
        "configMapGenerator": [{"name": "katib-config", "files": ["katib-config.yaml"], **named}],
        "secretGenerator": [{"name": _SECRET, **named}],
        "patches": [
            {"target": {"kind": "Deployment", "name": name}, "patch": json.dumps(change)}
            for name, change in changes.items()
        ],
    }


# ---- the database ----------------------------------------------------------------------------------------------------


def start_database(cluster: Cluster) -> None:
    """Start an empty PostgreSQL server in the control plane's network, if none runs.

    It ends with the cluster. It runs as the user `postgres`, which Debian's package makes, with its data in /var/tmp.
    """
    if cluster.processes.alive(DATABASE):
        return
    install_packages(["postgresql"], cluster.progress, only_if=not list(_SERVERS.glob("*/bin/initdb")))
    programs = sorted(_SERVERS.glob("*/bin"), key=lambda folder: float(folder.parent.name))[-1]
    folder = database_folder(cluster)
    with cluster.progress.step("PostgreSQL"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        shutil.chown(folder, "postgres", "postgres")
        data = folder / "data"
        as_postgres = ["runuser", "-u", "postgres", "--"]
        run(
            [*as_postgres, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "katib"],
            timeout=60,
            cwd=folder,
        )
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 10.0.0.0/8 trust\n")
        settings = {"listen_addresses": CONTROL_PLANE_IP, "unix_socket_directories": str(folder), "fsync": "off"}
        options = [f"--{name}={value}" for name, value in settings.items()]
        server = [*as_postgres, str(programs / "postgres"), "-D", str(data), *options]
        cluster.processes.start(DATABASE, inside(netns_path(cluster.name, "cp"), server), ENVIRONMENT)
        create = [*as_postgres, str(programs / "createdb"), "-h", str(folder), "-U", "katib", "katib"]
        _until(lambda: _runs(create, folder), "PostgreSQL accepts connections")


def database_folder(cluster: Cluster) -> Path:
    """Return the folder of the database: /root and the cache below it are closed to the user `postgres`."""
    return Path("/var/tmp") / f"podium-{cluster.name}-{DATABASE}"


def _runs(argv: list[str], folder: Path) -> bool:
    try:
        run(argv, timeout=20, cwd=folder)
    except CommandError as error:
        return "already exists" in str(error)
    return True


def _answers(cluster: Cluster) -> bool:
    """Return whether Katib's webhook decides on an Experiment: it refuses an empty one with a reason."""
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(_PROBE))
    except CommandError as error:
        return "validator.experiment.katib.kubeflow.org" in str(error) and "denied the request" in str(error)
    return True


def _until(ready: Callable[[], bool], what: str) -> None:
    waiting.until(ready, what, READY_SECONDS, hint=f"kubectl -n {NAMESPACE} get pods,events")
