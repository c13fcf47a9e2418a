"""Registration with a kubelet that starts again and again: real sockets, real gRPC, a real server of the plugin.

`Kubelet` does with its folder what a kubelet does at its start: it removes all files there, creates its socket, and
follows the devices of each plugin that registers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from podium_agent.deviceplugin import folder_watch
from podium_agent.deviceplugin.plugin import SERVED_FOLDER, DevicePlugin
from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.proto import deviceplugin_pb2_grpc as rpc
from podium_agent.deviceplugin.servicer import SlotService
from podium_agent.observe.gpu_health import Gpu, Reading, Sample
from podium_agent.observe.pod_resources import CHANNEL_OPTIONS
from podium_agent.observe.telemetry import Telemetry
from podium_agent.settings import AgentSettings

SECONDS = 40.0
RESTARTS = 20
GPUS = Reading(gpus=(Gpu(Sample("GPU-0", 0), 0.0, "Healthy"),))


class Kubelet(rpc.RegistrationServicer):
    """One kubelet; `lists` holds the numbers of devices of each list that it received."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = grpc.aio.server()
        rpc.add_RegistrationServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._streams: set[asyncio.Task[None]] = set()
        self.lists: list[int] = []
        self.listed = asyncio.Event()

    async def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._folder.iterdir():
            if not path.is_dir():
                path.unlink()
        self._server.add_insecure_port(f"unix://{self._folder / 'kubelet.sock'}")
        await self._server.start()

    async def kill(self) -> None:
        """End, and leave a socket without a listener as a killed kubelet does."""
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        await self._server.stop(None)
        if not (self._folder / "kubelet.sock").exists():
            leave_socket(self._folder)

    async def Register(self, request: Any, context: Any) -> Any:
        task = asyncio.create_task(self._follow(self._folder / request.endpoint))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)
        return pb.Empty()

    async def _follow(self, endpoint: Path) -> None:
        options = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
        with contextlib.suppress(grpc.RpcError):
            async with grpc.aio.insecure_channel(f"unix://{endpoint}", options=options) as channel:
                async for answer in rpc.DevicePluginStub(channel).ListAndWatch(pb.Empty()):  # type: ignore[no-untyped-call]
                    self.lists.append(len(answer.devices))
                    self.listed.set()


def leave_socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(folder / "kubelet.sock"))


@dataclass
class Node:
    """A node with a plugin that runs."""

    folder: Path
    plugin: DevicePlugin
    telemetry: Telemetry
    kubelets: list[Kubelet] = field(default_factory=list)

    async def start_kubelet(self) -> Kubelet:
        self.kubelets.append(Kubelet(self.folder))
        await self.kubelets[-1].start()
        return self.kubelets[-1]

    async def until_trouble(self, text: str) -> None:
        while text not in (self.plugin.trouble or ""):  # noqa: ASYNC110 - the plugin sets it
            await asyncio.sleep(0.01)


Scene = Callable[[Node], Awaitable[None]]


def play(folder: Path, scene: Scene, reading: Reading = GPUS) -> None:
    """Play a scene with a plugin that runs on a node with two slots of one GPU."""

    async def inside() -> None:
        telemetry = Telemetry(1.0, 1.0)
        telemetry.reading = reading
        settings = AgentSettings(node_name="n", slots_per_gpu=2, plugin_dir=folder)
        plugin = DevicePlugin(settings, telemetry, settings.resource, SlotService(settings, telemetry))
        node = Node(folder, plugin, telemetry)
        running = asyncio.create_task(plugin.run())
        try:
            async with asyncio.timeout(SECONDS):
                await scene(node)
            assert not running.done(), running
        finally:
            running.cancel()
            await asyncio.gather(running, *(kubelet.kill() for kubelet in node.kubelets), return_exceptions=True)

    asyncio.run(inside())


def tell(telemetry: Telemetry, reading: Reading) -> None:
    telemetry.reading = reading
    telemetry._tell()


@pytest.mark.parametrize("inotify", [True, False])
def test_every_new_kubelet_gets_the_devices_from_the_same_server(
    tmp_path: Path, inotify: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(folder: Path) -> int:
        raise OSError(24, "Too many open files", str(folder))

    if not inotify:
        monkeypatch.setattr(folder_watch, "_inotify", refuse)
    caplog.set_level(logging.INFO)

    async def scene(node: Node) -> None:
        servers = set()
        for _number in range(RESTARTS if inotify else 3):
            kubelet = await node.start_kubelet()
            await kubelet.listed.wait()
            assert kubelet.lists == [2], "no empty list before it"
            while node.plugin.trouble is not None:  # noqa: ASYNC110 - the plugin sets it
                await asyncio.sleep(0.01)
            servers.add(os.stat(node.folder / SERVED_FOLDER / "gpu").st_ino)
            await kubelet.kill()
        assert len(servers) == 1

    play(tmp_path, scene)
    warnings = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(warnings) == (0 if inotify else 1), warnings
    assert list((tmp_path / SERVED_FOLDER).iterdir()) == []


def test_it_waits_for_a_kubelet_that_does_not_listen_yet(tmp_path: Path) -> None:
    """The file of a socket exists before a program listens, and after a program was killed."""
    leave_socket(tmp_path)

    async def scene(node: Node) -> None:
        await node.until_trouble("ConnectionRefusedError")
        assert not (node.folder / "podium-gpu.sock").exists()
        kubelet = await node.start_kubelet()
        await kubelet.listed.wait()
        assert kubelet.lists == [2]

    play(tmp_path, scene)


def test_it_registers_as_soon_as_the_driver_reports_gpus(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        kubelet = await node.start_kubelet()
        await node.until_trouble("NotRegistered: DriverMissing: none")
        assert kubelet.lists == [], "a list without GPUs would remove them from a running kubelet"
        tell(node.telemetry, GPUS)
        await kubelet.listed.wait()
        assert kubelet.lists == [2]

    play(tmp_path, scene, Reading(trouble="DriverMissing: none"))


@pytest.mark.parametrize("lost", ["podium-gpu.sock", f"{SERVED_FOLDER}/gpu", SERVED_FOLDER, "."])
def test_a_removed_socket_is_made_again(tmp_path: Path, lost: str) -> None:
    """An administrator, or a kubelet that removes folders as well."""

    async def scene(node: Node) -> None:
        kubelet = await node.start_kubelet()
        await kubelet.listed.wait()
        kubelet.listed.clear()
        if lost == ".":
            await kubelet.kill()
            shutil.rmtree(node.folder)
            kubelet = await node.start_kubelet()
        elif lost == SERVED_FOLDER:
            shutil.rmtree(node.folder / lost)
        else:
            (node.folder / lost).unlink()
        await kubelet.listed.wait()
        assert kubelet.lists[-1] == 2
        assert (node.folder / "podium-gpu.sock").samefile(node.folder / SERVED_FOLDER / "gpu")

    play(tmp_path / "device-plugins" if lost == "." else tmp_path, scene)
