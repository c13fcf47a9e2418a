"""The folders of gates: filled before an allocation is answered, served by each agent, and left clean."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from agent_builders import Machine

from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.servicer import SlotService
from podium_agent.observe.gpu_health import Gpu, Reading, Sample
from podium_agent.observe.pods import parse
from podium_agent.observe.telemetry import Telemetry
from podium_agent.schedule import gate_folders
from podium_agent.schedule.exclusive_allocations import parse_pod
from podium_agent.schedule.gate import Gates
from podium_agent.schedule.gate_folders import GateFolders
from podium_cluster.client import Api, ApiError
from podium_cluster.object_store import ObjectStore
from podium_cluster.watch import WatchCache

UID = "5f0a4d0e-0000-4000-8000-{:012d}"
SECONDS = 60.0


def payload(number: int = 1, *, volume: bool = True, phase: str = "Pending") -> dict[str, Any]:
    """A trial's pod as the API server shows it; without `volume` its gate has a slot."""
    owner = {
        "apiVersion": "podium.dev/v1alpha1",
        "kind": "HyperParamTrial",
        "name": "a",
        "uid": "u",
        "controller": True,
    }
    about = {"name": f"a-{number}", "namespace": "demo", "uid": UID.format(number), "labels": {"podium.dev/trial": "a"}}
    spec: dict[str, Any] = {"initContainers": [{"name": "podium-gate"}], "containers": [{"name": "train"}]}
    spec["volumes"] = [{"name": "podium-gate", "emptyDir": {}}] if volume else []
    created = {"creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [owner]}
    return {"metadata": about | created, "spec": spec, "status": {"phase": phase}}


class Watch(ObjectStore[Any]):
    """A watch that a test moves on."""

    def show(self, *payloads: dict[str, Any]) -> None:
        for one in payloads:
            self._change("MODIFIED", one)
        self._synced.set()

    def remove(self, one: dict[str, Any]) -> None:
        self._change("DELETED", one)


@dataclass
class Scene:
    """A node with its API server, whose list may be ahead of the agent's watches, and with one agent at a time."""

    machine: Machine
    listed: list[dict[str, Any]] = field(default_factory=list)
    away: bool = False
    refusals: int = 0  # calls of listen that fail for want of a descriptor

    def __post_init__(self) -> None:
        (self.machine.folder / "helper").write_bytes(b"the helper")
        self.settings = self.machine.settings(helper=self.machine.folder / "helper")
        self.settings.pods_dir.mkdir()
        self.gates = Gates(self.machine.folder / "proc", lambda: None)

    async def list(self, *_: Any, labels: str, fields: str) -> dict[str, Any]:
        assert (labels, fields) == ("podium.dev/trial", "spec.nodeName=n")
        if self.away:
            raise ApiError(0, "Unreachable", "the API server is away")
        return {"items": list(self.listed)}

    def folder(self, number: int = 1) -> Path:
        return self.settings.pods_dir / UID.format(number) / "volumes/kubernetes.io~empty-dir/podium-gate"

    def files(self, number: int = 1) -> set[str]:
        with suppress(FileNotFoundError):
            return {path.name for path in self.folder(number).iterdir()}
        return set()

    @asynccontextmanager
    async def agent(self, *payloads: dict[str, Any]) -> AsyncIterator[GateFolders]:
        """An agent whose watches have shown these pods."""
        self.trials, self.pods = Watch("Pod", parse), Watch("Pod", parse_pod)
        caches = (cast("WatchCache[Any]", one) for one in (self.trials, self.pods))
        made = GateFolders(self.settings, cast(Api, self), *caches, self._listen)
        self.servers: list[asyncio.Server] = []
        running = asyncio.create_task(made.run())
        try:
            for watch in (self.trials, self.pods):
                watch.show(*payloads)
            yield made
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            for server in self.servers:
                server.close()

    async def _listen(self, listener: Any) -> asyncio.Server:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.servers.append(await self.gates.listen(listener))
        return self.servers[-1]

    async def answers(self, number: int = 1) -> bool:
        """Return whether an agent serves a gate in the folder. This process is in no pod."""
        before = os.getcwd()
        try:
            os.chdir(self.folder(number))
            reader, writer = await asyncio.open_unix_connection("agent.sock")  # the whole path may be too long
        except OSError:
            return False
        finally:
            os.chdir(before)
        writer.write(b"gate\n")
        line = await asyncio.wait_for(reader.readline(), SECONDS)
        writer.close()
        return line.startswith(b"wait UnknownPod")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - files and tasks change it
            await asyncio.sleep(0.01)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(Machine(tmp_path))


def test_an_allocation_is_answered_after_the_gate_has_its_files(scene: Scene) -> None:
    """The kubelet knows the pod before the agent's watch does."""
    telemetry = Telemetry(1.0, 1.0)
    telemetry.reading = Reading(gpus=(Gpu(Sample("GPU-0", 0), 0.0, "Healthy"),))
    slots = SlotService(scene.settings, telemetry)
    scene.listed = [payload(1), payload(2, volume=False), payload(3, phase="Failed")]
    asked = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=["GPU-0::1"])])

    async def play() -> None:
        async with scene.agent() as agent:
            slots.fill_gates = agent.fill
            await slots.Allocate(asked, None)
            assert scene.files(1) == {"podium-gate", "agent.sock"}
            assert (scene.folder() / "podium-gate").read_bytes() == b"the helper"
            assert (scene.folder() / "podium-gate").stat().st_mode & 0o777 == 0o755
            assert (scene.folder() / "agent.sock").stat().st_mode & 0o777 == 0o777, "a trial runs as any user"
            assert await scene.answers()
            assert scene.files(2) == scene.files(3) == set()
            socket = (scene.folder() / "agent.sock").stat().st_ino
            await slots.Allocate(asked, None)  # of another pod
            assert (scene.folder() / "agent.sock").stat().st_ino == socket

    asyncio.run(play())


