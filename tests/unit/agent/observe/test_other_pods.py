"""Other pods with slots: where they are packed, which pod the kubelet allocates for, and what is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from agent_builders import Machine

import podium_agent.observe.other_pods
from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.servicer import SlotService
from podium_agent.deviceplugin.slots import pack
from podium_agent.observe.gpu_health import Gpu, Reading, Sample
from podium_agent.observe.other_pods import LocalOtherPod, OtherPods
from podium_agent.observe.pod_resources import KubeletAwayError, PodName
from podium_agent.observe.telemetry import Telemetry
from podium_agent.report.node_status import (
    NodeFacts,
    build,
    decisive,
)
from podium_agent.schedule.exclusive_allocations import parse_pod
from podium_agent.schedule.node_reconciler import View
from podium_cluster.watch import Key, WatchCache
from podium_core.attempts.local_scheduler import RunQueues
from podium_core.placement.gpu_choice import chosen_gpus, fullest
from podium_core.placement.node_parser import gpu_reading
from podium_core.placement.views import PodNeed
from podium_core.schema.gpunode import OtherPod
from podium_core.testing.builders import make_reading

NEED = PodNeed(1, memory=30, packed=True)
READINGS = tuple(
    make_reading(uuid, memory_total=80, memory_reserved=used, trials=n)
    for uuid, used, n in (("A", 0, 0), ("B", 40, 1), ("C", 60, 1), ("D", 40, 2))
)


def shares(*gpus: str) -> tuple[str, ...]:
    """Of each letter one share."""
    return tuple(f"{uuid}::{i}" for uuid in gpus for i in range(1))


@pytest.mark.parametrize(
    ("available", "need", "size", "taken", "chosen"),
    [
        ("ABCD", NEED, 1, "", "B"),  # C holds less than 30, D is as full as B, and comes later
        ("ACD", NEED, 1, "", "D"),
        ("AC", NEED, 1, "", "A"),
        ("C", NEED, 1, "", ""),
        ("ABCD", NEED, 2, "", "BD"),
        ("ABC", NEED, 3, "", ""),
        ("ABCD", NEED, 1, "B", "D"),
        ("ABCD", replace(NEED, memory=10), 1, "", "C"),
    ],
)
def test_packing(available: str, need: PodNeed, size: int, taken: str, chosen: str) -> None:
    assert pack(shares(*available), size, READINGS, need, tuple(taken)) == shares(*chosen)


def test_the_kubelet_determines_how_many_slots_are_free() -> None:
    """B has one share free, D two: the one with fewer goes first, whatever was reported."""
    available = ("B::3", "D::0", "D::1")
    assert pack(available, 1, tuple(replace(gpu, trials=0) for gpu in READINGS), NEED) == ("B::3",)
    assert pack(("B::2", "B::3", "D::1"), 1, READINGS, NEED) == ("D::1",)


def test_the_extender_expects_a_pod_where_the_device_plugin_puts_it() -> None:
    free = tuple(f"{gpu.uuid}::{i}" for gpu in READINGS for i in range(gpu.trials, gpu.slots))
    (place,) = chosen_gpus(READINGS, NEED)
    assert pack(free, 1, READINGS, NEED) == (f"{READINGS[place].uuid}::{READINGS[place].trials}",)
    assert (fullest(READINGS, replace(NEED, memory=81)), chosen_gpus(READINGS, replace(NEED, memory=81))) == ((), (0,))
    assert chosen_gpus(READINGS, replace(NEED, packed=False)) == (0,)


def pod(name: str, gpus: int, *, trial: bool = False, memory: int | None = None, phase: str = "Pending") -> Any:
    requests = {"podium.dev/gpu": str(gpus)} if gpus else {}
    notes = {} if memory is None else {"podium.dev/gpu-memory": str(memory)}
    labels = {"podium.dev/trial": name} if trial else {}
    meta = {"name": name, "namespace": "lab", "uid": f"uid-{name}", "labels": labels, "annotations": notes}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    return parse_pod({"metadata": meta, "spec": spec, "status": {"phase": phase}})


def test_the_request_of_a_pod_is_parsed() -> None:
    assert pod("a", 1, memory=30).need == NEED
    assert pod("a", 1).need == PodNeed(1)
    assert pod("a", 0).need is None
    assert (pod("t", 1, trial=True).trial, pod("t", 1, trial=True, memory=30).need) == (True, PodNeed(1, memory=30))


class Kubelet:
    """Which devices each pod has; away where `there` is not set."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.has: dict[PodName, frozenset[str]] = {}
        self.there = True
        self.asked = asyncio.Event()
        patch.setattr(podium_agent.observe.other_pods, "devices_of_pods", self._ask)

    async def _ask(self, socket: Path, resource: str) -> tuple[Mapping[PodName, frozenset[str]]]:
        assert resource == "podium.dev/gpu"
        self.asked.set()
        if not self.there:
            raise KubeletAwayError("away")
        return (self.has,)


