"""A small kubelet for the fault tests: it runs the pods of one node as plain processes, each in cgroups of its own.

Real: the processes, their cgroups with the kernel's freezer, the gate helper, the log files in the container runtime's
format, and the kubelet's sockets as the agent uses them. Left out: images, namespaces, probes and hooks. It is also the
scheduler: it binds the pods in the namespace that has the node's name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kubelet_sockets import KubeletSockets

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import LEASES, NODES, PODS

GATE, MAIN = "podium-gate", "main"
POLL_SECONDS = 0.1
BEAT_SECONDS = 10.0
FREEZERS = Path("/sys/fs/cgroup/freezer")


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Container:
    """One container: its process and its cgroup. `code` is its exit code once it has ended."""

    id: str
    cgroup: Path
    process: subprocess.Popen[bytes]
    started_at: str = field(default_factory=now)

    @property
    def state(self) -> dict[str, Any]:
        code = self.process.poll()
        if code is None:
            return {"running": {"startedAt": self.started_at}}
        code = code if code >= 0 else 128 - code
        reason = "Completed" if code == 0 else "Error"
        ended = {"exitCode": code, "reason": reason, "startedAt": self.started_at, "finishedAt": now()}
        return {"terminated": {**ended, "containerID": f"containerd://{self.id}"}}

    def freeze(self, frozen: bool) -> None:
        v1 = self.cgroup / "freezer.state"
        with contextlib.suppress(OSError):
            if v1.exists():
                v1.write_text("FROZEN" if frozen else "THAWED")
            else:
                (self.cgroup / "cgroup.freeze").write_text("1" if frozen else "0")

    @property
    def frozen(self) -> bool:
        v1, v2 = self.cgroup / "freezer.state", self.cgroup / "cgroup.freeze"
        try:
            return v1.read_text().strip() != "THAWED" if v1.exists() else v2.read_text().strip() == "1"
        except OSError:
            return False


@dataclass
class RunningPod:
    """One pod: its containers by name, and when it is killed."""

    manifest: dict[str, Any]
    device: str
    containers: dict[str, Container] = field(default_factory=dict)
    reported: Any = None
    kill_at: float | None = None

    @property
    def name(self) -> str:
        name: str = self.manifest["metadata"]["name"]
        return name


class BareKubelet:
    """The kubelet of `node` below `folder`, with one GPU of a few slots; `clock_ahead`: seconds of its wall clock."""

    def __init__(self, folder: Path, node: str, helper: Path) -> None:
        self.folder, self.node, self.helper, self.clock_ahead = folder, node, helper, 0.0
        self._free: list[str] = []
        self.pods: dict[str, RunningPod] = {}
        base = FREEZERS if FREEZERS.is_dir() else FREEZERS.parent
        self.root = base / f"podium-bare-{os.getpid()}-{node}"
        self.plugins, self.logs = folder / "device-plugins", folder / "pods"
        self.resources_socket, self.gates = folder / "resources.sock", folder / "podium/trial/agent.sock"
        for one in (self.plugins, self.logs, self.gates.parent):
            one.mkdir(parents=True, exist_ok=True)
        self._sockets = KubeletSockets(self.plugins, self.resources_socket, self._devices)

    def set_gpu(self, uuid: str, slots: int = 4) -> None:
        """Set the GPU that pods get slots of."""
        self._free = [f"{uuid}::{number}" for number in range(slots)]

    def close(self) -> None:
        for pod in list(self.pods.values()):
            for container in list(pod.containers.values()):
                self._kill(container)
        self._sockets.close()
        for place in sorted(self.root.rglob("*"), reverse=True):
            if place.is_dir():
                with contextlib.suppress(OSError):
                    place.rmdir()
        with contextlib.suppress(OSError):
            self.root.rmdir()

    def _devices(self) -> dict[tuple[str, str], str]:
        """Return the device of each pod, by (namespace, name)."""
        return {
            (pod.manifest["metadata"]["namespace"], pod.name): pod.device
            for pod in list(self.pods.values())
            if pod.device
        }

    def frozen(self) -> set[str]:
        """Return the pods with a frozen cgroup, by the kernel's files."""
        return {
            pod.name for pod in list(self.pods.values()) if any(one.frozen for one in list(pod.containers.values()))
        }

    def alive(self) -> set[str]:
        """Return the pods with a process."""
        return {
            pod.name
            for pod in list(self.pods.values())
            if any(one.process.poll() is None for one in list(pod.containers.values()))
        }

    async def run(self, api: Api) -> None:
        """Bind, start, report and end pods until cancelled; an API server that is away is tried again."""
        beat_at = 0.0
        while True:
            try:
                if time.monotonic() >= beat_at:
                    await self._beat(api)
                    beat_at = time.monotonic() + BEAT_SECONDS
                await self._pass(api)
            except ApiError as error:
                if not (error.transient or error.not_found or error.conflict):
                    raise
            await asyncio.sleep(POLL_SECONDS)

    async def _beat(self, api: Api) -> None:
        """Report the node as ready: after six minutes of silence its pods would be evicted."""
        at = datetime.now(UTC)
        lease = {"holderIdentity": self.node, "leaseDurationSeconds": 40, "renewTime": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z"}
        about = {"name": self.node, "namespace": "kube-node-lease"}
        await api.apply(LEASES, {"metadata": about, "spec": lease}, manager="kubelet")
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastHeartbeatTime": now()}
        status = {"conditions": [ready | {"lastTransitionTime": now()}]}
        await api.apply_status(NODES, {"metadata": {"name": self.node}, "status": status}, manager="kubelet")

    async def _pass(self, api: Api) -> None:
        listed = {pod["metadata"]["uid"]: pod for pod in (await api.list(PODS, self.node))["items"]}
        for uid, pod in listed.items():
            if not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"] and self._free:
                await self._bind(api, pod)
            elif pod["spec"].get("nodeName") == self.node and uid not in self.pods and _alive(pod) and self._free:
                self.pods[uid] = RunningPod(pod, self._free.pop(0))
        for uid, running in list(self.pods.items()):
            running.manifest = listed.get(uid, running.manifest)
            self._advance(running)
            if uid in listed:
                await self._report(api, running)
            self._end_deleted(running, gone=uid not in listed)
            ended = all(one.process.poll() is not None for one in running.containers.values())
            if running.kill_at is not None and ended:
                if uid in listed:
                    about = running.manifest["metadata"]
                    await api.delete(PODS, about["name"], about["namespace"], uid=uid, grace_seconds=0)
                self._forget(uid)
            elif uid in listed and running.device and not _alive(listed[uid]):
                self._free.append(running.device)
                running.device = ""

    async def _bind(self, api: Api, pod: dict[str, Any]) -> None:
        about = pod["metadata"]
        target = {"apiVersion": "v1", "kind": "Node", "name": self.node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": about["name"]}, "target": target}
        await api._json("POST", PODS.path(about["namespace"], about["name"], "binding"), body=binding)

    def _advance(self, pod: RunningPod) -> None:
        """Start the gate, and once it has let the pod through, the main container."""
        if pod.kill_at is not None or "deletionTimestamp" in pod.manifest["metadata"]:
            return
        spec = pod.manifest["spec"]
        gated = any(one["name"] == GATE for one in spec.get("initContainers", []))
        if gated and GATE not in pod.containers:
            command = [str(self.helper), "gate", "--socket", str(self.gates)]
            self._start(pod, GATE, command, spec["initContainers"][0])
        elif MAIN not in pod.containers and (not gated or pod.containers[GATE].process.poll() == 0):
            main = spec["containers"][0]
            self._start(pod, MAIN, [*main.get("command", []), *main.get("args", [])], main)

    def _start(self, pod: RunningPod, name: str, command: list[str], spec: dict[str, Any]) -> None:
        about, number = pod.manifest["metadata"], uuid.uuid4().hex * 2
        cgroup = self.root / "kubepods" / f"pod{about['uid']}" / number
        cgroup.mkdir(parents=True)
        variables = {one["name"]: one["value"] for one in spec.get("env", []) if "value" in one}
        process = subprocess.Popen(
            ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(cgroup / "cgroup.procs"), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], **variables, "BARE_POD": pod.name},
        )
        folder = self.logs / f"{about['namespace']}_{about['name']}_{about['uid']}" / name
        folder.mkdir(parents=True)
        threading.Thread(target=self._write_log, args=(process, folder / "0.log"), daemon=True).start()
        pod.containers[name] = Container(number, cgroup, process)

    def _write_log(self, process: subprocess.Popen[bytes], path: Path) -> None:
        assert process.stdout is not None
        with process.stdout, path.open("wb") as file:
            for line in process.stdout:
                at = datetime.now(UTC) + timedelta(seconds=self.clock_ahead)
                file.write(f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z stdout F ".encode() + line)
                file.flush()

    async def _report(self, api: Api, pod: RunningPod) -> None:
        gate, main = pod.containers.get(GATE), pod.containers.get(MAIN)
        phase = "Pending" if main is None else "Running"
        if main is not None and main.process.poll() is not None:
            phase = "Succeeded" if main.process.poll() == 0 else "Failed"
        key = (phase, *(one and one.process.poll() for one in (gate, main)), gate is None, main is None)
        if key == pod.reported or pod.manifest["status"].get("phase") in ("Succeeded", "Failed"):
            return
        status: dict[str, Any] = {"phase": phase, "initContainerStatuses": _statuses(GATE, gate)}
        status["containerStatuses"] = _statuses(MAIN, main)
        about = pod.manifest["metadata"]
        await api.patch(
            PODS, about["name"], about["namespace"], {"status": status}, manager="kubelet", subresource="status"
        )
        pod.reported = key

    def _end_deleted(self, pod: RunningPod, *, gone: bool) -> None:
        """Send SIGTERM to a deleted pod, and SIGKILL after its grace period as runc does: it thaws the container."""
        about = pod.manifest["metadata"]
        if pod.kill_at is None and (gone or "deletionTimestamp" in about):
            grace = 0 if gone else about.get("deletionGracePeriodSeconds", 1)
            pod.kill_at = time.monotonic() + grace
            for one in pod.containers.values():
                if one.process.poll() is None:
                    one.process.send_signal(signal.SIGTERM)
        elif pod.kill_at is not None and time.monotonic() >= pod.kill_at:
            for one in pod.containers.values():
                self._kill(one)

    def _kill(self, container: Container) -> None:
        if container.process.poll() is None:
            container.process.kill()
            container.freeze(False)
            container.process.wait(10)

    def _forget(self, uid: str) -> None:
        pod = self.pods.pop(uid)
        if pod.device:
            self._free.append(pod.device)
        for one in pod.containers.values():
            with contextlib.suppress(OSError):
                one.cgroup.rmdir()
        with contextlib.suppress(OSError):
            (self.root / "kubepods" / f"pod{uid}").rmdir()


def _alive(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def _statuses(name: str, container: Container | None) -> list[dict[str, Any]]:
    if container is None:
        return []
    about = {"name": name, "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    return [{**about, "containerID": f"containerd://{container.id}", "state": container.state}]
