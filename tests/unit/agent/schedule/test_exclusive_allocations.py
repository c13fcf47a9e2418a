"""Exclusive allocations as device plugin, node reconciler and next agent see them; the kubelet is simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from agent_builders import Machine, key, pod

import podium_agent.schedule.exclusive_allocations
from podium_agent.observe.pod_resources import KubeletAwayError, PodName
from podium_agent.schedule.exclusive_allocations import ExclusiveAllocations, GpuStillInUseError, parse_pod
from podium_agent.schedule.node_reconciler import View
from podium_cluster.client import Api
from podium_cluster.resources import PODS, Selection
from podium_cluster.watch import WatchCache
from podium_core.attempts.local_scheduler import RunQueues
from podium_core.attempts.local_trial import LocalPod, LocalTrial, TrialSuspension
from podium_core.schema.gpunode import SlotState

POD = ("prod", "urgent")


class Desk:
    """A machine, its kubelet's answer, and the reservations of one agent after another."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.machine = Machine(folder)
        self.listed: Mapping[PodName, tuple[str, ...]] | None = {}
        self.pods = WatchCache(cast(Api, None), Selection(PODS), parse_pod)
        self.woken = 0
        patch.setattr(podium_agent.schedule.exclusive_allocations, "gpus_of_pods", self._ask)
        self.new_agent()

    async def _ask(self, *_: Any) -> Mapping[PodName, tuple[str, ...]]:
        if self.listed is None:
            raise KubeletAwayError("away")
        return self.listed

    def new_agent(self, **settings: Any) -> None:
        def woken() -> None:
            self.woken += 1

        self.exclusive = ExclusiveAllocations(self.machine.settings(**settings), self.pods, woken)

    def hear(self, uid: str, phase: str, **meta: str) -> None:
        about = {"namespace": POD[0], "name": POD[1], "uid": uid, **meta}
        self.pods._items = {POD: parse_pod({"metadata": about, "status": {"phase": phase}})}

    def look(self) -> Mapping[str, str]:
        asyncio.run(self.exclusive._refresh())
        return self.exclusive.exclusive_pods

    def notes(self) -> set[str]:
        folder = self.machine.settings().exclusive_dir
        return {place.name for place in folder.iterdir()} if folder.exists() else set()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def test_from_allocation_to_the_end_of_the_last_process(desk: Desk) -> None:
    urgent = pod("urgent")
    desk.exclusive.reserve(["G"])
    assert (desk.exclusive.exclusive_pods, desk.notes(), desk.woken) == ({"G": ""}, {"G"}, 1)
    desk.listed = {POD: ("G",)}
    desk.hear(urgent.uid, "Pending")
    assert desk.look() == {"G": "prod/urgent"}
    freezer = desk.machine.run(urgent, "a" * 64)
    desk.hear(urgent.uid, "Failed")  # as a new kubelet may say of a pod that works on
    assert desk.look() == {"G": "prod/urgent"}
    desk.listed, desk.pods._items = {}, {}
    assert desk.look() == {"G": "prod/urgent"}
    desk.machine.end(freezer)
    assert (desk.look(), desk.notes()) == ({}, set())


def test_the_next_pod_does_not_end_with_the_one_before(desk: Desk) -> None:
    """The kubelet gives a GPU again before its last pod's end was looked at."""
    desk.exclusive.reserve(["G"])
    desk.listed = {POD: ("G",)}
    desk.hear("first", "Running")
    assert desk.look() == {"G": "prod/urgent"}
    desk.listed = {}
    desk.hear("first", "Succeeded", deletionTimestamp="2026-11-22T00:00:00Z")
    desk.exclusive.reserve(["G"])
    assert not desk.exclusive._terminating(["G"])
    assert desk.look() == {"G": ""}


def test_the_next_agent_knows_the_allocation_before_it_asks(desk: Desk) -> None:
    desk.exclusive.reserve(["G"])
    desk.listed = {POD: ("G",)}
    desk.look()
    (desk.machine.settings().exclusive_dir / "H").write_text("no note")
    desk.new_agent()
    assert desk.exclusive.exclusive_pods == {"G": "prod/urgent"}
    desk.listed = None
    assert desk.look() == {"G": "prod/urgent"}, "with the kubelet away nothing is given back"
    desk.listed = {}
    assert desk.look() == {}


def test_without_a_note_the_kubelet_reports_the_allocation(desk: Desk) -> None:
    desk.listed = {POD: ("G",)}
    assert desk.look() == {"G": "prod/urgent"}


def test_the_container_starts_once_the_trial_is_suspended(desk: Desk) -> None:
    def view(state: SlotState, taken: Mapping[str, str]) -> View:
        return View(RunQueues(), (LocalTrial(key(), LocalPod("a-0", "uid"), ("G",), state, 0.0),), frozenset(), taken)

    async def story() -> None:
        desk.new_agent(exclusive_seconds=29)
        desk.exclusive.on_view(view(SlotState.RUNNING, {}))
        waits = asyncio.ensure_future(desk.exclusive.vacate(["G"]))
        for state in (SlotState.RUNNING, SlotState.SUSPENDING, SlotState.SUSPENDED):
            for _ in range(5):
                await asyncio.sleep(0)
            assert not waits.done()
            desk.exclusive.on_view(view(state, desk.exclusive.exclusive_pods))
        await waits

    asyncio.run(story())


def test_a_gpu_that_is_not_free_in_time_is_refused_with_the_reason(desk: Desk) -> None:
    stuck = LocalTrial(key(), LocalPod("a-0", "uid"), ("G",), SlotState.RUNNING, 0.0, suspension=TrialSuspension(""))
    desk.new_agent(exclusive_seconds=0.01)
    desk.exclusive.on_view(View(RunQueues(), (stuck,), frozenset(), {"G": ""}))
    with pytest.raises(GpuStillInUseError, match="HolderNotFreezable: trial demo/a holds the GPU"):
        asyncio.run(desk.exclusive.vacate(["G"]))
    assert desk.exclusive.exclusive_pods == {"G": ""}, "the kubelet asks again"


def test_a_pod_deleted_while_it_waits_is_refused_at_once(desk: Desk) -> None:
    async def story() -> None:
        desk.new_agent(exclusive_seconds=29)
        waits = asyncio.ensure_future(desk.exclusive.vacate(["G"]))
        await asyncio.sleep(0)
        desk.listed = {POD: ("G",)}
        desk.hear("u", "Pending")
        await desk.exclusive._refresh()
        desk.hear("u", "Pending", deletionTimestamp="2026-11-22T00:00:00Z")
        desk.exclusive.on_view(View())  # as after each tick
        with pytest.raises(GpuStillInUseError, match="PodTerminating"):
            await waits

    asyncio.run(story())


def test_the_kubelet_is_not_asked_with_every_event_of_a_pod(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    observed = asyncio.Event()

    async def look() -> None:
        looks.append(1)
        observed.set()

    async def story() -> None:
        desk.exclusive.reserve(["G"])
        desk.exclusive._refresh = look  # type: ignore[method-assign]
        desk.pods._synced.set()
        task = asyncio.ensure_future(desk.exclusive.run())
        await observed.wait()
        before = len(looks)
        for _ in range(50):
            for heard in desk.pods._listeners:
                heard()
            await asyncio.sleep(0)
        assert len(looks) == before
        desk.exclusive.reserve(["H"])
        observed.clear()
        await observed.wait()
        task.cancel()

    monkeypatch.setattr(podium_agent.schedule.exclusive_allocations, "LOOK_SECONDS", 600.0)
    asyncio.run(story())
