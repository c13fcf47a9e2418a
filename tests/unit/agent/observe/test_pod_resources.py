"""Devices that the kubelet reports, over its socket: those of device plugins and those of DRA drivers."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from podium_agent.deviceplugin.proto import podresources_pb2 as pb
from podium_agent.deviceplugin.proto import podresources_pb2_grpc as rpc
from podium_agent.observe.pod_resources import DynamicDevice, KubeletAwayError, PodDevices, all_devices_of_pods

GPU = "nvidia.com/gpu"


class _Kubelet(rpc.PodResourcesListerServicer):
    """A kubelet with a pod of a device plugin, and one with two dynamic resources of one claim."""

    def List(self, request: Any, context: Any) -> Any:
        plugin = pb.ContainerResources(devices=[pb.ContainerDevices(resource_name=GPU, device_ids=["GPU-a"])])
        devices = [
            pb.ClaimResource(driver_name="gpu.nvidia.com", pool_name="node-1", device_name=name)
            for name in ("gpu-0", "gpu-1")
        ]
        dynamic = pb.ContainerResources(dynamic_resources=[pb.DynamicResource(claim_name="c", claim_resources=devices)])
        return pb.ListPodResourcesResponse(
            pod_resources=[
                pb.PodResources(namespace="lab", name="a", containers=[plugin]),
                pb.PodResources(namespace="lab", name="b", containers=[pb.ContainerResources(), dynamic]),
            ]
        )


def test_devices_of_plugins_and_dynamic_resources(tmp_path: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    rpc.add_PodResourcesListerServicer_to_server(_Kubelet(), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"unix://{tmp_path}/kubelet.sock")
    server.start()
    try:
        found = asyncio.run(all_devices_of_pods(tmp_path / "kubelet.sock", GPU, "podium.dev/gpu"))
    finally:
        server.stop(None).wait()
    dynamic = frozenset(DynamicDevice("gpu.nvidia.com", "node-1", name) for name in ("gpu-0", "gpu-1"))
    assert found == PodDevices(({("lab", "a"): frozenset({"GPU-a"})}, {}), {("lab", "b"): dynamic})


def test_a_kubelet_that_does_not_answer_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(KubeletAwayError, match=r"kubelet\.sock: UNAVAILABLE"):
        asyncio.run(all_devices_of_pods(tmp_path / "kubelet.sock", GPU))
