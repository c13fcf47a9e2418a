"""The operator as a real process; the test acts as kubelet and agent.

All communication uses a real API server, and no part of the operator is replaced.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from podium_agent.report.node_reporter import send_heartbeats
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import CLAIMS, EVENTS, GPUNODES, JOBS, NAMESPACES, NODES, PODS, TRIALS

ROOT = Path(__file__).parents[2]
PACKAGES = ("sdk", "core", "cluster", "searchers", "operator")
# the operator holds back slots for a minute for pods without a node, such as those that an earlier test left behind
SECONDS = 90.0


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class OperatorProcess:
    """`podium-operator` as a process that tests can kill and start again."""

    def __init__(self, kubeconfig: Path, log: Path, **environment: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self._port = server.getsockname()[1]
        self._kubeconfig = kubeconfig
        self._log = log
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = os.pathsep.join(str(ROOT / package) for package in PACKAGES)
        environment = os.environ | {
            "PYTHONPATH": path,
            "PODIUM_KUBECONFIG": str(self._kubeconfig),
            "PODIUM_HTTP_HOST": "127.0.0.1",
            "PODIUM_HTTP_PORT": str(self._port),
            "PODIUM_LOG_FORMAT": "console",
            "PODIUM_IMAGE": "localhost/podium:test",
            **self._environment,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "podium_operator.main"], env=environment, stderr=log, stdout=log
            )
        deadline = time.monotonic() + 60
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the operator is not ready:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """Send SIGTERM as the kubelet does; return the exit code."""
        return self._end(signal.SIGTERM)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def wait(self) -> int:
        """Wait until the process ends by itself; return the exit code."""
        assert self._process is not None
        return self._process.wait(60)

    def log(self) -> str:
        return self._log.read_text()

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
            text: str = answer.read().decode()
            return text

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(20)
        self._process = None
        return code

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def _ready(self) -> bool:
        try:
            return self.page("/readyz") == "ok\n"
        except (urllib.error.URLError, ConnectionError):
            return False


class Stage:
    """A namespace, and a node with one GPU whose product no job of another test requests."""

    def __init__(self, api: Api, name: str, slots: int = 4) -> None:
        self.api = api
        self.name = name
        self.node = f"node-{name}"
        self.uuid = f"GPU-{name}"
        self.product = f"product-{name}"
        self._slots = slots
        self._known: dict[str, dict[str, Any]] = {}
        self._beat: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Stage:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}}
        await self.api.create(NAMESPACES, namespace, manager="test")
        await self.api.create(NODES, {"metadata": {"name": self.node}}, manager="test")  # else its pods are removed
        await self.api.apply(GPUNODES, {"metadata": {"name": self.node}}, manager="podium-agent")
        beat = send_heartbeats(self.api, node=self.node, namespace="podium-system", seconds=5)
        self._beat = asyncio.create_task(beat)
        await self._write_node()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._beat is not None:
            self._beat.cancel()
        for job in (await self.api.list(JOBS, self.name))["items"]:
            await self.api.delete(JOBS, job["metadata"]["name"], self.name)
        await self.api.delete(GPUNODES, self.node)
        await self.api.delete(NODES, self.node)
        await self.api.delete(NAMESPACES, self.name)

    # actions of a user

    async def claim(self, name: str, mode: str) -> None:
        manifest = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": self.name},
            "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
        }
        await self.api.create(CLAIMS, manifest, manager="test")

    async def submit(self, name: str = "sweep", **spec: Any) -> None:
        default: dict[str, Any] = {
            "objective": {"metric": "acc", "direction": "maximize"},
            "parameters": [{"name": "lr", "min": 0.001, "max": 0.1, "scale": "log"}],
            "search": {"seed": 3},
            "trials": {"max": 3, "parallel": 2, "maxSteps": 10},
            "policy": {"name": "fifo"},
            "gpus": {"perTrial": 1, "products": [self.product]},
            "template": {"spec": {"containers": [{"name": "main", "image": "i", "command": ["t", "$(podium.args)"]}]}},
        }
        manifest = {
            "apiVersion": "podium.dev/v1alpha1",
            "kind": "HyperParamJob",
            "metadata": {"name": name, "namespace": self.name},
            "spec": default | spec,
        }
        await self.api.create(JOBS, manifest, manager="test")

    async def edit(self, name: str = "sweep", **spec: Any) -> None:
        await self.api.patch(JOBS, name, self.name, {"spec": spec}, manager="test")

    # state of the cluster

    async def job(self, name: str = "sweep") -> dict[str, Any]:
        found: dict[str, Any] = await self.api.get(JOBS, name, self.name)
        return found

    async def status(self, name: str = "sweep") -> dict[str, Any]:
        return (await self.job(name)).get("status", {})

    async def trials(self) -> dict[str, dict[str, Any]]:
        return {t["metadata"]["name"]: t for t in (await self.api.list(TRIALS, self.name))["items"]}

    async def phases(self) -> dict[str, str]:
        return {name: trial.get("status", {}).get("phase", "") for name, trial in (await self.trials()).items()}

    async def pods(self) -> dict[str, dict[str, Any]]:
        return {p["metadata"]["name"]: p for p in (await self.api.list(PODS, self.name))["items"]}

    async def run_queue(self) -> list[str]:
        """Return the trials of the GPU's run queue."""
        spec = (await self.api.get(GPUNODES, self.node)).get("spec", {})
        return [entry["trial"] for gpu in spec.get("gpus", []) for entry in gpu["runQueue"]]

    async def epoch(self) -> int:
        return int((await self.api.get(GPUNODES, self.node)).get("spec", {}).get("epoch", 0))

    async def events(self) -> set[tuple[str, str]]:
        """Return (name of the object, reason) of all events."""
        items = (await self.api.list(EVENTS, self.name))["items"]
        return {(event["involvedObject"]["name"], event["reason"]) for event in items}

    async def wait_for_events(self, *expected: tuple[str, str], play: bool = True) -> None:
        """Wait for events, given as (name of the object, reason). They are written after the status."""

        async def written() -> bool:
            return set(expected) <= await self.events()

        await self.until(f"the events {expected}", written, play=play)

    async def until(self, what: str, condition: Callable[[], Awaitable[bool]], *, play: bool = True) -> None:
        """Wait for a condition; the agent acts meanwhile, unless `play` is false."""
        deadline = time.monotonic() + SECONDS
        while not await condition():
            if time.monotonic() > deadline:
                seen = [(t["metadata"]["name"], t.get("status")) for t in (await self.trials()).values()]
                jobs = [
                    (j["metadata"]["name"], j.get("status")) for j in (await self.api.list(JOBS, self.name))["items"]
                ]
                raise AssertionError(f"not within {SECONDS:g} s: {what}\n{jobs}\n{seen}")
            if play:
                await self.act()
            await asyncio.sleep(0.1)

    # actions of the kubelet and the agent

    async def act(self) -> None:
        """Act as scheduler, kubelet and agent.

        Bind and gate new pods, remove deleted ones, run the first trial of the run queue, suspend its predecessor.
        """
        pods = await self.pods()
        uids = {pod["metadata"]["uid"] for pod in pods.values()}  # a new pod may have the name of a deleted one
        self._known = {trial: entry for trial, entry in self._known.items() if entry["podUID"] in uids}
        for name, pod in pods.items():
            if "deletionTimestamp" in pod["metadata"] and pod["spec"].get("nodeName"):
                await self.api.delete(PODS, name, self.name, uid=pod["metadata"]["uid"], grace_seconds=0)
            trial = pod["metadata"]["labels"].get("podium.dev/trial")
            ended = pod["status"].get("phase") in ("Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]
            if trial is None or ended or trial in self._known or not pod["spec"].get("initContainers"):
                continue
            self._known[trial] = {
                "namespace": self.name,
                "trial": trial,
                "uid": pod["metadata"]["ownerReferences"][0]["uid"],
                "pod": name,
                "podUID": pod["metadata"]["uid"],
                "state": "Gated",
                "since": now(),
            }
            await self._bind(name)
            await self._pod(name, phase="Pending", gate={"running": {"startedAt": now()}})
        first = next((trial for trial in await self.run_queue() if trial in self._known), None)
        for trial, entry in self._known.items():
            state = entry["state"]
            if trial == first and state != "Running":
                if state == "Gated":
                    main = {"running": {"startedAt": now()}}
                    await self._pod(entry["pod"], phase="Running", gate=_ended(0), main=main)
                entry["state"] = "Running"
            elif trial != first and state == "Running":
                entry["state"] = "Suspended"
        await self._write_node()

    async def report(self, trial: str, *values: float, **more: Any) -> None:
        """Write a learning curve, one value per step, and `more` fields of the agent's part of the status."""
        points = [{"step": step, "value": value, "time": time.time()} for step, value in enumerate(values, start=1)]
        status = {"curve": {"points": points}, "lastStep": len(values), "lastValue": values[-1], "gpuSeconds": 5.0}
        status |= more
        manifest = {"metadata": {"name": trial, "namespace": self.name}, "status": status}
        await self.api.apply_status(TRIALS, manifest, manager="podium-agent")

    async def finish(self, trial: str, code: int = 0) -> None:
        """End the trial's process with an exit code."""
        names = [n for n, p in (await self.pods()).items() if p["metadata"]["labels"]["podium.dev/trial"] == trial]
        self._known.pop(trial, None)
        phase = "Succeeded" if code == 0 else "Failed"
        await self._pod(max(names), phase=phase, gate=_ended(0), main=_ended(code))
        await self._write_node()

    async def _bind(self, name: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": self.name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }
        await self.api._json("POST", PODS.path(self.name, name, "binding"), body=binding)

    async def _pod(
        self, name: str, *, phase: str, gate: Mapping[str, Any] | None = None, main: Mapping[str, Any] | None = None
    ) -> None:
        status: dict[str, Any] = {"phase": phase}
        if gate is not None:
            status["initContainerStatuses"] = [_container("podium-gate", gate)]
        if main is not None:
            status["containerStatuses"] = [_container("main", main)]
        try:
            await self.api.patch(PODS, name, self.name, {"status": status}, manager="kubelet", subresource="status")
        except ApiError as error:
            if not error.not_found:
                raise

    async def _write_node(self) -> None:
        gpu: dict[str, Any] = {
            "uuid": self.uuid,
            "index": 0,
            "product": self.product,
            "health": "Healthy",
            "slots": self._slots,
            "trials": list(self._known.values()),
        }
        holder = next((entry for entry in self._known.values() if entry["state"] == "Running"), None)
        if holder is not None:
            gpu["holder"] = {key: holder[key] for key in ("namespace", "trial", "uid", "since")}
        manifest = {"metadata": {"name": self.node}, "status": {"gpus": [gpu]}}
        await self.api.apply_status(GPUNODES, manifest, manager="podium-agent")


def _ended(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": now()}}


def _container(name: str, state: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": dict(state)}


async def running(stage: Stage, *trials: str) -> bool:
    phases = await stage.phases()
    return all(phases.get(trial) in ("Running", "Gated", "Suspended") for trial in trials)


Play = Callable[[Stage], Awaitable[None]]
