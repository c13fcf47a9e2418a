"""Keeps a device plugin served and registered, whatever happens to the kubelet: a task of the agent for each resource.

A kubelet that starts deletes all sockets in its folder and forgets its plugins; both are seen by looking often. It
admits the pods that run already anew, and fails them if their devices have not been announced to it by then: from its
registration socket to that moment it was 0.8 s.
The order is the kubelet's: serve first, then register.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import grpc

from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.proto import deviceplugin_pb2_grpc as rpc
from podium_agent.deviceplugin.servicer import Announcer
from podium_agent.observe.telemetry import Telemetry
from podium_agent.settings import AgentSettings

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.05  # two stat calls
RETRY_SECONDS = 0.2
SILENT_SECONDS = 10.0
CALL_SECONDS = 5.0
# the default authority of a unix socket is its escaped path, which Go's HTTP/2 server refuses
CHANNEL_OPTIONS = (("grpc.default_authority", "localhost"),)


class DevicePlugin:
    """`servicer` answers the kubelet for `resource`; its socket is named after that."""

    def __init__(self, settings: AgentSettings, telemetry: Telemetry, resource: str, servicer: Announcer) -> None:
        self._telemetry = telemetry
        self._resource = resource
        self._servicer = servicer
        self._socket = settings.plugin_dir / f"{resource.replace('podium.dev/', 'podium-').replace('/', '-')}.sock"
        self._kubelet = settings.plugin_dir / "kubelet.sock"
        self.trouble: str | None = "NotRegistered: the driver has shown no GPU yet"

    async def run(self) -> None:
        while not self._servicer.ready:
            # a first list without GPUs would take away what the kubelet still remembers from before our restart
            self.trouble = f"NotRegistered: {self._telemetry.reading.trouble or 'the driver shows no GPU'}"
            await asyncio.sleep(RETRY_SECONDS)
        while True:
            try:
                await self._serve_until_forgotten()
            except (OSError, RuntimeError, grpc.RpcError) as error:
                code = error.code() if isinstance(error, grpc.aio.AioRpcError) else type(error).__name__
                self.trouble = f"NotRegistered: the kubelet at {self._kubelet} does not take the plugin ({code})"
                log.warning("%s", self.trouble)
                await asyncio.sleep(RETRY_SECONDS)

    async def _serve_until_forgotten(self) -> None:
        kubelet = _inode(self._kubelet)
        if kubelet is None:
            raise FileNotFoundError(f"{self._kubelet} is not there")
        self._socket.unlink(missing_ok=True)
        server = grpc.aio.server()
        rpc.add_DevicePluginServicer_to_server(self._servicer, server)  # type: ignore[no-untyped-call]
        server.add_insecure_port(f"unix://{self._socket}")
        await server.start()
        try:
            await self._register()
            mine = _inode(self._socket)
            self.trouble = None
            log.info("registered %s with the kubelet", self._resource)
            silent = 0.0
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                silent = silent + LOOK_SECONDS if self._servicer.streams == 0 else 0.0
                if _inode(self._kubelet) != kubelet or _inode(self._socket) != mine or silent > SILENT_SECONDS:
                    break
            self.trouble = "NotRegistered: the kubelet was restarted; registering again"
            log.info("the kubelet has forgotten %s: registering again", self._resource)
        finally:
            # the kubelet's stream would hold up a graceful end
            await server.stop(grace=None)

    async def _register(self) -> None:
        async with grpc.aio.insecure_channel(f"unix://{self._kubelet}", options=CHANNEL_OPTIONS) as channel:
            stub = rpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
            await stub.Register(
                pb.RegisterRequest(
                    version="v1beta1",
                    endpoint=self._socket.name,
                    resource_name=self._resource,
                    options=self._servicer.options,
                ),
                timeout=CALL_SECONDS,
            )


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns
