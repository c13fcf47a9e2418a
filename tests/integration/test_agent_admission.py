"""An agent's token reaches no further than its own node: the chart's rights and policies in a real API server.

Tokens are asked for as the kubelet does it, for a pod on a node; the writes are those of the agent, by its own client.
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
from podium_cluster.resources import GPUNODES, LEASES, PODS
from podium_cluster.settings import ClusterSettings

pytestmark = pytest.mark.integration
CHART = Path(__file__).parents[2] / "charts" / "podium"
Write = Callable[[Api, str], Any]


@dataclass(frozen=True)
class Site:
    """Two nodes, a trial's pod on each, and the agent's rights; `folder` holds a kubeconfig for each token."""

    kubectl: Callable[..., str]
    admin: dict[str, Any]
    namespace: str
    account: str
    folder: Path

    def token(self, node: str | None) -> Path:
        """A kubeconfig with a token of the agent on this node, or with one that is bound to no pod."""
        bound = () if node is None else ("--bound-object-kind=Pod", f"--bound-object-name=agent-{node}")
        token = self.kubectl("create", "token", self.account, *bound).strip()
        config = {**self.admin, "users": [{"name": self.admin["users"][0]["name"], "user": {"token": token}}]}
        place = self.folder / f"of-{node}"
        place.write_text(yaml.safe_dump(config))
        return place

    def answer(self, token: Path, write: Write, node: str) -> str:
        """What the API server says to this write to this node's object: empty if it takes it."""

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
    # its policies and roles are the whole cluster's: those of an installation that is called podium are left alone
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
            about = {"name": f"{namespace}-{node}"}
            room = {"cpu": "8", "memory": "8Gi", "pods": "10"}
            status = {"capacity": room, "allocatable": room}
            machine = {"apiVersion": "v1", "kind": "Node", "metadata": about, "status": status}
            kubectl("create", "-f", "-", given=json.dumps(machine))
            for pod in ("agent", "trial"):
                kubectl("create", "-f", "-", given=json.dumps(_pod(f"{pod}-{node}", about["name"], account)))
            gpunode = {"apiVersion": "podium.dev/v1alpha1", "kind": "GPUNode", "metadata": about, "spec": {}}
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
    """All that an agent writes of a node, by what it is; each with a value of its own, so that it is a change."""

    def fresh() -> str:
        return uuid.uuid4().hex

    async def condition(api: Api, node: str) -> None:
        entry = {"type": "podium.dev/Suspended", "status": "False", "reason": "Running", "message": fresh()}
        patch = {"status": {"conditions": [entry]}}
        await api.patch(
            PODS, f"trial-{node}", namespace, patch, manager="podium-agent", subresource="status", strategic=True
        )

    async def resize(api: Api, node: str) -> None:
        cpu = f"{10 + uuid.uuid4().int % 80}m"
        patch = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}
        await api.patch(
            PODS, f"trial-{node}", namespace, patch, manager="podium-agent", subresource="resize", strategic=True
        )

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
def test_an_agent_writes_to_its_own_node_alone(site: Site, what: str) -> None:
    write, token = writes(site.namespace)[what], site.token("node-a")
    assert "NodeMismatch: the agent's token is of node" in refused(site, token, write, "node-b")
    assert site.answer(token, write, "node-a") == ""


def test_a_token_that_names_no_node_writes_nowhere(site: Site) -> None:
    """Made by hand, or for a pod that is on no node."""
    token = site.token(None)
    for write in writes(site.namespace).values():
        assert "the agent's token is of node ''" in refused(site, token, write, "node-a")


def test_others_are_not_concerned(site: Site) -> None:
    place = site.folder / "admin"
    place.write_text(yaml.safe_dump(site.admin))
    for write in writes(site.namespace).values():
        for node in ("node-a", "node-b"):
            assert site.answer(place, write, node) == ""


def refused(site: Site, token: Path, write: Write, node: str) -> str:
    """By the policy: the API server begins to heed it, and the account's rights, a moment after they were made."""
    end = time.monotonic() + 60
    while "NodeMismatch" not in (said := site.answer(token, write, node)):
        assert time.monotonic() < end, said or "taken"
        time.sleep(0.1)
    return said
