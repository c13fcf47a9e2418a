"""`podium doctor` with a real kube-apiserver and the chart's real workloads, before and after the installation."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_rendering import Tool, make_tool, parse, render
from dashboard_stage import wait_until

from podium_cli.doctor.check_table import CHECKS
from podium_cli.exit_codes import Exit
from podium_cli.main import run

pytestmark = pytest.mark.integration
Results = dict[tuple[str, str], tuple[str, str]]  # outcome and message by check and subject
Doctor = Callable[..., tuple[Exit, Results]]


@pytest.fixture
def name() -> str:
    return f"doctor-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def tool(binary: Callable[[str], Path], kubeconfig: Path) -> Tool:
    return make_tool(binary, kubeconfig)


@pytest.fixture
def apply(tool: Tool) -> Iterator[Callable[..., None]]:
    """A function that creates objects, which are deleted after the test."""
    created: list[str] = []

    def create(*objects: Any) -> None:
        text = yaml.safe_dump_all(objects)
        created.append(text)
        done = tool("kubectl", "apply", "--server-side", "-f", "-", given=text)
        assert done.returncode == 0, done.stderr

    yield create
    for text in reversed(created):
        tool("kubectl", "delete", "--ignore-not-found", "--wait=false", "-f", "-", given=text)


@pytest.fixture
def doctor(kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """A function that runs `podium doctor` and returns its exit code and results."""

    def call(*arguments: str, file: Path = kubeconfig) -> tuple[Exit, Results]:
        code = run(["doctor", *arguments, "-o", "json", "--kubeconfig", str(file)])
        out, err = capsys.readouterr()
        assert err == ""
        items = json.loads(out)["items"]
        return code, {(one["check"], one["where"]): (one["result"], one["message"]) for one in items}

    return call


def node(name: str, **allocatable: str) -> dict[str, Any]:
    info = {"kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://1.7.27"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/cuda.driver.major": "550"}},
        "status": {"allocatable": allocatable, "capacity": allocatable, "nodeInfo": info},
    }


def patch_status(tool: Tool, one: dict[str, Any]) -> None:
    patch = json.dumps({"status": {key: one["status"][key] for key in ("allocatable", "capacity")}})
    words = ("patch", "node", one["metadata"]["name"], "--subresource=status", "--type=merge", "-p", patch)
    done = tool("kubectl", *words)
    assert done.returncode == 0, done.stderr


def test_before_the_installation_a_node_of_another_plugin_is_a_warning(
    name: str, apply: Callable[..., None], tool: Tool, doctor: Doctor
) -> None:
    one = node(name, **{"nvidia.com/gpu": "8"})
    apply(one)
    patch_status(tool, one)
    _, results = doctor(name, "-n", name)
    assert {check for check, _ in results} == {check.code for check in CHECKS}
    assert results["KubernetesVersion", "API server"][0] == "ok"
    assert results["GPUsGivenOutOnce", name] == (
        "warning",
        "the node offers nvidia.com/gpu: 8: in the mode dedicated, Podium would refuse it",
    )
    assert results["Operator", "cluster"] == ("skipped", "Podium is not installed")
    assert results["NamespacePodSecurity", f"namespace {name}"] == ("skipped", "the namespace does not exist yet")
    for check in ("CgroupVersion", "CgroupDriver", "FeatureGates"):
        assert results[check, name][0] == "skipped", "there is no kubelet"
    for crd in ("hyperparamjobs", "hyperparamtrials", "gpunodes", "gpuqueues"):
        assert results["CRDs", f"{crd}.podium.dev"][0] == "ok", "as the real API server stores it"


def test_a_crd_of_another_version_is_an_error(tool: Tool, doctor: Doctor) -> None:
    changed = '[{"op": "replace", "path": "/spec/versions/0/additionalPrinterColumns/0/name", "value": "Old"}]'
    try:
        assert tool("kubectl", "patch", "crd", "gpunodes.podium.dev", "--type=json", "-p", changed).returncode == 0
        code, results = doctor()
        assert code is Exit.FAILED
        assert results["CRDs", "gpunodes.podium.dev"] == ("error", "its schema is not that of version 0.1.0")
    finally:
        done = tool("kubectl", "apply", "--server-side", "--force-conflicts", "-f", "crds/gpunodes.yaml")
        assert done.returncode == 0, done.stderr
    assert doctor()[1]["CRDs", "gpunodes.podium.dev"][0] == "ok", "the cure of the table"


def test_the_charts_workloads_are_found_and_a_pod_without_a_node_is_named(
    name: str, apply: Callable[..., None], tool: Tool, doctor: Doctor
) -> None:
    values = f"priorityClass.name={name}-system,trialPriorityClass.name={name}-trial,operator.nodeSelector.no=such"
    kinds = ("ServiceAccount", "PriorityClass", "Deployment", "DaemonSet")
    objects = [one for one in parse(render(tool, values, namespace=name)) if one["kind"] in kinds]
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    apply(*objects)

    def unschedulable() -> str:
        outcome, message = doctor("-n", name)[1]["Operator", f"{name}/podium-operator"]
        assert outcome == "error"
        return message

    wait_until(lambda: "Unschedulable: " in unschedulable(), "the message of the scheduler")
    code, results = doctor()
    assert code is Exit.FAILED
    assert results["ChartInstalled", f"release {name}/podium"] == ("ok", "version 0.1.0, gpus.mode dedicated")
    assert results["NamespacePodSecurity", f"namespace {name}"][0] == "error", "found without -n"
    assert results["PriorityClasses", f"class {name}-trial"] == ("ok", "value -1")
    assert results["PriorityClasses", "class system-node-critical"][0] == "ok"
    versions = {message for (check, _), (_, message) in results.items() if check == "ComponentVersions"}
    assert versions == {"version 0.1.0, image localhost/podium:dev"}


def test_a_webhook_without_endpoints_is_an_error_until_it_has_one(
    name: str, apply: Callable[..., None], doctor: Doctor
) -> None:
    meta = {"name": name, "namespace": "default"}
    apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": "pods.doctor.test",
                    "clientConfig": {"service": meta},
                    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["*"]}],
                    "namespaceSelector": {"matchLabels": {"test": name}},  # no namespace of another test
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
    )
    subject = ("PodWebhooks", f"{name}/pods.doctor.test")
    code, results = doctor()
    assert code is Exit.FAILED
    assert results[subject][0] == "error"
    labels = {"kubernetes.io/service-name": name}
    apply(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": meta | {"labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.1.2.3"]}],
        }
    )
    assert doctor()[1][subject] == ("ok", f"service default/{name} has ready endpoints: 1")


def test_an_account_without_rights_gets_only_skipped_checks(
    name: str, apply: Callable[..., None], tool: Tool, kubeconfig: Path, doctor: Doctor, tmp_path: Path
) -> None:
    meta = {"name": name, "namespace": "default"}
    apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    token = tool("kubectl", "create", "token", name)
    assert token.returncode == 0, token.stderr
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token.stdout.strip()}} for user in config["users"]]
    limited = tmp_path / "kubeconfig"
    limited.write_text(yaml.safe_dump(config))
    code, results = doctor(file=limited)
    assert code is Exit.OK
    version = results.pop(("KubernetesVersion", "API server"))
    assert version[0] == "ok", "every account may read the version"
    assert {outcome for outcome, _ in results.values()} == {"skipped"}
    assert any("nodes is forbidden" in message for _, message in results.values())
