"""A stand-in for NVIDIA's device plugin on nodes with the fake driver.

python nvidia_plugin.py PLUGIN_FOLDER [UUID ...]

It provides `nvidia.com/gpu` with one device per GPU, named by the GPU's UUID; without arguments, NVML lists the UUIDs.
It is test equipment and independent of Podium: it imports only the generated stubs of the kubelet's protocol.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.proto import deviceplugin_pb2_grpc as rpc

RESOURCE = "nvidia.com/gpu"


class Plugin(rpc.DevicePluginServicer):
    """The kubelet's device plugin API for these UUIDs."""

    def __init__(self, uuids: list[str]) -> None:
        self._uuids = uuids

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802 (the protocol's names)
        """Return no options."""
        return pb.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802 (the protocol's names)
        """Send the devices once and keep the stream open."""
        yield pb.ListAndWatchResponse(devices=[pb.Device(ID=uuid, health="Healthy") for uuid in self._uuids])
        ended = threading.Event()
        context.add_callback(ended.set)
        ended.wait()

    def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802 (the protocol's names)
        """Return the environment of each container."""
        answers = [
            pb.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(container.devices_ids)})
            for container in request.container_requests
        ]
        return pb.AllocateResponse(container_responses=answers)


def node_uuids() -> list[str]:
    """Return the UUIDs of the node's GPUs."""
    import pynvml

    pynvml.nvmlInit()
    return [
        pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
        for index in range(pynvml.nvmlDeviceGetCount())
    ]


def main(folder: Path, uuids: list[str]) -> None:
    """Serve the plugin and register it with the kubelet."""
    server = grpc.server(ThreadPoolExecutor(4))
    rpc.add_DevicePluginServicer_to_server(Plugin(uuids), server)  # type: ignore[no-untyped-call]
    (folder / "nvidia-gpu.sock").unlink(missing_ok=True)
    server.add_insecure_port(f"unix://{folder}/nvidia-gpu.sock")
    server.start()
    # the default authority of a unix socket is its escaped path, which Go's HTTP/2 server refuses
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix://{folder}/kubelet.sock", options=options) as channel:
        stub = rpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
        registration = pb.RegisterRequest(version="v1beta1", endpoint="nvidia-gpu.sock", resource_name=RESOURCE)
        stub.Register(registration, timeout=10)
    server.wait_for_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or node_uuids())
