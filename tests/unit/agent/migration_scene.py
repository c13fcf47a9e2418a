"""A suspended trial with a request to migrate it, and a kubelet and a registry that can be made to fail.

Used by the tests of the migration controller and of the garbage collection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from agent_builders import FIRST_PID, pod
from migration_servers import FakeKubelet, FakeRegistry

from podium_agent.migration.container_checkpoint import MigrationTools
from podium_agent.migration.controller import MigrationController
from podium_agent.migration.settings import MigrationSettings
from podium_agent.observe.cgroups import Container, Freezer
from podium_agent.observe.pod_records import PodProcesses, PodRecord
from podium_agent.observe.pods import TrialPod
from podium_agent.report.trial_record import TrialRecord
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import TRIALS, Resource
from podium_core.attempts.usage_ledger import UsageLedger
from podium_core.domain.migration import CONTAINER_CHECKPOINT
from podium_core.schema.gpunode import SlotState
from podium_core.schema.trial import ContainerCheckpoint
from podium_suspension.cuda import ProcessState
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_state_notes import GpuStateNotes
from podium_suspension.processes import CudaProcesses

LATE = "checkpoint-a-0_demo-train-2026-11-22T04:52:25Z.tar"
MINE = "podium-checkpoints/demo/a-0"
SPEC = {"job": "a", "number": 0, "parameters": {}}


class Driver:
    """Calls every process checkpointed."""

    async def states_of(self, targets: tuple[Freezer, ...]) -> dict[int, ProcessState]:
        return {FIRST_PID: ProcessState.CHECKPOINTED}


@dataclass
class Scene:
    """One suspended trial of node n, with a note about its GPU memory; its agent is asked to migrate it to `there`."""

    root: Path
    certificates: Path
    there: str = "there"
    runtimes: dict[str, str] = field(default_factory=lambda: dict.fromkeys(("n", "there"), "containerd://2.1.9"))
    registry_is_there: bool = True
    api_is_there: bool = True
    freeze: Freeze = field(default_factory=lambda: Freeze(5.0))
    registry: FakeRegistry = field(default_factory=FakeRegistry)
    here: bool = True  # its pod is on this node
    trial: dict[str, Any] | None = None  # its status, as the API server has it; None: it is deleted

    def __post_init__(self) -> None:
        cgroup, self.folder = self.root / "c1", self.root / "checkpoints"
        cgroup.mkdir()
        self.folder.mkdir()
        (cgroup / "cgroup.procs").write_text(f"{FIRST_PID}\n")
        self.freezer = Freezer(cgroup, unified=False)
        self.freezer.ask(True)
        self.kubelet = FakeKubelet(self.folder, self.freezer)
        (self.root / "token").write_text("t")
        self.notes = GpuStateNotes(self.root / "gpu-state")
        self.notes.write_held("c1", {"GPU-1": 64})
        self.pod = pod(
            migration__to=self.there,
            settings__methods=("cuda-checkpoint", CONTAINER_CHECKPOINT),
            containers__main="c1",
            containers__running=frozenset({"c1"}),
        )
        containers = {"c1": Container("c1", FIRST_PID, self.freezer)}
        self.record = PodRecord(self.pod, processes=PodProcesses(containers=containers))
        self.trial_record = TrialRecord(self.pod, "n", state=SlotState.SUSPENDED, ledger=UsageLedger())
        self.port = 0

    async def list(self, *_: Any, **__: Any) -> dict[str, Any]:
        if not self.api_is_there:
            raise ApiError(0, "Unreachable", "the API server is away")
        running = {"name": "train", "containerID": "containerd://c1", "imageID": "registry/trial@sha256:1"}
        spec = {"nodeName": "n", "containers": [{"name": "train"}]}
        return {"items": [{"metadata": {"name": "a-0"}, "spec": spec, "status": {"containerStatuses": [running]}}]}

    async def get(self, resource: Resource, name: str, _: str | None = None) -> dict[str, Any]:
        if not self.api_is_there:
            raise ApiError(0, "Unreachable", "the API server is away")
        if resource is TRIALS and self.trial is not None:
            about = {"name": self.pod.key.name, "namespace": "demo", "uid": self.pod.key.uid}
            return {"metadata": about, "spec": SPEC, "status": self.trial}
        if name not in self.runtimes:
            raise ApiError(404, "NotFound", name)
        status = {
            "nodeInfo": {"containerRuntimeVersion": self.runtimes[name], "architecture": "amd64"},
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
        }
        return {"metadata": {"name": name}, "status": status}

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[MigrationController]:
        async with AsyncExitStack() as stack:
            self.port = await stack.enter_async_context(self.kubelet.serve(self.certificates))
            port = await stack.enter_async_context(self.registry.serve())
            self.address = f"127.0.0.1:{port if self.registry_is_there else 1}"  # no server listens at this port
            migration_controller = self.migration_controller()
            try:
                yield migration_controller
            finally:
                await migration_controller.end()

    def migration_controller(self) -> MigrationController:
        """Of an agent that starts, while the kubelet and the registry are served."""
        settings = MigrationSettings(
            registry=self.address,
            kubelet_authority=self.certificates / "ca.crt",
            kubelet_token=self.root / "token",
            checkpoints_dir=self.folder,
            migration_records_dir=self.root / "traces",
            proc=self.root,
        )
        tools = MigrationTools(self.freeze, self.notes, lambda: cast(CudaProcesses, Driver()))
        return MigrationController(
            settings, cast(Api, self), tools, self.pods, lambda _: self.record, lambda _: self.trial_record
        )

    def pods(self) -> list[TrialPod]:
        return [self.pod] if self.here else []

    @property
    def state(self) -> str:
        return (self.freezer.path / "freezer.state").read_text()

    @property
    def archives(self) -> list[str]:
        return [file.name for file in self.folder.glob("*.tar")]


async def settled(migration_controller: MigrationController, now: float = 0.0) -> None:
    """A look, and the end of what it began."""
    await migration_controller.reconcile(now)
    await asyncio.gather(*migration_controller._tasks.values(), return_exceptions=True)
    await migration_controller.reconcile(now)


def answered(scene: Scene) -> ContainerCheckpoint:
    async def ask() -> None:
        async with scene.agent() as migration_controller:
            await settled(migration_controller)

    asyncio.run(ask())
    assert scene.trial_record.container_checkpoint.result is not None
    return scene.trial_record.container_checkpoint.result
