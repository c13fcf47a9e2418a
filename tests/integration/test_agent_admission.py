"""An agent's token is limited to its node by the chart's RBAC rules and admission policies.

The test requests tokens for a pod on a node, as the kubelet does. It makes the agent's writes with the agent's client.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from podium_cluster.client import Api, ApiError, connect
from podium_cluster.leases import create_lease
from podium_cluster.resources import GPUNODES, LEASES, PODS
from podium_cluster.settings import ClusterSettings

pytestmark = pytest.mark.integration
CHART = Path(__file__).parents[2] / "charts" / "podium"
Write = Callable[[Api, str], Any]


@dataclass(frozen=True)
class Site:
    """Two nodes with a trial's pod each, and the agent's rights. `folder` has a kubeconfig for each token."""

    kubectl: Callable[..., str]
    admin: dict[str, Any]
    namespace: str
    account: str
    folder: Path

    def token(self, node: str | None) -> Path:
        """Return a kubeconfig with a token of the agent on this node, or with a token that is bound to no pod."""
        bound = () if node is None else ("--bound-object-kind=Pod", f"--bound-object-name=agent-{node}")
        token = self.kubectl("create", "token", self.account, *bound).strip()
        config = {**self.admin, "users": [{"name": self.admin["users"][0]["name"], "user": {"token": token}}]}
        path = self.folder / f"of-{node}"
        path.write_text(yaml.safe_dump(config))
        return path

    def answer(self, token: Path, write: Write, node: str) -> str:
        """Return the API server's error for a write to this node's object; empty if it accepts the write."""

        async def ask() -> str:
            async with connect(ClusterSettings(kubeconfig=token)) as api:
                try:
                    await write(api, node)
                except ApiError as error:
                    return str(error)
            return ""

        return asyncio.run(ask())


@pytest.fixture(scope="module")
def site(kubeconfig: Path, binary: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    mark = uuid.uuid4().hex[:6]
    # policies and roles are cluster-wide, so the release has a unique name beside an installation named podium
    namespace, release = f"bound-{mark}", f"podium-{mark}"
    account = f"{release}-agent"

    def kubectl(*words: str, given: str = "") -> str:
        command = [str(binary("kubectl")), f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", *words]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    parts = ("rbac", "admission")
    shown = [f"--show-only=templates/agent/{part}.yaml" for part in parts]
    command = [str(binary("helm")), "template", release, str(CHART), "--kube-version=1.36.3", *shown]
    rights = subprocess.run(
        [*command, f"--namespace={namespace}"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    kubectl("create", "namespace", namespace)
    try:
        kubectl("apply", "-f", "-", given=rights)
        for node in ("node-a", "node-b"):
            metadata = {"name": f"{namespace}-{node}"}
            resources = {"cpu": "8", "memory": "8Gi", "pods": "10"}
            status = {"capacity": resources, "allocatable": resources}
            machine = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
            kubectl("create", "-f", "-", given=json.dumps(machine))
            for pod in ("agent", "trial"):
                kubectl("create", "-f", "-", given=json.dumps(_pod(f"{pod}-{node}", metadata["name"], account)))
            gpunode = {"apiVersion": "podium.dev/v1alpha1", "kind": "GPUNode", "metadata": metadata, "spec": {}}
            kubectl("create", "-f", "-", given=json.dumps(gpunode))
        admin = json.loads(kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
        yield Site(kubectl, admin, namespace, account, tmp_path_factory.mktemp("tokens"))
    finally:
        gone = ("delete", "--ignore-not-found", "--wait=false")
        kubectl(*gone, "-f", "-", given=rights)
        for kind in ("node", "gpunode"):
            kubectl(*gone, kind, f"{namespace}-node-a", f"{namespace}-node-b")
        kubectl("delete", "namespace", namespace, "--wait=false")


def _pod(name: str, node: str, account: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
    spec = {"nodeName": node, "serviceAccountName": account, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def writes(namespace: str) -> dict[str, Write]:
    """Return all writes of an agent by name. Each one has a new value, so that it is a change."""

    def fresh() -> str:
        return uuid.uuid4().hex

    async def condition(api: Api, node: str) -> None:
        entry = {"type": "podium.dev/Suspended", "status": "False", "reason": "Running", "message": fresh()}
        patch = {"status": {"conditions": [entry]}}
        await api.strategic_patch(PODS, f"trial-{node}", namespace, patch, manager="podium-agent", subresource="status")

    async def resize(api: Api, node: str) -> None:
        cpu = f"{10 + uuid.uuid4().int % 80}m"
        patch = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}
        await api.strategic_patch(PODS, f"trial-{node}", namespace, patch, manager="podium-agent", subresource="resize")

    async def gpunode(api: Api, node: str) -> None:
        about = {"name": f"{namespace}-{node}", "labels": {"fresh": fresh()}}
        await api.apply(GPUNODES, {"metadata": about}, manager="podium-agent")

    async def telemetry(api: Api, node: str) -> None:
        body = {"metadata": {"name": f"{namespace}-{node}"}, "status": {"driver": fresh()}}
        await api.apply_status(GPUNODES, body, manager="podium-agent")

    async def heartbeat(api: Api, node: str) -> None:
        about = {"name": f"podium-agent-{namespace}-{node}", "namespace": namespace}
        await api.apply(LEASES, {"metadata": about, "spec": {"holderIdentity": fresh()}}, manager="podium-agent")

    made = (condition, resize, gpunode, telemetry, heartbeat)
    return {one.__name__: one for one in made}


@pytest.mark.parametrize("what", ["condition", "resize", "gpunode", "telemetry", "heartbeat"])
def test_an_agent_can_write_only_to_its_own_node(site: Site, what: str) -> None:
    write, token = writes(site.namespace)[what], site.token("node-a")
    assert "NodeMismatch: the agent's token is of node" in refused(site, token, write, "node-b")
    assert site.answer(token, write, "node-a") == ""


def test_an_agent_can_write_no_lease_that_has_the_name_of_its_node(site: Site) -> None:
    """A node may be named podium-operator: its agent must not write the Lease by which the operator leads."""

    async def lease(api: Api, node: str) -> None:
        about = {"name": f"{site.namespace}-{node}", "namespace": site.namespace}
        spec = {"holderIdentity": uuid.uuid4().hex}
        await api.apply(LEASES, {"metadata": about, "spec": spec}, manager="podium-agent")

    assert "NodeMismatch: the agent's token is of node" in refused(site, site.token("node-a"), lease, "node-a")


def test_the_lease_that_an_agent_creates_belongs_to_its_account(site: Site) -> None:
    """Kubernetes deletes the Lease with the account, when the release is uninstalled."""
    name = f"podium-agent-{site.namespace}-node-b"

    async def lease(api: Api, _: str) -> None:
        await create_lease(api, name, site.namespace, {"holderIdentity": "node-b"}, manager="podium-agent")

    site.kubectl("delete", "--ignore-not-found", "lease", name)
    end = time.monotonic() + 60
    while error := site.answer(site.token("node-b"), lease, "node-b"):  # rights apply a moment after their creation
        assert time.monotonic() < end, error
        time.sleep(0.1)
    (owner,) = json.loads(site.kubectl("get", "lease", name, "-o", "json"))["metadata"]["ownerReferences"]
    account = json.loads(site.kubectl("get", "serviceaccount", site.account, "-o", "json"))["metadata"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("ServiceAccount", site.account, account["uid"])


def test_a_token_without_a_node_can_write_nothing(site: Site) -> None:
    """A token may be created by hand, or for a pod that is bound to no node."""
    token = site.token(None)
    for write in writes(site.namespace).values():
        assert "the agent's token is of node ''" in refused(site, token, write, "node-a")


def test_the_policies_do_not_affect_other_users(site: Site) -> None:
    path = site.folder / "admin"
    path.write_text(yaml.safe_dump(site.admin))
    for write in writes(site.namespace).values():
        for node in ("node-a", "node-b"):
            assert site.answer(path, write, node) == ""


def refused(site: Site, token: Path, write: Write, node: str) -> str:
    """Return the policy's refusal.

    The API server applies policies and rights only a moment after their creation.
    """
    end = time.monotonic() + 60
    while "NodeMismatch" not in (error := site.answer(token, write, node)):
        assert time.monotonic() < end, error or "accepted"
        time.sleep(0.1)
    return error