class Pods:
    """A watch that a test moves on."""

    def __init__(self) -> None:
        self.pods: dict[Key, Any] = {}
        self.tell: Callable[[Key, Any, Any], None]

    def follow(self, listener: Callable[[Key, Any, Any], None]) -> None:
        self.tell = listener

    def put(self, name: str, after: Any) -> None:
        before = self.pods.pop(("lab", name), None)
        if after is not None:
            self.pods["lab", name] = after
        self.tell(("lab", name), before, after)


@pytest.fixture
def pods() -> Pods:
    return Pods()


@pytest.fixture
def other_pods(tmp_path: Path, pods: Pods) -> OtherPods:
    return OtherPods(Machine(tmp_path).settings(), cast("WatchCache[Any]", pods))


def test_the_kubelet_allocates_for_the_first_pod_with_missing_slots(
    other_pods: OtherPods, pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        kubelet = Kubelet(monkeypatch)
        monkeypatch.setattr(podium_agent.observe.other_pods, "WATCH_DELAY_SECONDS", 60.0)
        pods.put("z", pod("z", 1, memory=30))
        pods.put("a", pod("a", 1))
        pods.put("pair", pod("pair", 2, memory=7))
        pods.put("none", pod("none", 0))
        assert await other_pods.find_pod_need(1) == NEED
        kubelet.has["lab", "z"] = frozenset(["A::0"])
        assert await other_pods.find_pod_need(1) == PodNeed(1)
        assert await other_pods.find_pod_need(2) == PodNeed(2, memory=7, packed=True)
        pods.put("a", pod("a", 1, phase="Failed"))
        kubelet.has["lab", "pair"] = frozenset(["A::1"])  # its first container has one
        assert await other_pods.find_pod_need(1) == PodNeed(2, memory=7, packed=True)
        kubelet.has["lab", "pair"] = frozenset(["A::1", "B::1"])
        asking = asyncio.ensure_future(other_pods.find_pod_need(1))
        kubelet.asked.clear()
        await kubelet.asked.wait()
        pods.put("late", pod("late", 1, memory=30))  # the kubelet was ahead of our watch
        assert await asking == NEED
        kubelet.there = False
        assert await other_pods.find_pod_need(1) is None

    asyncio.run(asyncio.wait_for(main(), 60))


def test_other_pods_are_known_until_they_end(
    other_pods: OtherPods, pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        kubelet, notified = Kubelet(monkeypatch), asyncio.Event()
        other_pods.subscribe(notified.set)
        run = asyncio.ensure_future(other_pods.run())
        pods.put("t", pod("t", 1, trial=True))
        pods.put("a", pod("a", 1, memory=30))
        kubelet.has = {("lab", "t"): frozenset(["A::0"]), ("lab", "a"): frozenset(["B::1"])}
        await notified.wait()
        assert other_pods.all() == (LocalOtherPod(("lab", "a"), "uid-a", NEED, ("B",)),)
        notified.clear()
        pods.put("a", pod("a", 1, memory=30, phase="Succeeded"))
        assert notified.is_set()
        assert other_pods.all() == ()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_other_pods_are_reported_at_once_and_count_for_the_extender() -> None:
    gpus = tuple(Gpu(Sample(uuid, i, memory_total=80), 0.0, "Healthy") for i, uuid in enumerate("AB"))
    facts, view = NodeFacts(Reading(1.0, "570", gpus), 4, ("freeze",), "0"), View(RunQueues(1))
    crowded = replace(facts, other_pods=[LocalOtherPod(("lab", "a"), "u", NEED, ("B",))])
    before, status = (build(one, view, lambda _: 1, lambda _: 0.0, 1.0) for one in (facts, crowded))
    assert decisive(before) != decisive(status)
    assert [gpu.other_pods for gpu in status.gpus] == [
        [],
        [OtherPod(namespace="lab", pod="a", pod_uid="u", memory=30)],
    ]
    assert [gpu.memory_reserved for gpu in status.gpus] == [0, 0]  # only memory of trials is counted
    seen = gpu_reading(status.gpus[1])
    assert (seen.trials, seen.memory.reserved, seen.pods) == (1, 30, ("u",))


def test_the_kubelet_is_answered_for_the_requesting_pod(tmp_path: Path) -> None:
    gpus = tuple(Gpu(Sample(uuid, i, memory_total=80), 0.0, "Healthy") for i, uuid in enumerate("ABCD"))
    telemetry = Telemetry(1.0, 1.0)
    telemetry.reading = Reading(1.0, "570", gpus)
    needs: list[PodNeed | None] = [NEED, replace(NEED, packed=False), replace(NEED, memory=81), None]

    async def find_pod_need(size: int) -> PodNeed | None:
        return needs.pop(0)

    async def main() -> list[list[str]]:
        servicer = SlotService(Machine(tmp_path).settings(), telemetry, find_pod_need=find_pod_need)
        servicer.gpus = lambda: READINGS
        ask = pb.ContainerPreferredAllocationRequest(available_deviceIDs=shares(*"ABCD"), allocation_size=1)
        request = pb.PreferredAllocationRequest(container_requests=[ask])
        answers = [await servicer.GetPreferredAllocation(request, None) for _ in range(4)]
        return [list(answer.container_responses[0].deviceIDs) for answer in answers]

    assert asyncio.run(main()) == [["B::0"], ["A::0"], ["A::0"], ["A::0"]]
