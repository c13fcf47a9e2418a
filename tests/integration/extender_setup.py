"""An extender and a kube-scheduler of Podium on a control plane without nodes, and their objects.

Used by test_extender and by benchmarks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import yaml

from podium_cluster.client import Api, connect
from podium_cluster.resources import GPUNODES, NODES, PODS, TRIALS, Resource
from podium_cluster.settings import ClusterSettings
from podium_devcluster import versions

ROOT = Path(__file__).parents[2]
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
TRIAL_LABEL = "podium.dev/trial"
GIB = 2**30
PATIENCE = 60.0
USUAL = ("idle", "busy", "broken", "a", "b")  # nodes to which pods may be bound, because the cluster may have real ones


def scheduler_version() -> str:
    """Return the version of the kube-scheduler and of the cluster for which the chart is rendered."""
    return os.environ.get("PODIUM_TEST_SCHEDULER") or versions.KUBERNETES


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class ExtenderSetup:
    """A namespace, an extender, and a scheduler with a unique name."""

    kubeconfig: Path
    folder: Path
    binary: Callable[[str], Path]
    scheduler: str = field(default_factory=lambda: f"podium-{uuid.uuid4().hex[:6]}")
    extender_port: int = field(default_factory=free_port)
    health_port: int = field(default_factory=free_port)
    values: str = ""  # values of the chart, in addition to the scheduler's name and the extender's port
    server: str = ""  # address of the API server for the extender; empty: that of the kubeconfig
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return f"ns-{self.scheduler}"

    def node(self, short: str) -> str:
        return f"{self.scheduler}-{short}"

    def start(self, name: str, command: list[str], **env: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as output:
            self.processes[name] = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | env
            )

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait(10)

    @property
    def account(self) -> Path:
        """Return the kubeconfig of the service account that the chart creates for both processes."""
        return self.folder / "account"

    def render(self, template: str) -> str:
        return self.run(
            "helm",
            "template",
            self.scheduler,
            str(ROOT / "charts" / "podium"),
            f"--namespace={self.namespace}",
            f"--show-only=templates/{template}",
            f"--kube-version={scheduler_version()}",  # a helm built from source has no default
            f"--set=scheduler.name={self.scheduler},extender.port={self.extender_port}",
            *([f"--set={self.values}"] if self.values else ()),
        )

    def run(self, tool: str, *arguments: str, given: str | None = None) -> str:
        done = subprocess.run(
            [str(self.binary(tool)), *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig)},
            check=False,
        )
        assert done.returncode == 0, f"{tool} {' '.join(arguments)}:\n{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Create the namespace and the account; at the end stop all processes and delete everything."""

        async def prepare(api: Api) -> None:
            await api.apply(NAMESPACES, {"metadata": {"name": self.namespace}}, manager="test")
            # admission requires it, and its controller may not run here
            account = {"metadata": {"name": "default", "namespace": self.namespace}}
            await api.apply(ACCOUNTS, account, manager="test")

        self.api(prepare)
        try:
            self.make_account()
            yield
        finally:
            for name in list(self.processes):
                self.kill(name)
            self.run("kubectl", "delete", "--wait=false", "-f", "-", given=self.render("scheduler/rbac.yaml"))
            self.api(lambda api: api.delete(NAMESPACES, self.namespace))

    def make_account(self) -> None:
        self.run("kubectl", "apply", "-f", "-", given=self.render("scheduler/rbac.yaml"))
        token = self.run("kubectl", "create", "token", f"{self.scheduler}-scheduler", f"--namespace={self.namespace}")
        config = yaml.safe_load(self.kubeconfig.read_text())
        user = next(c["context"]["user"] for c in config["contexts"] if c["name"] == config["current-context"])
        config["users"] = [{"name": user, "user": {"token": token.strip()}}]
        self.account.write_text(yaml.safe_dump(config))

    def start_extender(self) -> None:
        config = yaml.safe_load(self.account.read_text())
        for cluster in config["clusters"] if self.server else ():
            cluster["cluster"]["server"] = self.server
        path = self.folder / "extender-account"
        path.write_text(yaml.safe_dump(config))
        self.start(
            "extender",
            [sys.executable, "-m", "podium_extender.main"],
            PODIUM_KUBECONFIG=str(path),
            PODIUM_NAMESPACE=self.namespace,
            PODIUM_EXTENDER_PORT=str(self.extender_port),
            PODIUM_HTTP_HOST="127.0.0.1",
            PODIUM_HTTP_PORT=str(self.health_port),
            PODIUM_SCHEDULER_NAME=self.scheduler,
            PODIUM_LOG_FORMAT="console",
            PODIUM_ASSUME_SECONDS="600",  # long enough for slow machines
            PYTHONPATH=os.pathsep.join(sys.path),
        )
        self.wait(self.extender_ready, "the extender is ready")

    def extender_ready(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{self.health_port}/readyz", timeout=5).status_code == 200
        return False

    def extender_knows(self, short: str) -> bool:
        """Return whether the extender has read the GPUNode.

        It does not refuse an unknown node, so the request is for a pod that is too large for any node.
        """
        return bool(self.refusal(short, **{"podium.dev/gpu-memory": str(10**6 * GIB)}))

    def refusal(self, short: str, **annotations: str) -> str:
        """Return why the extender refuses the node for a pod with these annotations; empty: it does not."""
        answer = self._filter([short], annotations=annotations)
        failed: dict[str, str] = answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]
        return failed.get(self.node(short), "")

    def selected_nodes(self, shorts: Sequence[str]) -> list[str]:
        """Return the nodes that the extender returns to kube-scheduler for a trial's pod."""
        answer = self._filter(shorts, labels={TRIAL_LABEL: "probe"})
        return [name.removeprefix(f"{self.scheduler}-") for name in answer["NodeNames"]]

    def _filter(self, shorts: Sequence[str], **metadata: Any) -> dict[str, Any]:
        container = {"name": "c", "resources": {"requests": {"podium.dev/gpu": "1"}}}
        metadata |= {"name": "probe", "namespace": self.namespace, "uid": "probe"}
        pod = {"metadata": metadata, "spec": {"containers": [container]}}
        question = {"Pod": pod, "NodeNames": [self.node(short) for short in shorts]}
        url = f"http://127.0.0.1:{self.extender_port}/filter"
        answer: dict[str, Any] = httpx.post(url, json=question, timeout=10).json()
        return answer

    def metric(self, name: str) -> float:
        """Return a sample of the extender's metrics by its name with labels; 0 if it does not exist yet."""
        page = httpx.get(f"http://127.0.0.1:{self.health_port}/metrics", timeout=5).text
        lines = (line.rsplit(" ", 1) for line in page.splitlines() if line and not line.startswith("#"))
        return next((float(value) for sample, value in lines if sample == name), 0.0)

    def start_scheduler(
        self,
        *,
        with_extender: bool = True,
        calls_per_second: int | None = None,
        patience: str = "",
        gates: str = "",
        **changes: Any,
    ) -> None:
        """Start kube-scheduler with the chart's configuration and this machine's ports and names.

        `calls_per_second` replaces the chart's limit of calls to the API server. `patience` replaces the chart's
        `httpTimeout` of the extender. `gates` are feature gates. `changes` are other changes of the extender's
        configuration.
        """
        rendered = self.render("scheduler/config.yaml")
        config = yaml.safe_load(yaml.safe_load(rendered)["data"]["scheduler.yaml"])
        config["clientConnection"]["kubeconfig"] = str(self.account)
        if calls_per_second is not None:
            config["clientConnection"] |= {"qps": calls_per_second, "burst": calls_per_second}
        for extender in config["extenders"]:
            extender |= ({"httpTimeout": patience} if patience else {}) | changes
        if not with_extender:
            del config["extenders"]
        path = self.folder / "scheduler.yaml"
        path.write_text(yaml.safe_dump(config))
        self.start(
            "scheduler",
            [
                *(str(self.binary("kube-scheduler")), f"--config={path}", f"--secure-port={free_port()}", "--v=2"),
                *([f"--feature-gates={gates}"] if gates else []),
            ],
        )

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (value := condition()):
            for name, process in self.processes.items():
                log = (self.folder / f"{name}.log").read_text()[-3000:] if process.poll() is not None else ""
                assert process.poll() is None, f"{name} ended while waiting until {what}:\n{log}"
            assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
            time.sleep(0.05)
        return value

    def api(self, call: Callable[[Api], Any]) -> Any:
        async def main() -> Any:
            async with connect(ClusterSettings(kubeconfig=self.kubeconfig)) as api:
                return await call(api)

        return asyncio.run(main())

    # objects

    def add_node(self, short: str, *gpus: Mapping[str, Any], slots: int = 4) -> None:
        self.add_nodes({short: gpus}, slots=slots)

    def add_nodes(
        self, nodes: Mapping[str, Sequence[Mapping[str, Any]]], *, slots: int = 4, avoided: Collection[str] = ()
    ) -> None:
        """Create nodes with these GPUs, in this order. `avoided` nodes have a taint `PreferNoSchedule`."""
        amounts = {"cpu": "64", "memory": "64Gi", "pods": "110", "podium.dev/gpu": str(slots)}
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": now()}

        async def put(api: Api) -> None:
            for short, gpus in nodes.items():
                name = self.node(short)
                metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
                taints = [{"key": "podium.dev/test", "effect": "PreferNoSchedule"}] if short in avoided else []
                await api.apply(NODES, {"metadata": metadata, "spec": {"taints": taints}}, manager="test")
                status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
                await api.apply_status(NODES, {"metadata": {"name": name}, "status": status}, manager="test")
                await api.apply(GPUNODES, {"metadata": {"name": name}}, manager="test")
                report = {"updatedAt": now(), "gpus": list(gpus)}
                await api.apply_status(GPUNODES, {"metadata": {"name": name}, "status": report}, manager="podium-agent")

        self.api(put)
        if "extender" in self.processes:
            last = list(nodes)[-1]
            self.wait(lambda: self.extender_knows(last), f"the extender knows {last}")

    def add_pod(
        self,
        *names: str,
        gpus: int = 1,
        on: str | None = None,
        annotations: Mapping[str, str] | None = None,
        high_priority: bool = False,
        trial: bool = True,
        among: Sequence[str] = USUAL,
        affinity: Mapping[str, Any] | None = None,
        volumes: Sequence[Mapping[str, Any]] = (),
        group: str = "",
    ) -> None:
        """Create pods at once.

        Each is the pod of a trial of the same name, unless it has a high priority or `trial` is false. `on` is the only
        node; otherwise the pod may be bound to a node of `among`. `affinity` is added to that. `group`: their PodGroup.
        """
        container: dict[str, Any] = {"name": "c", "image": "none"}
        if gpus:
            amounts = {"podium.dev/gpu": str(gpus)}
            container["resources"] = {"requests": amounts, "limits": amounts}
        spec: dict[str, Any] = {
            "schedulerName": self.scheduler,
            "automountServiceAccountToken": False,
            # no kubelet keeps the nodes ready, so these taints are tolerated; PreferNoSchedule is not
            "tolerations": [{"operator": "Exists", "effect": effect} for effect in ("NoSchedule", "NoExecute")],
            "containers": [container],
            "priorityClassName": "system-cluster-critical" if high_priority else "",
            "affinity": dict(affinity or {}),
            "volumes": list(volumes),
            **({"schedulingGroup": {"podGroupName": group}} if group else {}),
        }
        only = {"requiredDuringSchedulingIgnoredDuringExecution": self.terms([on] if on else among)}
        spec["affinity"]["nodeAffinity"] = only | spec["affinity"].get("nodeAffinity", {})

        async def create(api: Api) -> None:
            metadata = {"namespace": self.namespace, "annotations": dict(annotations or {})}
            pods = [
                {
                    "metadata": metadata
                    | {"name": name, "labels": {TRIAL_LABEL: name} if trial and not high_priority else {}},
                    "spec": spec,
                }
                for name in names
            ]
            await asyncio.gather(*(api.create(PODS, pod, manager="test") for pod in pods))

        self.api(create)

    def add_trial(self, name: str, **status: Any) -> None:
        async def put(api: Api) -> None:
            metadata = {"name": name, "namespace": self.namespace}
            spec = {"job": "job", "number": 0, "parameters": {}}
            await api.apply(TRIALS, {"metadata": metadata, "spec": spec}, manager="test")
            await api.apply_status(TRIALS, {"metadata": metadata, "status": status}, manager="podium-agent")

        self.api(put)

    def terms(self, shorts: Sequence[str]) -> Mapping[str, Any]:
        """Return a node selector for these nodes."""
        names = [self.node(short) for short in shorts]
        wanted = {"key": "kubernetes.io/hostname", "operator": "In", "values": names}
        return {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}

    def pod(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.api(lambda api: api.get(PODS, name, self.namespace))
        return found

    def bound(self, name: str) -> str:
        found: str = self.wait(lambda: self.pod(name)["spec"].get("nodeName"), f"{name} is bound")
        return found.removeprefix(f"{self.scheduler}-")

    def unschedulable_message(self, name: str, *words: str) -> str:
        """Return why the pod is unschedulable, once the message contains one of these words.

        The first message may be that the scheduler has not seen the node yet. Without words any message is returned.
        """

        def message() -> str:
            conditions = self.pod(name).get("status", {}).get("conditions", [])
            text: str = next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")
            return text if not words or any(word in text for word in words) else ""

        found: str = self.wait(message, f"{name} reports why it is unschedulable ({' or '.join(words)})")
        return found

    def clear(self) -> None:
        async def sweep(api: Api) -> None:
            for pod in (await api.list(PODS, self.namespace))["items"]:
                await api.delete(PODS, pod["metadata"]["name"], self.namespace, grace_seconds=0)
            for trial in (await api.list(TRIALS, self.namespace))["items"]:
                await api.delete(TRIALS, trial["metadata"]["name"], self.namespace)
            for resource in (GPUNODES, NODES):
                for item in (await api.list(resource))["items"]:
                    if item["metadata"]["name"].startswith(f"{self.scheduler}-"):
                        await api.delete(resource, item["metadata"]["name"])

        self.api(sweep)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def gpu(number: int, *, trials: int = 0, **changes: Any) -> Mapping[str, Any]:
    occupants = [
        {
            "namespace": "default",
            "trial": f"t-{number}-{i}",
            "uid": f"{number}-{i}",
            "pod": f"t-{number}-{i}-0",
            "podUID": f"pod-{number}-{i}",
            "state": "Suspended",
            "since": now(),
        }
        for i in range(trials)
    ]
    reading = {"uuid": f"GPU-{number}", "index": 0, "product": "Fake", "memoryTotal": 80 * GIB, "health": "Healthy"}
    return reading | {"slots": 4, "trials": occupants} | changes
