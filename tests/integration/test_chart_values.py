"""The values files of the chart: lint, schema, a dry run on a real API server, and the nodes that would get an agent.

No cloud is used. The DaemonSet controller of a real control plane counts the nodes. They are objects with the labels
and taints that each platform documents.
"""

from __future__ import annotations

import json
import sys
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from chart_rendering import CHART, Tool, make_tool, one, parse, pod_specs

pytestmark = pytest.mark.integration
FILES = sorted((CHART / "values").glob("*.yaml"))
SECONDS = 60.0
PRESENT = {"nvidia.com/gpu.present": "true"}
HANDED_OVER = PRESENT | {"nvidia.com/gpu.deploy.device-plugin": "false"}
GKE = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
# labels and taint of a node with GPUs for Podium, and the labels of nodes that must not get an agent
NODES: Mapping[str, tuple[dict[str, str], str, list[dict[str, str]]]] = {
    "aks": (PRESENT, "sku=gpu", [{}]),
    "eks": (PRESENT, "nvidia.com/gpu=true", [{}]),
    "gke": (
        GKE | {"gke-no-default-nvidia-gpu-device-plugin": "true"},
        "nvidia.com/gpu=present",
        [{}, GKE, {"gke-no-default-nvidia-gpu-device-plugin": "true"}],
    ),
    "gpu-operator": (
        HANDED_OVER,
        "nvidia.com/gpu=true",
        [{}, PRESENT, PRESENT | {"nvidia.com/gpu.deploy.device-plugin": "true"}],
    ),
    "k3s": (PRESENT, "", [{}]),
    "openshift": (HANDED_OVER, "nvidia.com/gpu=true", [{}, PRESENT]),
    "plain-driver": (PRESENT, "", [{}]),
}
# The fields of OpenShift's SecurityContextConstraints, version security.openshift.io/v1, and those that it requires.
STRATEGY = {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}
TEXTS = {"type": "array", "nullable": True, "items": {"type": "string"}}
FLAGS = (
    "allowHostDirVolumePlugin", "allowHostIPC", "allowHostNetwork", "allowHostPID", "allowHostPorts",
    "allowPrivilegedContainer", "readOnlyRootFilesystem",
)  # fmt: skip
LISTS = ("allowedCapabilities", "defaultAddCapabilities", "requiredDropCapabilities", "volumes")
FIELDS: dict[str, Any] = (
    {name: {"type": "boolean"} for name in (*FLAGS, "allowPrivilegeEscalation")}
    | dict.fromkeys((*LISTS, "users", "groups", "seccompProfiles"), TEXTS)
    | dict.fromkeys(("runAsUser", "seLinuxContext", "fsGroup", "supplementalGroups"), STRATEGY)
    | {"priority": {"type": "integer", "nullable": True}}
)
SCHEMA = {"type": "object", "required": [*FLAGS, *LISTS, "priority"], "properties": FIELDS}
SCC = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "securitycontextconstraints.security.openshift.io"},
    "spec": {
        "group": "security.openshift.io",
        "scope": "Cluster",
        "names": {
            "kind": "SecurityContextConstraints",
            "plural": "securitycontextconstraints",
            "singular": "securitycontextconstraints",
        },
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}],
    },
}


@pytest.fixture(scope="module")
def tool(binary: Callable[[str], Path], kubeconfig: Path) -> Tool:
    return make_tool(binary, kubeconfig)


@pytest.fixture(scope="module")
def namespace(tool: Tool) -> Iterator[str]:
    """A namespace that admits the agent, in a cluster that knows OpenShift's kind."""
    name = f"values-{uuid.uuid4().hex[:6]}"
    tool("kubectl", "create", "namespace", name)
    tool("kubectl", "label", "namespace", name, "pod-security.kubernetes.io/enforce=privileged")
    done = tool("kubectl", "apply", "--server-side", "-f", "-", given=json.dumps(SCC))
    assert done.returncode == 0, done.stderr
    done = tool("kubectl", "wait", "--for=condition=Established", f"crd/{SCC['metadata']['name']}", "--timeout=20s")  # type: ignore[index]
    assert done.returncode == 0, done.stderr
    yield name
    tool("kubectl", "delete", "crd", SCC["metadata"]["name"], "--wait=false")  # type: ignore[index]
    tool("kubectl", "delete", "namespace", name, "--wait=false")


