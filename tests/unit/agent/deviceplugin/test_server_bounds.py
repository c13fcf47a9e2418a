"""A client that opens many connections, calls or streams does not keep the kubelet out. Real server, real clients."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from podium_agent.deviceplugin.plugin import MAX_CALLS, MAX_CONNECTIONS, make_server
from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.proto import deviceplugin_pb2_grpc as rpc
from podium_agent.deviceplugin.servicer import SlotService
from podium_agent.observe.gpu_health import Gpu, Reading, Sample
from podium_agent.observe.pod_resources import CHANNEL_OPTIONS
from podium_agent.observe.telemetry import Telemetry
from podium_agent.settings import AgentSettings

# the beginning of every HTTP/2 connection: the client's preface and its empty settings
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SECONDS = 60.0
Scene = Callable[[Path], Awaitable[None]]


def serve(folder: Path, scene: Scene) -> None:
    """Play a scene on the socket of a server with two slots of one GPU."""

    async def inside() -> None:
        telemetry = Telemetry(1.0, 1.0)
        telemetry.reading = Reading(gpus=(Gpu(Sample("GPU-0", 0), 0.0, "Healthy"),))
        servicer = SlotService(AgentSettings(node_name="n", slots_per_gpu=2), telemetry)
        socket = folder / "slots.sock"
        server = make_server(servicer, socket)
        await server.start()
        try:
            async with asyncio.timeout(SECONDS):
                await scene(socket)
        finally:
            await server.stop(grace=None)

    asyncio.run(inside())


def client(socket: Path) -> grpc.aio.Channel:
    """Return a client with a connection of its own."""
    return grpc.aio.insecure_channel(f"unix://{socket}", (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)))


async def list_devices(channel: grpc.aio.Channel) -> Any:
    """Open a stream of devices as the kubelet does, and return it after its first list."""
    stream = rpc.DevicePluginStub(channel).ListAndWatch(pb.Empty())  # type: ignore[no-untyped-call]
    assert len((await stream.read()).devices) == 2
    return stream


def test_only_root_can_connect(tmp_path: Path) -> None:
    async def scene(socket: Path) -> None:
        assert stat.S_IMODE(os.stat(socket).st_mode) == 0o600

    serve(tmp_path, scene)


def test_connections_over_the_bound_are_closed_and_the_kubelet_keeps_its_own(tmp_path: Path) -> None:
    async def scene(socket: Path) -> None:
        async with client(socket) as kubelet:
            stream = await list_devices(kubelet)
            opened = [await asyncio.open_unix_connection(socket) for _ in range(3 * MAX_CONNECTIONS)]
            for _, writer in opened:
                writer.write(HTTP2)
            closed = [asyncio.create_task(_ended(reader)) for reader, _ in opened]
            while sum(task.done() for task in closed) < len(opened) - (MAX_CONNECTIONS - 1):
                await asyncio.wait([task for task in closed if not task.done()], return_when=asyncio.FIRST_COMPLETED)
            options = await rpc.DevicePluginStub(kubelet).GetDevicePluginOptions(pb.Empty())  # type: ignore[no-untyped-call]
            assert options.get_preferred_allocation_available
            assert sum(task.done() for task in closed) == len(opened) - (MAX_CONNECTIONS - 1)
            stream.cancel()
            for task in closed:
                task.cancel()
            for _, writer in opened:
                writer.close()

    serve(tmp_path, scene)


async def _ended(reader: asyncio.StreamReader) -> None:
    """Wait until the server closes the connection."""
    try:
        while await reader.read(4096):
            pass
    except ConnectionError:
        pass


def test_calls_over_the_bound_are_refused_until_others_end(tmp_path: Path) -> None:
    async def scene(socket: Path) -> None:
        async with client(socket) as greedy, client(socket) as kubelet:
            streams = [await list_devices(greedy) for _ in range(MAX_CALLS)]
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await list_devices(kubelet)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            for stream in streams:
                stream.cancel()
            while not await _served(kubelet):
                pass

    serve(tmp_path, scene)


async def _served(channel: grpc.aio.Channel) -> bool:
    """Return whether the server has a free place for a call."""
    try:
        (await list_devices(channel)).cancel()
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise
        return False
    return True
