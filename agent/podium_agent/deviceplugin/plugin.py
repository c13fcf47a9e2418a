"""Serve a device plugin and keep it registered across restarts of the kubelet: one task for each resource.

A kubelet that starts deletes all sockets in its folder and forgets its plugins, so this task checks the sockets often.
The kubelet then admits the running pods again, and fails them if their devices are not advertised by then. In a test
this was 0.8 s after the kubelet had created its own socket. The kubelet requires a plugin to serve before it registers.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import grpc

from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.proto import deviceplugin_pb2_grpc as rpc
from podium_agent.deviceplugin.servicer import DevicePluginService
from podium_agent.observe.pod_resources import CHANNEL_OPTIONS
from podium_agent.observe.telemetry import Telemetry
from podium_agent.settings import AgentSettings

log = logging.getLogger(__name__)
POLL_SECONDS = 0.05  # two stat calls
RETRY_SECONDS = 0.2
UNWATCHED_SECONDS = 10.0
CALL_SECONDS = 5.0
MAX_CALLS = 64  # the kubelet has one stream, and a call for each pod that starts
MAX_CONNECTIONS = 16  # the kubelet has one; the server closes any more at once
IDLE_SECONDS = 60  # the kubelet's connection is never idle, because of its stream
HANDSHAKE_SECONDS = 10
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", 2**20),
    ("grpc.max_metadata_size", 2**14),
    ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
    ("grpc.max_concurrent_streams", MAX_CALLS),
    ("grpc.max_connection_idle_ms", IDLE_SECONDS * 1000),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
)


class DevicePlugin:
    """Device plugin of one resource, after which its socket is named; `servicer` answers the kubelet."""

    def __init__(
        self, settings: AgentSettings, telemetry: Telemetry, resource: str, servicer: DevicePluginService
    ) -> None:
        self._telemetry = telemetry
        self._resource = resource
        self._servicer = servicer
        self._socket = settings.plugin_dir / f"{resource.replace('podium.dev/', 'podium-').replace('/', '-')}.sock"
        self._kubelet = settings.plugin_dir / "kubelet.sock"
        self.trouble: str | None = "NotRegistered: the driver has not reported a GPU yet"

    async def run(self) -> None:
        """Serve and register until cancelled."""
        while not self._servicer.ready:
            # a first list without GPUs would remove the devices that the kubelet still knows from before this start
            self.trouble = f"NotRegistered: {self._telemetry.reading.trouble or 'the driver reports no GPU'}"
            await asyncio.sleep(RETRY_SECONDS)
        while True:
            try:
                await self._serve_until_unregistered()
            except (OSError, RuntimeError, grpc.RpcError) as error:
                code = error.code() if isinstance(error, grpc.aio.AioRpcError) else type(error).__name__
                self.trouble = f"NotRegistered: the kubelet at {self._kubelet} does not accept the plugin ({code})"
                log.warning("%s", self.trouble)
                await asyncio.sleep(RETRY_SECONDS)

    async def _serve_until_unregistered(self) -> None:
        kubelet = _inode(self._kubelet)
        if kubelet is None:
            raise FileNotFoundError(f"{self._kubelet} does not exist")
        self._socket.unlink(missing_ok=True)
        server = make_server(self._servicer, self._socket)
        await server.start()
        try:
            await self._register()
            own_socket = _inode(self._socket)
            self.trouble = None
            log.info("registered %s with the kubelet", self._resource)
            unwatched_seconds = 0.0
            while True:
                await asyncio.sleep(POLL_SECONDS)
                unwatched_seconds = unwatched_seconds + POLL_SECONDS if self._servicer.streams == 0 else 0.0
                if (
                    _inode(self._kubelet) != kubelet
                    or _inode(self._socket) != own_socket
                    or unwatched_seconds > UNWATCHED_SECONDS
                ):
                    break
            self.trouble = "NotRegistered: the kubelet restarted; registering again"
            log.info("the kubelet no longer knows %s; registering again", self._resource)
        finally:
            # the kubelet's open stream would block a graceful stop
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


def make_server(servicer: DevicePluginService, socket: Path) -> grpc.aio.Server:
    """Return a server on a new Unix socket, for root alone, with bounds on its connections and calls."""
    server = grpc.aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
    rpc.add_DevicePluginServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"unix://{socket}")
    socket.chmod(0o600)  # before the server accepts a connection
    return server


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns
