"""A trial without any save is carried to another node by hand, memory of its GPU and all, and goes on where it was."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from podium_devcluster import kubeconfig, registry
from podium_devcluster.debian import PackageError
from podium_devcluster.network import netns_path
from podium_devcluster.node_config import API_SERVER
from podium_devcluster.shell import CommandError

pytestmark = pytest.mark.e2e
IMAGE = "localhost/podium-digits:dev"
EPOCHS = 45  # so long that it is suspended before it is over, also where the API tells of an epoch late
RIGHTS = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: mover, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: mover}
rules: [{apiGroups: [""], resources: [nodes/checkpoint], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: mover}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: mover}
subjects: [{kind: ServiceAccount, name: mover, namespace: default}]
"""
Site = Any


def test_a_trial_without_a_save_goes_on_where_it_was_on_another_node(site: Site) -> None:
    try:
        registry.ensure(site.cluster.cache)
    except (CommandError, PackageError) as error:
        pytest.skip(f"apt gives no {registry.PACKAGE} here: {error}")
    registry.start(site.cluster)
    image = registry.push(site.cluster, "node-1", IMAGE)
    site.kubectl("apply", "-f", "-", stdin=RIGHTS)
    for name in ("carried", "stayed"):
        site.kubectl("apply", "-f", "-", stdin=json.dumps(job(site, name, image)))
    site.until("an epoch", lambda: (status(site, "carried").get("lastStep") or 0) >= 1, 120)
    suspend(site, True)
    old = site.until("suspended", lambda: suspended(site), 60)
    there = next(name for name in ("node-1", "node-2") if name != old["spec"]["nodeName"])

    left = move(site, old, there)
    # what it printed last is told by its old agent, which falls silent when that of the next attempt speaks
    printed = site.evidence.printed(site.log_of(old, "train"), "val_acc", "epoch")
    site.until("all that it printed is known", lambda: status(site, "carried").get("lastStep") == printed[-1][0], 60)
    site.kubectl("create", "-f", "-", stdin=json.dumps(successor(old, there, left)))
    suspend(site, False)

    for name in ("carried", "stayed"):
        site.until(f"{name} is over", lambda name=name: status(site, name).get("phase") == "Succeeded", 180)
    moved = status(site, "carried")
    assert (moved["attempt"], moved["node"], moved.get("losses", {}).get("steps", 0)) == (1, there, 0)
    assert values(moved) == values(status(site, "stayed"))
    for name in ("carried", "stayed"):
        site.kubectl("delete", "hyperparamjob", name, "--timeout=90s", timeout=100)


def job(site: Site, name: str, image: str) -> dict[str, Any]:
    """One trial, of the same parameters in both, that saves nothing and can only be suspended by `cuda-checkpoint`."""
    manifest: dict[str, Any] = site.example(name)
    spec = manifest["spec"]
    del spec["checkpoint"]
    spec["trials"] = {"max": 1, "parallel": 1, "maxSteps": EPOCHS}
    spec["gpus"] = {"perTrial": 1, "memory": "64Mi"}
    spec["suspension"] = {"methods": ["cuda-checkpoint"]}
    container = spec["template"]["spec"]["containers"][0]
    container["image"] = image
    container["command"] = ["python3", "/app/train.py", f"--epochs={EPOCHS}", "--work=150", "$(podium.args)"]
    return manifest


def status(site: Site, name: str) -> dict[str, Any]:
    found = site.objects("hyperparamtrials", "-l", f"podium.dev/job={name}")
    return found[0].get("status", {}) if found else {}


def suspend(site: Site, wanted: bool) -> None:
    patch = json.dumps({"spec": {"suspend": wanted}})
    site.kubectl("patch", "hyperparamtrial", "carried-0", "--type=merge", "-p", patch)


def suspended(site: Site) -> dict[str, Any] | None:
    if status(site, "carried").get("phase") != "Suspended":
        return None
    pods = site.objects("pods", "-l", "podium.dev/job=carried")
    return pods[0] if pods else None


def values(status: dict[str, Any]) -> dict[int, float]:
    points = {int(point["step"]): point["value"] for point in status["curve"]["points"]}
    assert max(points) == EPOCHS
    return points


def move(site: Site, pod: dict[str, Any], there: str) -> dict[str, Any]:
    """By the command in the agent of the pod's node, but in the node's own network, where the registry is."""
    node, cluster = pod["spec"]["nodeName"], site.cluster
    folder = cluster.node_root(node) / "var/lib/podium"
    kubeconfig.write(folder / "mover.kubeconfig", API_SERVER, cluster.paths.pki, "admin", "admin")
    (folder / "mover.crt").write_bytes((cluster.paths.pki / "ca.crt").read_bytes())
    (folder / "mover.token").write_text(site.kubectl("create", "token", "mover").strip())
    environment = {
        "PATH": "/usr/bin:/bin",
        "PODIUM_REGISTRY": registry.ADDRESS,
        "PODIUM_KUBECONFIG": "/var/lib/podium/mover.kubeconfig",
        "PODIUM_KUBELET_AUTHORITY": "/var/lib/podium/mover.crt",
        "PODIUM_KUBELET_TOKEN": "/var/lib/podium/mover.token",
        "PODIUM_CHECKPOINTS_DIR": "/proc/1/root/var/lib/kubelet/checkpoints",
        "LD_LIBRARY_PATH": "/var/lib/podium-fake-driver/lib",
    }
    pid, python = agent(site, node)
    enter = ["nsenter", f"--target={pid}", "--mount", "--pid", f"--net={netns_path(cluster.name, node)}", "--"]
    argv = [*enter, python, "-m", "podium_agent.moving", "default", pod["metadata"]["name"], "train", there]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list((cluster.node_root(node) / "var/lib/kubelet/checkpoints").glob("*.tar"))
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def agent(site: Site, node: str) -> tuple[int, str]:
    """The process of a node's agent as this machine knows it, and the interpreter that it runs."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
            cgroup = (folder / "cgroup").read_text()
        except OSError:
            continue
        ours = f"devcluster-{site.cluster.name}/{node}/" in cgroup
        if ours and any(Path(word).name == "podium-agent" for word in words[1:2]):
            return int(folder.name), words[0]
    pytest.fail(f"no agent runs on {node}")


def successor(old: dict[str, Any], there: str, left: dict[str, Any]) -> dict[str, Any]:
    """The pod of the next attempt: like the old one, but from the image, and on the other node."""
    meta, spec = old["metadata"], json.loads(json.dumps(old["spec"]))
    for key in ("nodeName", "tolerations", "serviceAccount"):
        spec.pop(key, None)
    spec["volumes"] = [one for one in spec.get("volumes", []) if not one["name"].startswith("kube-api-access")]
    kept = {one["name"] for one in spec["volumes"]}
    for container in (*spec["containers"], *spec["initContainers"]):
        container["volumeMounts"] = [one for one in container.get("volumeMounts", []) if one["name"] in kept]
    spec["containers"][0]["image"] = left["image"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": there}
    about = {
        "name": "carried-0-1",
        "namespace": meta["namespace"],
        "labels": {**meta["labels"], "podium.dev/attempt": "1"},
        "annotations": {**meta["annotations"], "podium.dev/arrives": json.dumps(left["arrives"])},
        "ownerReferences": meta["ownerReferences"],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}
