"""The sockets of a kubelet as the agent uses them: registration of device plugins, and the devices of each pod."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from podium_agent.deviceplugin.proto import deviceplugin_pb2 as plugin
from podium_agent.deviceplugin.proto import deviceplugin_pb2_grpc as plugin_rpc
from podium_agent.deviceplugin.proto import podresources_pb2 as resources
from podium_agent.deviceplugin.proto import podresources_pb2_grpc as resources_rpc

RESOURCE = "podium.dev/gpu"


class _Registration(plugin_rpc.RegistrationServicer):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def Register(self, request: Any, context: Any) -> Any:
        """Register a device plugin, and follow its devices as long as it serves."""
        threading.Thread(target=self._follow, args=(self._folder / request.endpoint,), daemon=True).start()
        return plugin.Empty()

    def _follow(self, socket: Path) -> None:
        options = (("grpc.default_authority", "localhost"),)
        with contextlib.suppress(grpc.RpcError), grpc.insecure_channel(f"unix://{socket}", options) as channel:
            stub = plugin_rpc.DevicePluginStub(channel)  # type: ignore[no-untyped-call]
            for _ in stub.ListAndWatch(plugin.Empty(), wait_for_ready=True):
                pass


class _PodResources(resources_rpc.PodResourcesListerServicer):
    def __init__(self, devices: Callable[[], Mapping[tuple[str, str], str]]) -> None:
        self._devices = devices

    def GetAllocatableResources(self, request: Any, context: Any) -> Any:
        """Return no device: no other plugin offers GPUs."""
        return resources.AllocatableResourcesResponse()

    def List(self, request: Any, context: Any) -> Any:
        """Return the devices of the pods."""
        found = []
        for (namespace, name), device in self._devices().items():
            devices = resources.ContainerDevices(resource_name=RESOURCE, device_ids=[device])
            containers = [resources.ContainerResources(name="main", devices=[devices])]
            found.append(resources.PodResources(name=name, namespace=namespace, containers=containers))
        return resources.ListPodResourcesResponse(pod_resources=found)


class KubeletSockets:
    """Both sockets; `devices` returns the device of each pod, by (namespace, name)."""

    def __init__(
        self, plugins: Path, pod_resources: Path, devices: Callable[[], Mapping[tuple[str, str], str]]
    ) -> None:
        self._servers = []
        for path in (plugins / "kubelet.sock", pod_resources):
            server = grpc.server(futures.ThreadPoolExecutor(4))
            plugin_rpc.add_RegistrationServicer_to_server(_Registration(plugins), server)  # type: ignore[no-untyped-call]
            resources_rpc.add_PodResourcesListerServicer_to_server(_PodResources(devices), server)  # type: ignore[no-untyped-call]
            server.add_insecure_port(f"unix://{path}")
            server.start()
            self._servers.append(server)

    def close(self) -> None:
        for server in self._servers:
            server.stop(None)