def test_without_the_api_server_the_pods_of_the_watch_get_their_files(scene: Scene) -> None:
    async def play() -> None:
        scene.away = True
        async with scene.agent(payload()) as agent:
            await agent.fill()
            assert await scene.answers()

    asyncio.run(play())


def test_the_next_agent_serves_the_folders_that_it_finds_and_makes_no_others(scene: Scene) -> None:
    async def play() -> None:
        scene.listed = [payload()]
        async with scene.agent(payload()) as agent:
            await agent.fill()
        assert not await scene.answers()
        async with scene.agent(payload(), payload(2)):
            await until(lambda: len(scene.servers) == 1)
            assert await scene.answers()
            assert scene.files(2) == set(), (
                "the kubelet may not know the pod yet, and would take the folder for a leftover"
            )

    asyncio.run(play())


def test_a_pod_that_has_ended_leaves_no_files(scene: Scene) -> None:
    """The kubelet removes the empty folders of a pod that it never started, but no files."""

    async def play() -> None:
        scene.listed = [payload(1), payload(2), payload(3)]
        async with scene.agent() as agent:
            await agent.fill()
            scene.trials.show(payload(1), payload(2))
            scene.trials.show(payload(1, phase="Failed"))
            scene.trials.remove(payload(2))
            scene.listed = []
            await agent.fill()  # the third pod was deleted before the watch showed it
            await until(lambda: not (scene.files(1) | scene.files(2) | scene.files(3)))
            assert scene.folder(1).is_dir()

    asyncio.run(play())


def test_a_gate_that_cannot_be_served_again_ends_no_other(scene: Scene) -> None:
    """The files of a gate were removed, and the agent has no descriptor left to listen again."""

    async def play() -> None:
        scene.listed = [payload(1)]
        async with scene.agent(payload(1)) as agent:
            await agent.fill()
            await until(lambda: bool(scene.files(1)))
            (scene.folder(1) / "agent.sock").unlink()
            scene.refusals = 1
            await agent.fill()
            scene.trials.remove(payload(1))
            scene.listed = [payload(2)]
            scene.trials.show(payload(2))
            await agent.fill()
            assert await scene.answers(2)

    asyncio.run(play())


def test_a_new_agent_removes_the_files_of_pods_that_are_gone(scene: Scene) -> None:
    async def play() -> None:
        scene.listed = [payload(1), payload(2)]
        async with scene.agent(payload(1), payload(2)) as agent:
            await agent.fill()
        async with scene.agent(payload(2)):
            await until(lambda: not scene.files(1))
            assert scene.files(2) == {"podium-gate", "agent.sock"}

    asyncio.run(play())


def test_a_link_in_place_of_a_folder_or_file_is_not_followed(scene: Scene, tmp_path: Path) -> None:
    async def play() -> None:
        scene.listed = [payload(1), payload(2)]
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        scene.folder(1).parent.mkdir(parents=True)
        scene.folder(1).symlink_to(elsewhere)
        scene.folder(2).mkdir(parents=True)
        for name in ("podium-gate", "agent.sock", gate_folders.FRESH):
            (scene.folder(2) / name).symlink_to(elsewhere / name)
        async with scene.agent() as agent:
            await agent.fill()
            assert list(elsewhere.iterdir()) == []
            assert await scene.answers(2)
            assert not (scene.folder(2) / "podium-gate").is_symlink()

    asyncio.run(play())