def rendered(tool: Tool, file: Path, namespace: str, *more: str) -> str:
    command = ("helm", "template", "podium", str(CHART), f"--namespace={namespace}", "--kube-version=1.36.3")
    done = tool(*command, "-f", str(file), *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_file_has_nodes() -> None:
    assert [file.stem for file in FILES] == sorted(NODES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_real_api_server_accepts_every_object(tool: Tool, namespace: str, file: Path) -> None:
    done = tool("helm", "lint", "--strict", "--quiet", "--kube-version=1.36.3", str(CHART), "-f", str(file))
    assert done.returncode == 0, done.stdout
    for more in ((), ("--set", "gpus.mode=reservations,agent.nodeSelector=null")):  # the second way of each page
        text = rendered(tool, file, namespace, *more)
        done = tool("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", "-", given=text)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == len(parse(text))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_agent_runs_on_the_nodes_of_podium_and_on_no_others(tool: Tool, namespace: str, file: Path) -> None:
    labels, taint, others = NODES[file.stem]
    name = f"{file.stem}-{uuid.uuid4().hex[:6]}"
    key, _, value = taint.partition("=")
    taints = [{"key": key, "value": value, "effect": "NoSchedule"}] if taint else []
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"{name}-{number}", "labels": each},
            "spec": {"taints": taints},
        }
        for number, each in enumerate([labels, *others])
    ]
    daemon = dict(one(parse(rendered(tool, file, namespace)), "DaemonSet", "podium-agent"))
    daemon["metadata"] = {"name": name, "namespace": namespace}
    try:
        for item in (*nodes, daemon):
            done = tool("kubectl", "create", "-f", "-", given=json.dumps(item))
            assert done.returncode == 0, done.stderr
        deadline = time.monotonic() + SECONDS
        while (status := read_status(tool, namespace, name)).get("observedGeneration") != 1:
            assert time.monotonic() < deadline, "the controller has not seen the daemon set"
            time.sleep(0.2)
        assert status["desiredNumberScheduled"] == 1
    finally:
        tool("kubectl", "delete", "daemonset", name, f"--namespace={namespace}", "--wait=false")
        tool("kubectl", "delete", "node", "--wait=false", *(str(node["metadata"]["name"]) for node in nodes))  # type: ignore[index]


def read_status(tool: Tool, namespace: str, name: str) -> dict[str, Any]:
    done = tool("kubectl", "get", "daemonset", name, f"--namespace={namespace}", "-o", "jsonpath={.status}")
    assert done.returncode == 0, done.stderr
    status: dict[str, Any] = json.loads(done.stdout or "{}")
    return status


def test_openshift_admits_each_pod_by_the_constraints_that_its_account_may_use(tool: Tool, namespace: str) -> None:
    """Compare the pods with the rules of OpenShift's documentation: the API server here does not enforce them."""
    objects = parse(rendered(tool, CHART / "values/openshift.yaml", namespace, "--set", "dashboard.enabled=true"))
    constraints = one(objects, "SecurityContextConstraints", "podium-agent")
    assert constraints["users"] == [f"system:serviceaccount:{namespace}:podium-agent"]
    for name, spec in pod_specs(objects).items():
        (context, *more), volumes = [one["securityContext"] for one in spec["containers"]], spec.get("volumes", [])
        kinds = {kind for volume in volumes for kind in volume if kind != "name"}
        if name == "podium-agent":
            assert spec["serviceAccountName"] == "podium-agent"
            assert (constraints["allowHostPID"], constraints["allowPrivilegedContainer"]) == (
                True,
                context["privileged"],
            )
            assert constraints["allowHostNetwork"] is spec.get("hostNetwork", False)
            assert kinds <= set(constraints["volumes"])
            assert context["readOnlyRootFilesystem"], "the constraints require it"
            continue
        # restricted-v2: a user of the namespace's range, so none may be named
        assert "runAsUser" not in spec["securityContext"], name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert all(one["capabilities"] == {"drop": ["ALL"]} for one in (context, *more)), name
        assert not kinds & {"hostPath"}, name
    other = parse(
        rendered(tool, CHART / "values/openshift.yaml", namespace, "--set", "agent.checkpointRegistry=localhost:5000")
    )
    assert one(other, "SecurityContextConstraints", "podium-agent")["allowHostNetwork"] is True
    assert pod_specs(other)["podium-agent"]["hostNetwork"] is True
    plain = parse(rendered(tool, CHART / "values/plain-driver.yaml", namespace))
    assert "SecurityContextConstraints" not in {item["kind"] for item in plain}


def test_gke_mounts_the_driver_where_its_own_plugin_does(tool: Tool, namespace: str) -> None:
    (agent,) = pod_specs(parse(rendered(tool, CHART / "values/gke.yaml", namespace)))["podium-agent"]["containers"]
    env = {entry["name"]: entry.get("value") for entry in agent["env"]}
    (mount,) = json.loads(env["PODIUM_EXTRA_MOUNTS"])
    library = json.loads(env["PODIUM_TRIAL_ENV"])["LD_LIBRARY_PATH"]
    assert mount["hostPath"] == "/home/kubernetes/bin/nvidia"
    assert library == f"{mount['containerPath']}/lib64"


def test_a_packaged_chart_contains_the_files(tool: Tool, binary: Callable[[str], Path], tmp_path: Path) -> None:
    from dist import package_chart
    from sbom import project_version

    archive = package_chart(binary("helm"), CHART, project_version(), tmp_path, 1_764_000_000)
    with tarfile.open(archive) as chart:
        chart.extractall(tmp_path, filter="data")
    packed = sorted((tmp_path / "podium" / "values").glob("*.yaml"))
    assert [file.read_text() for file in packed] == [file.read_text() for file in FILES]
    done = tool("helm", "template", "podium", str(archive), "--kube-version=1.36.3", "-f", str(packed[0]))
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(packed[0].read_text())["agent"]
