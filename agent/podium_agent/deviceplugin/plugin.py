"""Serve a device plugin and keep it registered across restarts of the kubelet: one task for each resource.

A kubelet that starts deletes all files in its folder, forgets its plugins and creates its own socket. It then admits
the running pods again, and fails them if their devices are not advertised by then. It exempts containers that run, but
not a trial that has not started yet, nor a gate that has ended and had a slot, as in an earlier release. In a test this
was 0.8 s after it had created its socket, on a slow node 0.4 s. So the plugin loses no time:

- The kernel reports the kubelet's new socket (`folder_watch`).
- The server never stops. Its socket is in a folder of its own, which a kubelet leaves alone. The name that the kubelet
  expects is a hard link to it, which is made again.
- The list of the devices is sent as soon as the kubelet asks. It is never empty while the devices are known.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from pathlib import Path

import grpc

from podium_agent.deviceplugin.folder_watch import FolderWatch
from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.proto import deviceplugin_pb2_grpc as rpc
from podium_agent.deviceplugin.servicer import DevicePluginService
from podium_agent.observe.pod_resources import CHANNEL_OPTIONS
from podium_agent.observe.telemetry import Telemetry
from podium_agent.settings import AgentSettings
from podium_core.domain.backoff import backoff_pause

log = logging.getLogger(__name__)
SERVED_FOLDER = ".podium"  # in the kubelet's folder: the kubelet removes files there, not folders
RETRY_SECONDS = 0.2
FIRST_PAUSE = 0.001
MANY_REFUSALS = 12  # two seconds: no kubelet is about to listen
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
        name = resource.replace("podium.dev/", "podium-").replace("/", "-")
        self._folder = settings.plugin_dir
        self._socket = settings.plugin_dir / f"{name}.sock"
        self._served = settings.plugin_dir / SERVED_FOLDER / name.removeprefix("podium-")
        self._kubelet = settings.plugin_dir / "kubelet.sock"
        self.trouble: str | None = "NotRegistered: the driver has not reported a GPU yet"

    async def run(self) -> None:
        """Serve and register until cancelled."""
        watch = FolderWatch(self._folder)
        self._telemetry.subscribe(watch.wake)
        try:
            while not self._servicer.ready:
                # a first list without GPUs would remove the devices that the kubelet still knows from before this start
                self.trouble = f"NotRegistered: {self._telemetry.reading.trouble or 'the driver reports no GPU'}"
                await watch.wait()
            while True:
                try:
                    await self._serve(watch)
                except (OSError, RuntimeError) as error:
                    await self._pause(error, watch)
        finally:
            watch.close()

    async def _serve(self, watch: FolderWatch) -> None:
        """Serve, and register with every new kubelet. Raises OSError, also if the server's own socket is gone."""
        self._served.parent.mkdir(mode=0o700, exist_ok=True)
        self._served.unlink(missing_ok=True)
        server = make_server(self._servicer, self._served)
        await server.start()
        try:
            while True:
                try:
                    await self._stay_registered(watch)
                except grpc.RpcError as error:
                    await self._pause(error, watch)
        finally:
            self._socket.unlink(missing_ok=True)
            # the kubelet's open stream would block a graceful stop
            await server.stop(grace=None)

    async def _stay_registered(self, watch: FolderWatch) -> None:
        """Register, and return when the kubelet no longer knows the plugin. Raises OSError and RpcError."""
        kubelet = await self._listening_kubelet(watch)
        self._socket.unlink(missing_ok=True)
        os.link(self._served, self._socket)
        await self._register()
        self.trouble = None
        log.info("registered %s with the kubelet", self._resource)
        watched_at = time.monotonic()
        while _inode(self._kubelet) == kubelet and _is_same(self._socket, self._served):
            await watch.wait()
            now = time.monotonic()
            watched_at = now if self._servicer.streams else watched_at
            if now - watched_at > UNWATCHED_SECONDS:
                break
        self.trouble = "NotRegistered: the kubelet restarted; registering again"
        log.info("the kubelet no longer knows %s; registering again", self._resource)

    async def _listening_kubelet(self, watch: FolderWatch) -> tuple[int, int]:
        """Wait until the kubelet listens, and return its socket.

        The file of the socket exists a moment before. A gRPC channel that is refused would wait for a second.
        """
        refusals = 0
        while True:
            kubelet = _inode(self._kubelet)
            refusal = _refusal(self._kubelet)
            if kubelet is not None and refusal is None:
                return kubelet
            if refusals == MANY_REFUSALS:
                self._report(f"the kubelet at {self._kubelet} does not accept the plugin ({refusal})")
            refusals += 1
            await watch.wait(backoff_pause(refusals, FIRST_PAUSE, RETRY_SECONDS))

    async def _pause(self, error: Exception, watch: FolderWatch) -> None:
        """Report the error, and wait for a while or until the folder changes."""
        code = error.code() if isinstance(error, grpc.aio.AioRpcError) else type(error).__name__
        self._report(f"the kubelet at {self._kubelet} does not accept the plugin ({code})")
        watch.forget()  # the plugin's own changes
        await watch.wait(RETRY_SECONDS)

    def _report(self, trouble: str) -> None:
        self.trouble = f"NotRegistered: {trouble}"
        log.warning("%s", self.trouble)

    async def _register(self) -> None:
        options = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))  # no pause after an earlier refusal
        async with grpc.aio.insecure_channel(f"unix://{self._kubelet}", options=options) as channel:
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


def make_server(servicer: DevicePluginService, path: Path) -> grpc.aio.Server:
    """Return a server on a new Unix socket, for root alone, with bounds on its connections and calls."""
    server = grpc.aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
    rpc.add_DevicePluginServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"unix://{path}")
    path.chmod(0o600)  # before the server accepts a connection
    return server


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _refusal(path: Path) -> str | None:
    """Return why no program accepts a connection to a Unix socket now, or None if one does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except OSError as error:
            return type(error).__name__
    return None
