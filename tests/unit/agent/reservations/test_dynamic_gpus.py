"""UUIDs of reserved dynamic resources, read from ResourceSlices: which slices count, and when they are read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from podium_agent.observe.pod_resources import DynamicDevice, PodName
from podium_agent.reservations.dynamic_gpus import ASK_AGAIN_SECONDS, DRIVER, DynamicGpus, DynamicPod, uuids_of_devices
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import Resource

NODE = "node-1"


def gpu_slice(generation: int = 1, driver: str = DRIVER, node: str = NODE, **uuids: str) -> dict[str, Any]:
    """Return a slice; a device's name has an underscore for its hyphen."""
    devices = [
        {
            "name": name.replace("_", "-"),
            "attributes": {"uuid": {"string": uuid}, "cudaComputeCapability": {"version": "9.0.0"}},
            "capacity": {"memory": {"value": "24Gi"}},
        }
        for name, uuid in uuids.items()
    ]
    pool = {"name": NODE, "generation": generation, "resourceSliceCount": 1}
    return {"metadata": {"name": "s"}, "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}}


def device(name: str) -> DynamicDevice:
    return DynamicDevice(DRIVER, NODE, name)


def test_the_uuids_of_a_nodes_devices() -> None:
    found = uuids_of_devices([gpu_slice(gpu_0="GPU-a", gpu_1="GPU-b")], NODE)
    assert found == {device("gpu-0"): "GPU-a", device("gpu-1"): "GPU-b"}


def test_an_attribute_with_the_drivers_domain_is_the_same() -> None:
    payload = gpu_slice(gpu_0="")
    payload["spec"]["devices"][0]["attributes"] = {f"{DRIVER}/uuid": {"string": "GPU-a"}}
    assert uuids_of_devices([payload], NODE) == {device("gpu-0"): "GPU-a"}


@pytest.mark.parametrize(
    "payload",
    [gpu_slice(driver="nic.example", gpu_0="x"), gpu_slice(node="node-2", gpu_0="x"), gpu_slice(gpu_0="")],
    ids=["another driver", "another node", "no UUID"],
)
def test_other_slices_do_not_count(payload: dict[str, Any]) -> None:
    assert uuids_of_devices([payload], NODE) == {}


def test_an_older_generation_of_the_pool_does_not_count() -> None:
    slices = [gpu_slice(1, gpu_0="GPU-old", gpu_1="GPU-gone"), gpu_slice(2, gpu_0="GPU-new")]
    assert uuids_of_devices(slices, NODE) == {device("gpu-0"): "GPU-new"}


class Server:
    """The list of ResourceSlices, with a clock."""

    def __init__(self) -> None:
        self.slices: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.error: ApiError | None = None
        self.now = 100.0
        self.gpus = DynamicGpus(cast(Api, self), NODE, lambda: self.now)

    async def list(self, resource: Resource, *, fields: str) -> Mapping[str, Any]:
        self.asked.append(f"{resource.plural} {fields}")
        if self.error is not None:
            raise self.error
        return {"items": self.slices}

    def look(self, **devices: str) -> Mapping[PodName, frozenset[str]]:
        """Return the UUIDs of pods, each with one device."""
        pods = [DynamicPod(("lab", uid), uid, frozenset({device(name)})) for uid, name in devices.items()]
        return asyncio.run(self.gpus.uuids_of(pods))


def test_slices_are_read_only_for_a_new_pod() -> None:
    server = Server()
    server.slices = [gpu_slice(gpu_0="GPU-a", gpu_1="GPU-b")]
    assert server.look() == {}
    assert server.asked == []
    for _ in range(3):
        assert server.look(a="gpu-0") == {("lab", "a"): {"GPU-a"}}
    assert server.asked == ["resourceslices spec.nodeName=node-1"]
    server.now += ASK_AGAIN_SECONDS
    assert server.look(a="gpu-0", b="gpu-1") == {("lab", "a"): {"GPU-a"}, ("lab", "b"): {"GPU-b"}}


def test_a_pod_keeps_its_gpu_when_the_name_of_the_device_means_another_one_later() -> None:
    server = Server()
    server.slices = [gpu_slice(gpu_0="GPU-a")]
    server.look(a="gpu-0")
    server.slices, server.now = [gpu_slice(2, gpu_0="GPU-b")], 200.0
    assert server.look(a="gpu-0", b="gpu-0") == {("lab", "a"): {"GPU-a"}, ("lab", "b"): {"GPU-b"}}
    server.now = 300.0
    assert server.look() == {}
    assert server.look(a="gpu-0") == {("lab", "a"): {"GPU-b"}}, "a pod that has gone is forgotten"


@pytest.mark.parametrize("error", [None, ApiError(503, "Unavailable", "later")], ids=["not published", "no answer"])
def test_a_uuid_that_is_not_known_yet_is_asked_for_again_after_a_while(error: ApiError | None) -> None:
    server = Server()
    server.error = error
    for _ in range(5):
        assert server.look(a="gpu-0") == {}
        server.now += 0.2
    assert len(server.asked) == 1
    server.error, server.slices = None, [gpu_slice(gpu_0="GPU-a")]
    server.now += ASK_AGAIN_SECONDS
    assert server.look(a="gpu-0") == {("lab", "a"): {"GPU-a"}}
