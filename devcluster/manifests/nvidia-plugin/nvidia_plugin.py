"""Stands in for NVIDIA's device plugin on a node of the fake driver: `nvidia.com/gpu`, one device a GPU, its UUID.

    python nvidia_plugin.py PLUGIN_FOLDER [UUID ...]

Test equipment, of test_reservations and of `make kind RESERVATIONS=1`. It knows nothing of Podium: of Podium's code it
uses the
kubelet's own protocol alone (the generated stubs). Without UUIDs NVML is asked for them. Serves until it is ended.
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
    def __init__(self, uuids: list[str]) -> None:
        self._uuids = uuids

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802 (the protocol's names)
        return pb.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802 (the protocol's names)
        yield pb.ListAndWatchResponse(devices=[pb.Device(ID=uuid, health="Healthy") for uuid in self._uuids])
        gone = threading.Event()
        context.add_callback(gone.set)
        gone.wait()

    def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802 (the protocol's names)
        answers = [
            pb.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(ask.devices_ids)})
            for ask in request.container_requests
        ]
        return pb.AllocateResponse(container_responses=answers)


def found() -> list[str]:
    """UUIDs of the node's GPUs."""
    import pynvml

    pynvml.nvmlInit()
    return [
        pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
        for index in range(pynvml.nvmlDeviceGetCount())
    ]


def main(folder: Path, uuids: list[str]) -> None:
    server = grpc.server(ThreadPoolExecutor(4))
    rpc.add_DevicePluginServicer_to_server(Plugin(uuids), server)  # type: ignore[no-untyped-call]
    (folder / "nvidia-gpu.sock").unlink(missing_ok=True)
    server.add_insecure_port(f"unix://{folder}/nvidia-gpu.sock")
    server.start()
    # the default authority of a unix socket is its escaped path, which Go's HTTP/2 server refuses
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix://{folder}/kubelet.sock", options=options) as channel:
        stub = rpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
        wish = pb.RegisterRequest(version="v1beta1", endpoint="nvidia-gpu.sock", resource_name=RESOURCE)
        stub.Register(wish, timeout=10)
    server.wait_for_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or found())
