"""GPUs that reservation pods hold: which they are, what is advertised, how trials are scheduled, and their end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from agent_builders import Machine, key, pod
from grouped_values import change

import podium_agent.reservations.controller
from podium_agent.deviceplugin.servicer import ReservedSlotService
from podium_agent.deviceplugin.slots import AllocationRefusedError
from podium_agent.observe.gpu_health import Gpu, Reading, Sample
from podium_agent.observe.pod_resources import DynamicDevice, KubeletAwayError, PodDevices, PodName
from podium_agent.observe.telemetry import Telemetry
from podium_agent.report.node_status import (
    NodeFacts,
    build,
)
from podium_agent.reservations.controller import GpuReservations, parse_reservation_pod
from podium_agent.reservations.dynamic_gpus import DynamicGpus
from podium_agent.reservations.reserved_gpus import ReservationPod, advertised, gpus_of_reservations, is_evacuated
from podium_agent.schedule.exclusive_allocations import parse_pod
from podium_agent.schedule.exclusive_gpus import NodePod
from podium_agent.schedule.node_reconciler import (
    View,
)
from podium_agent.suspension.freeze import Freeze
from podium_agent.suspension.methods import SuspensionMethods
from podium_cluster.client import Api
from podium_cluster.resources import PODS, Selection
from podium_cluster.watch import WatchCache
from podium_core.attempts.local_scheduler import (
    QueueEntry,
    RunQueues,
    decide,
)
from podium_core.attempts.local_trial import Gate, LocalPod, LocalTrial, TrialSuspension
from podium_core.domain.gpu_reservation import ReservationState
from podium_core.schema.gpunode import SlotState

GATED, RUNNING, OFF = SlotState.GATED, SlotState.RUNNING, SlotState.SUSPENDED
NAME = ("lab", "podium-reservation-0")
GPUS = [Gpu(Sample("A", 0), 0.0, "Healthy"), Gpu(Sample("B", 1), 0.0, "Healthy")]


def trial(state: SlotState, gpu: str = "A", method: str = "cuda-checkpoint") -> LocalTrial:
    gate = Gate.WAITING if state is GATED else Gate.PASSED
    return LocalTrial(
        key(), LocalPod("a-0", "uid-a"), (gpu,), state, 0.0, gate=gate, suspension=TrialSuspension(method)
    )


STATES = {
    "the kubelet has not named its GPU": ({}, ReservationPod(NAME, "u"), {}),
    "named": ({NAME: {"A"}}, ReservationPod(NAME, "u"), {"A": ReservationState.HELD}),
    "being deleted": ({NAME: {"A"}}, ReservationPod(NAME, "u", terminating=True), {"A": ReservationState.TERMINATING}),
    "over": ({NAME: {"A"}}, ReservationPod(NAME, "u", over=True), {"A": ReservationState.ENDED}),
    "a GPU of another pod": (
        {("lab", "train"): {"B"}, NAME: {"A"}},
        ReservationPod(NAME, "u"),
        {"A": ReservationState.HELD},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("listed", "reservation_pod", "expected"), STATES.values(), ids=STATES.keys())
def test_the_state_of_a_gpu(
    listed: Mapping[PodName, Collection[str]], reservation_pod: ReservationPod, expected: Mapping[str, ReservationState]
) -> None:
    assert {uuid: one.state for uuid, one in gpus_of_reservations(listed, [reservation_pod]).items()} == expected


def test_slots_of_reserved_gpus_and_slots_in_use_are_advertised() -> None:
    assert [one.id for one in advertised(GPUS, 2, {"A"}, {"A::0", "B::1"})] == ["A::0", "A::1", "B::1"]
    assert advertised(GPUS, 2, (), ()) == ()


@pytest.mark.parametrize(
    ("reserved", "trials", "released", "expected"),
    [
        ((), [trial(OFF)], False, True),
        ((), [trial(GATED)], False, True),
        ((), [trial(RUNNING)], False, False),
        ((), [trial(RUNNING, "B")], False, True),
        (("A",), [], False, False),  # decided before it was taken: one may just be let in
        ((), [], True, False),
    ],
)
def test_when_a_gpu_is_evacuated(
    reserved: tuple[str, ...], trials: list[LocalTrial], released: bool, expected: bool
) -> None:
    assert is_evacuated("A", reserved, trials, released=released) is expected


RULES = [
    (RUNNING, "cuda-checkpoint", None, set()),
    (RUNNING, "cuda-checkpoint", ("A",), set()),
    (RUNNING, "cuda-checkpoint", (), {"suspend ReservationEnded"}),
    (RUNNING, "", (), {"wait FreezeNotAllowed"}),
    (OFF, "cuda-checkpoint", (), {"wait ReservationEnded"}),
    (OFF, "cuda-checkpoint", ("A",), {"resume Ranked"}),
    (GATED, "cuda-checkpoint", ("B",), {"wait ReservationEnded"}),
    (GATED, "cuda-checkpoint", ("A", "B"), {"admit Ranked"}),
]


@pytest.mark.parametrize(("state", "method", "reserved", "expected"), RULES)
def test_the_local_scheduler_on_reserved_gpus(
    state: SlotState, method: str, reserved: tuple[str, ...] | None, expected: set[str]
) -> None:
    run_queues = RunQueues(1, {"A": (QueueEntry(key(), "Ranked"),)}, reserved=reserved)
    steps = decide(run_queues, [trial(state, method=method)], 10.0)
    assert {f"{type(step).__name__.lower()} {step.reason}" for step in steps} == expected


@pytest.mark.parametrize(
    ("reserved", "is_checkpointed", "expected"),
    [
        ((), True, {"wait ReservationEnded"}),
        (("A",), True, {"resume FinalCheckpoint"}),
        ((), False, {"resume FinalCheckpoint"}),
    ],
)
def test_a_final_checkpoint_takes_no_memory_of_another_pods_gpu(
    reserved: tuple[str, ...], is_checkpointed: bool, expected: set[str]
) -> None:
    ending = change(
        trial(OFF), termination__deleting=True, termination__deadline=12.0, memory__is_checkpointed=is_checkpointed
    )
    steps = decide(RunQueues(1, {"A": (QueueEntry(key(), "Ranked"),)}, reserved=reserved), [ending], 10.0)
    assert {f"{type(step).__name__.lower()} {step.reason}" for step in steps} == expected


def test_no_trial_is_frozen_with_its_memory_on_a_gpu_that_may_be_taken() -> None:
    methods = SuspensionMethods(Freeze(1.0), reservations=True)
    assert (methods.names, methods.choose(("freeze", "app-checkpoint"), 1)) == ((), "")


def test_a_gpu_without_a_reservation_has_no_slots_in_the_status() -> None:
    facts = NodeFacts(Reading(1.0, "570", tuple(GPUS)), 4, (), "v")
    view = View(RunQueues(1), reserved={"A": "lab/podium-reservation-0"})
    status = build(facts, view, lambda uuid: 1, lambda one: 0.0, 0.0)
    assert [(gpu.reservation, gpu.slots) for gpu in status.gpus] == [("lab/podium-reservation-0", 4), (None, 0)]
    assert status.mode == "reservations"
    owned = build(facts, View(RunQueues(1)), lambda uuid: 1, lambda one: 0.0, 0.0)
    assert (owned.mode, [gpu.slots for gpu in owned.gpus]) == ("dedicated", [4, 4])


class Desk:
    """GPU reservations of an agent with a simulated kubelet."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.machine = Machine(folder)
        self.listed: Mapping[PodName, frozenset[str]] | None = {}
        self.allocated: Mapping[PodName, frozenset[str]] = {}
        self.dynamic: Mapping[PodName, frozenset[DynamicDevice]] = {}
        self.slices: list[dict[str, Any]] = []
        self.pods = WatchCache(cast(Api, None), Selection(PODS), parse_reservation_pod)
        self.all_pods = WatchCache(cast(Api, None), Selection(PODS), parse_pod)
        patch.setattr(podium_agent.reservations.controller, "all_devices_of_pods", self._ask)
        settings, gpus = self.machine.settings(gpu_mode="reservations"), DynamicGpus(cast(Api, self), "node-1")
        self.reservations = GpuReservations(settings, self.pods, self.all_pods, gpus)
        self.news = 0
        self.reservations.subscribe(self._hear)

    def _hear(self) -> None:
        self.news += 1

    async def _ask(self, *_: Any) -> PodDevices:
        if self.listed is None:
            raise KubeletAwayError("away")
        return PodDevices((self.listed, self.allocated), self.dynamic)

    async def list(self, *_: Any, **__: Any) -> Mapping[str, Any]:
        return {"items": self.slices}

    def hear(self, **meta: str) -> None:
        about = {"namespace": NAME[0], "name": NAME[1], "uid": "u", **meta}
        status = {"phase": "Running", "containerStatuses": [{"containerID": f"containerd://{'c' * 64}"}]}
        self.pods._items = {NAME: parse_reservation_pod({"metadata": about, "status": status})}

    def lives(self, **uids: str) -> None:
        """Pods of the namespace by name, as the API shows them; `over`: it has ended."""
        self.all_pods._items = {
            ("lab", name.replace("_", "-")): NodePod(uid, ended=uid == "over") for name, uid in uids.items()
        }

    def look(self) -> Mapping[str, str]:
        asyncio.run(self.reservations.refresh())
        return self.reservations.held


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def test_a_gpu_is_held_from_the_kubelets_answer_until_the_deletion(desk: Desk) -> None:
    desk.listed = None
    assert (desk.look(), desk.reservations.known.is_set()) == ({}, False)
    desk.listed = {}
    desk.hear()
    assert (desk.look(), desk.reservations.known.is_set(), desk.news) == ({}, True, 1)
    desk.listed = {NAME: frozenset({"A"})}
    assert (desk.look(), desk.news) == ({"A": "lab/podium-reservation-0"}, 2)
    desk.look()
    assert desk.news == 2, "nothing new"
    desk.listed = None
    assert desk.look() == {"A": "lab/podium-reservation-0"}, "with the kubelet away it stays"
    desk.hear(deletionTimestamp="2026-11-22T00:00:00Z")
    assert desk.look() == {}, "the API's word is heard all the same"


