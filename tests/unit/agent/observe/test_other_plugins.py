"""Another device plugin that gives out the node's GPUs: found, refused at once, and forgotten after a while."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from podium_agent.deviceplugin.plugin import make_server
from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.proto import deviceplugin_pb2_grpc as rpc
from podium_agent.deviceplugin.proto import podresources_pb2 as resources
from podium_agent.deviceplugin.proto import podresources_pb2_grpc as resources_rpc
from podium_agent.deviceplugin.servicer import SlotService
from podium_agent.observe import other_plugins
from podium_agent.observe.gpu_health import Gpu, Reading, Sample
from podium_agent.observe.other_plugins import CLEAR_SECONDS, OtherPlugins, other_use
from podium_agent.observe.pod_resources import CHANNEL_OPTIONS, KubeletAwayError, KubeletDevices, all_devices
from podium_agent.observe.telemetry import Telemetry
from podium_agent.report.node_status import NodeFacts, build, decisive
from podium_agent.schedule.node_reconciler import View
from podium_agent.settings import AgentSettings

UUIDS = ("GPU-0", "GPU-1")
POD = ("lab", "serve")
NOTHING = KubeletDevices({"podium.dev/gpu": frozenset({"GPU-0::0"})}, {})
OFFERED = KubeletDevices({"nvidia.com/gpu": frozenset({"GPU-0", "GPU-1"})}, {})


def held(resource: str, *devices: str) -> KubeletDevices:
    return KubeletDevices({}, {POD: {resource: frozenset(devices)}})


@pytest.mark.parametrize(
    ("devices", "offered", "pods"),
    [
        (OFFERED, {"nvidia.com/gpu": 2}, ()),
        (KubeletDevices({"nvidia.com/gpu": frozenset({"nvidia0"})}, {}), {"nvidia.com/gpu": 1}, ()),  # GKE's names
        (KubeletDevices({"example.com/slice": frozenset({"GPU-1::3"})}, {}), {"example.com/slice": 1}, ()),
        (KubeletDevices({"nvidia.com/mig-1g.10gb": frozenset({"MIG-7"})}, {}), {"nvidia.com/mig-1g.10gb": 1}, ()),
        (held("nvidia.com/gpu", "GPU-1"), {}, (POD,)),  # its plugin has gone, the pod has not
        (held("example.com/slice", "GPU-1"), {}, (POD,)),
    ],
)
def test_another_use_of_the_gpus_is_found(devices: KubeletDevices, offered: Mapping[str, int], pods: Any) -> None:
    use = other_use(devices, UUIDS)
    assert (use.found, dict(use.offered), use.pods) == (True, dict(offered), pods)
    for name in (*offered, *("/".join(pod) for pod in pods)):
        assert name in use.sentence
    assert "gpus.mode=reservations" in use.sentence


@pytest.mark.parametrize(
    "devices",
    [
        NOTHING,
        held("podium.dev/gpu", "GPU-0::1"),
        held("podium.dev/gpu-exclusive", "GPU-0"),
        KubeletDevices({"nvidia.com/gpu": frozenset()}, {}),  # its plugin has stopped
        KubeletDevices({"amd.com/gpu": frozenset({"0000:03:00.0"}), "rdma/hca": frozenset({"1"})}, {}),
    ],
)
def test_nothing_else_is_taken_for_one(devices: KubeletDevices) -> None:
    assert not other_use(devices, UUIDS).found


def test_gpus_are_refused_at_once_and_used_again_after_a_while() -> None:
    other, changes = OtherPlugins(Path("none"), lambda: UUIDS), []
    other.subscribe(lambda: changes.append(other.refusal != ""))
    assert not other.known.is_set()
    other.judge(NOTHING, 0.0)
    assert (other.known.is_set(), other.refusal, changes) == (True, "", [False])
    other.judge(OFFERED, 10.0)
    assert "nvidia.com/gpu (2)" in other.refusal
    other.judge(NOTHING, 12.0)
    other.judge(OFFERED, 15.0)  # the plugin was restarted
    other.judge(NOTHING, 15.0 + CLEAR_SECONDS - 0.1)
    assert other.refusal
    assert changes == [False, True]
    assert (other.condition.status, other.condition.reason) == ("False", "OtherDevicePlugin")
    other.judge(NOTHING, 15.0 + CLEAR_SECONDS)
    assert other.refusal == ""
    assert changes == [False, True, False]
    assert (other.condition.status, other.condition.message) == ("True", "")


def test_before_the_driver_has_answered_nothing_is_known() -> None:
    other = OtherPlugins(Path("none"), tuple)
    other.judge(NOTHING, 0.0)
    assert not other.known.is_set()


def test_a_refused_node_offers_no_slot_and_refuses_an_allocation(tmp_path: Path) -> None:
    telemetry = Telemetry(1.0, 1.0)
    telemetry.reading = Reading(gpus=tuple(Gpu(Sample(uuid, i), 0.0, "Healthy") for i, uuid in enumerate(UUIDS)))
    other = OtherPlugins(tmp_path / "none", lambda: UUIDS)
    slots = SlotService(AgentSettings(node_name="n", slots_per_gpu=2), telemetry)
    slots.beside(other)

    async def main() -> None:
        assert not slots.ready, "a list before the kubelet's answer could give a GPU out twice"
        other.judge(NOTHING, 0.0)
        assert slots.ready
        server = make_server(slots, tmp_path / "slots.sock")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"unix://{tmp_path}/slots.sock", CHANNEL_OPTIONS) as channel:
                stub = rpc.DevicePluginStub(channel)  # type: ignore[no-untyped-call]
                stream = stub.ListAndWatch(pb.Empty())
                assert len((await stream.read()).devices) == 4
                ask = pb.ContainerAllocateRequest(devices_ids=["GPU-0::0"])
                allocation = pb.AllocateRequest(container_requests=[ask])
                assert len((await stub.Allocate(allocation)).container_responses) == 1
                other.judge(OFFERED, 1.0)
                assert len((await stream.read()).devices) == 0
                with pytest.raises(grpc.aio.AioRpcError, match=r"OtherDevicePlugin: .*nvidia\.com/gpu"):
                    await stub.Allocate(allocation)
                other.judge(NOTHING, 1.0 + CLEAR_SECONDS)
                assert len((await stream.read()).devices) == 4
        finally:
            await server.stop(grace=None)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_the_status_of_a_refused_node_has_no_slots_and_its_condition_is_written_at_once() -> None:
    other = OtherPlugins(Path("none"), lambda: UUIDS)
    reading = Reading(1.0, "570", (Gpu(Sample("GPU-0", 0), 0.0, "Healthy"),))

    def status() -> Any:
        facts = NodeFacts(reading, 4, ("freeze",), "0", usable=other.condition)
        return build(facts, View(), lambda _: 0, lambda _: 0.0, 1.0)

    before = status()
    assert ([gpu.slots for gpu in before.gpus], before.conditions[0].status) == ([4], "True")
    other.judge(OFFERED, 1.0)
    after = status()
    assert ([gpu.slots for gpu in after.gpus], after.conditions[0].status) == ([0], "False")
    assert decisive(before) != decisive(after)


class _Kubelet(resources_rpc.PodResourcesListerServicer):
    """PodResources of a kubelet with these devices."""

    def __init__(self, devices: KubeletDevices) -> None:
        self.devices = devices

    def GetAllocatableResources(self, request: Any, context: Any) -> Any:
        return resources.AllocatableResourcesResponse(
            devices=[
                resources.ContainerDevices(resource_name=name, device_ids=[device])  # one entry for each NUMA node
                for name, ids in self.devices.offered.items()
                for device in sorted(ids)
            ]
        )

    def List(self, request: Any, context: Any) -> Any:
        pods = [
            resources.PodResources(
                namespace=namespace,
                name=name,
                containers=[
                    resources.ContainerResources(
                        name=resource,
                        devices=[resources.ContainerDevices(resource_name=resource, device_ids=sorted(ids))],
                    )
                    for resource, ids in held.items()
                ],
            )
            for (namespace, name), held in self.devices.held.items()
        ]
        return resources.ListPodResourcesResponse(pod_resources=pods)


def test_the_kubelet_is_asked_until_it_answers_and_then_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_plugins, "AGAIN_SECONDS", 0.05)
    devices = KubeletDevices(OFFERED.offered, {POD: {"nvidia.com/gpu": frozenset({"GPU-0"})}})
    socket, kubelet = tmp_path / "kubelet.sock", _Kubelet(NOTHING)
    server = grpc.server(ThreadPoolExecutor(2))
    resources_rpc.add_PodResourcesListerServicer_to_server(kubelet, server)  # type: ignore[no-untyped-call]

    async def main() -> None:
        with pytest.raises(KubeletAwayError):
            await all_devices(socket)
        other, changed = OtherPlugins(socket, lambda: UUIDS), asyncio.Event()
        other.subscribe(changed.set)
        task = asyncio.create_task(other.run())
        server.add_insecure_port(f"unix://{socket}")
        server.start()
        await other.known.wait()
        assert await all_devices(socket) == NOTHING
        changed.clear()
        kubelet.devices = devices
        await changed.wait()
        assert await all_devices(socket) == devices
        assert "lab/serve" in other.refusal
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    try:
        asyncio.run(asyncio.wait_for(main(), 60))
    finally:
        server.stop(None)
