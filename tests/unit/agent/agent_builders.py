"""Builders for the agent's tests: pods, an API server with one trial, and a machine made of folders."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any, cast

from grouped_values import change

from podium_agent.observe.cgroups import Freezer
from podium_agent.observe.pods import PodContainers, PodGate, PodSettings, TrialPod
from podium_agent.report.trial_status import AGENT_FIELDS
from podium_agent.settings import AgentSettings
from podium_cluster.client import ApiError
from podium_core.domain.keys import TrialKey
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.schema.trial import TrialStatus

FIRST_PID = 5_000_000  # beyond what a kernel gives: no process of this machine is watched by mistake
READING = MetricsConfig.model_validate({"metric": "acc", "direction": "maximize", "container": "train"})


def key(name: str = "a") -> TrialKey:
    return TrialKey("demo", name, f"uid-{name}")


def pod_uid(name: str = "a", attempt: int = 0) -> str:
    """As the kubelet writes it into a cgroup's path: the agent finds what is left of a pod by it."""
    return f"00000000-0000-4000-8000-{int.from_bytes(name.encode()[-2:], 'big'):06x}{attempt:06x}"


def pod(name: str = "a", attempt: int = 0, **changes: object) -> TrialPod:
    """A trial's pod whose gate was passed; `changes` as `change` takes them."""
    base = TrialPod(
        key=key(name),
        name=f"{name}-{attempt}",
        uid=pod_uid(name, attempt),
        attempt=attempt,
        containers=PodContainers(names=("train",)),
        gate=PodGate(passed=True),
        settings=PodSettings(metrics=READING),
    )
    return cast(TrialPod, change(base, **changes))


class TrialServer:
    """The calls that a writer makes of the API for a trial, with the server's own rule for versions.

    The operator has listed the nodes already, unless `status` has `nodes`.
    """

    def __init__(self, name: str = "a", **status: Any) -> None:
        self.key = key(name)
        self.status: dict[str, Any] = {"nodes": ["n", "m"]} | status
        self.version = 1
        self.patches = 0
        self.written: list[dict[str, Any]] = []  # by the agent
        self.conflicts = 0
        self.away = False
        self.refused = 0  # by the admission policy, which knows the nodes from the operator
        self.answers_lost = 0  # number of next patches whose answers are lost

    @property
    def parsed(self) -> TrialStatus:
        return TrialStatus.model_validate(self.status)

    async def get(self, *_: Any) -> dict[str, Any]:
        if self.away:
            raise ApiError(0, "Unreachable", "the API server is away")
        about = {"name": self.key.name, "namespace": self.key.namespace, "uid": self.key.uid}
        return {
            "metadata": about | {"resourceVersion": str(self.version)},
            "spec": {"job": "a", "number": 0, "parameters": {}},
            "status": dict(self.status),
        }

    async def strategic_patch(self, *_: Any, **__: Any) -> None:
        """The pod's conditions."""

    async def apply_status(self, resource: Any, manifest: dict[str, Any], manager: str) -> dict[str, Any]:
        if self.away:
            raise ApiError(0, "Unreachable", "the API server is away")
        if self.status.get("nodes") == []:
            self.refused += 1
            raise ApiError(403, "Forbidden", "NodeMismatch: what it writes is of node ''")
        if manifest["metadata"]["resourceVersion"] != str(self.version):
            self.conflicts += 1
            raise ApiError(409, "Conflict", "the object has been modified")
        self.write(manifest["status"])
        self.patches += 1
        if self.answers_lost > 0:
            self.answers_lost -= 1
            raise ApiError(0, "Timeout", "the answer was lost")
        return await self.get()

    def write(self, status: dict[str, Any]) -> None:
        """An apply by the agent: its fields are these and no others."""
        mine = {field.title().replace("_", "") for field in AGENT_FIELDS}
        mine = {field[0].lower() + field[1:] for field in mine}
        self.status = {field: value for field, value in self.status.items() if field not in mine} | status
        self.written.append(status)
        self.version += 1

    def operator_writes(self, **fields: Any) -> None:
        self.status |= fields
        self.version += 1


class Machine:
    """/proc, the cgroup file system and the logs of a node, as folders: starting a container writes its freezer, and
    its process into /proc. What an agent finds there is all that outlives it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pids = itertools.count(FIRST_PID)
        for name in ("proc", "cgroup", "logs", "roots"):
            (folder / name).mkdir()

    def settings(self, **more: Any) -> AgentSettings:
        given = {
            "node_name": "n",
            "trial_dir": self.folder / "trial",
            "proc": self.folder / "proc",
            "host_root": self.folder / "host",
            "cgroup_root": self.folder / "cgroup",
            "pods_dir": self.folder / "pods",
            "pod_logs": self.folder / "logs",
            "pod_resources_socket": self.folder / "none.sock",
            "log_seconds": 0.01,
            "trial_report_seconds": 0.001,
            "volume_timeout": 60,
        }
        return AgentSettings(**(given | more))

    def run(self, pod: TrialPod, container: str, pid: int | None = None, command: str = "python") -> Freezer:
        """A container of this pod with one process; its root is a folder in which the process has its files."""
        number = next(self.pids) if pid is None else pid
        place = self.folder / "cgroup" / "freezer" / f"pod{pod.uid}" / container
        place.mkdir(parents=True)
        (place / "freezer.state").write_text("THAWED")
        (place / "cgroup.procs").write_text(f"{number}\n")
        process = self.folder / "proc" / str(number)
        process.mkdir()
        (process / "cgroup").write_text(f"6:freezer:/pod{pod.uid}/{container}\n")
        (process / "comm").write_text(f"{command}\n")
        (process / "status").write_text(f"Uid:\t{os.getuid()}\t{os.getuid()}\nGid:\t{os.getgid()}\t{os.getgid()}\n")
        root = self.folder / "roots" / container
        root.mkdir(exist_ok=True)
        (process / "root").symlink_to(root)
        return Freezer(place, unified=False)

    def process(self, place: Path, cmdline: bytes) -> None:
        """One more in that container's cgroup."""
        number = next(self.pids)
        with (place / "cgroup.procs").open("a") as file:
            file.write(f"{number}\n")
        folder = self.folder / "proc" / str(number)
        folder.mkdir()
        (folder / "cmdline").write_bytes(cmdline)

    def end(self, freezer: Freezer) -> None:
        """Its process ends; its root, a mount of its own, is out of sight as well."""
        for number in (freezer.path / "cgroup.procs").read_text().split():
            process = self.folder / "proc" / number
            for file in process.iterdir():
                file.unlink()
            process.rmdir()
        (freezer.path / "cgroup.procs").write_text("")

    def root(self, container: str) -> Path:
        return self.folder / "roots" / container

    def log(self, pod: TrialPod, container: str = "train") -> Path:
        folder = self.folder / "logs" / f"{pod.key.namespace}_{pod.name}_{pod.uid}" / container
        folder.mkdir(parents=True, exist_ok=True)
        return folder / "0.log"


def cri(text: str, second: int = 0) -> str:
    return f"2026-11-21T02:54:{second % 60:02d}.000000001Z stdout F {text}\n"
