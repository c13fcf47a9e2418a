"""A device plugin beside Podium's: it offers a node's GPUs as nvidia.com/gpu to a real kubelet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.proto import deviceplugin_pb2_grpc as rpc
from podium_agent.observe.pod_resources import CHANNEL_OPTIONS

RESOURCE = "nvidia.com/gpu"


class OtherPlugin(rpc.DevicePluginServicer):
    """The plugin, from its registration with the kubelet in `folder` until `stop`."""

    def __init__(self, folder: Path, uuids: list[str]) -> None:
        self._uuids = uuids
        self._ended = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4))
        rpc.add_DevicePluginServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        (folder / "other.sock").unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix://{folder}/other.sock")
        self._server.start()
        with grpc.insecure_channel(f"unix://{folder}/kubelet.sock", options=CHANNEL_OPTIONS) as channel:
            stub = rpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
            stub.Register(
                pb.RegisterRequest(version="v1beta1", endpoint="other.sock", resource_name=RESOURCE), timeout=10
            )

    def stop(self) -> None:
        """End the plugin, as the deletion of its pod does."""
        self._ended.set()
        self._server.stop(None).wait(10)

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:
        """Return no options."""
        return pb.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:
        """Send the devices once and keep the stream open."""
        yield pb.ListAndWatchResponse(devices=[pb.Device(ID=uuid, health="Healthy") for uuid in self._uuids])
        context.add_callback(self._ended.set)
        self._ended.wait()

    def Allocate(self, request: Any, context: Any) -> Any:
        """Return the environment of each container."""
        answers = [
            pb.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(container.devices_ids)})
            for container in request.container_requests
        ]
        return pb.AllocateResponse(container_responses=answers)