def test_a_restarted_kubelet_removes_no_devices(desk: Desk) -> None:
    desk.listed, desk.allocated = {NAME: frozenset({"A"})}, {("lab", "t-0"): frozenset({"A::1"})}
    desk.hear()
    desk.lives(podium_reservation_0="u", t_0="t")
    assert (desk.look(), desk.reservations.allocated, desk.news) == ({"A": "lab/podium-reservation-0"}, {"A::1"}, 1)
    desk.listed, desk.allocated = {}, {}
    assert (desk.look(), desk.reservations.allocated, desk.news) == ({"A": "lab/podium-reservation-0"}, {"A::1"}, 1)
    desk.lives(podium_reservation_0="u", t_0="over")
    assert (desk.look(), desk.reservations.allocated) == ({"A": "lab/podium-reservation-0"}, frozenset()), (
        "nothing is left of it"
    )
    desk.lives(podium_reservation_0="another", t_0="t")
    assert (desk.look(), desk.reservations.allocated) == ({}, frozenset()), "another pod of that name has nothing yet"


def test_a_reservation_pod_is_killed_once_its_gpu_is_empty(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    desk.machine.run(pod("lease"), "c" * 64, 77, "sleep")
    desk.machine.run(pod("other"), "d" * 64, 78)
    desk.listed = {NAME: frozenset({"A"})}
    desk.hear(deletionTimestamp="2026-11-22T00:00:00Z")
    desk.look()
    desk.reservations.on_view(View(RunQueues(), (trial(RUNNING),), reserved={}))
    desk.reservations.on_view(View(RunQueues(), (trial(OFF),), reserved={"A": "lab/podium-reservation-0"}))
    assert killed == []
    desk.reservations.on_view(View(RunQueues(), (trial(OFF),), reserved={}))
    desk.reservations.on_view(View(RunQueues(), (trial(OFF),), reserved={}))
    assert killed == [(77, signal.SIGKILL)], "and not twice for one death"


def test_the_plugin_waits_for_the_kubelet_and_refuses_lost_gpus(desk: Desk) -> None:
    telemetry = Telemetry(1.0, 1.0)
    telemetry.reading = Reading(1.0, "570", tuple(GPUS))
    plugin = ReservedSlotService(desk.machine.settings(), telemetry, desk.reservations)
    assert not plugin.ready
    desk.listed, desk.allocated = {NAME: frozenset({"A"})}, {("lab", "t-0"): frozenset({"B::3"})}
    desk.hear()
    desk.look()
    assert plugin.ready
    assert [one.id for one in plugin.devices()] == [*(f"A::{share}" for share in range(4)), "B::3"]
    plugin.container_response(("A",))
    with pytest.raises(AllocationRefusedError, match="GPUNotReserved: Podium's reservation of GPU B"):
        plugin.container_response(("B",))


def test_a_reserved_dynamic_resource_is_held_once_its_uuid_is_known(desk: Desk) -> None:
    desk.hear()
    desk.lives(podium_reservation_0="u")
    desk.dynamic = {
        NAME: frozenset({DynamicDevice("gpu.nvidia.com", "node-1", "gpu-1"), DynamicDevice("nic.example", "p", "d")}),
        ("lab", "train"): frozenset({DynamicDevice("gpu.nvidia.com", "node-1", "gpu-0")}),
    }
    device = {"name": "gpu-1", "attributes": {"uuid": {"string": "B"}}}
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "node-1", "pool": pool, "devices": [device]}
    desk.slices = [{"metadata": {"name": "s"}, "spec": spec}]
    assert desk.look() == {"B": "lab/podium-reservation-0"}
    desk.dynamic, desk.slices = {}, []
    assert desk.look() == {"B": "lab/podium-reservation-0"}, "a kubelet that has restarted lists it late"
    desk.hear(deletionTimestamp="2026-01-01T00:00:00Z")
    assert desk.look() == {}
