"""Pods that are placed but not reported are charged to the GPUs that the device plugin would choose."""

from __future__ import annotations

from dataclasses import replace

import pytest

from podium_core.placement.gpu_choice import charge
from podium_core.placement.needs import InvalidPodError, need_of
from podium_core.placement.node_parser import NodeReport, PlacedPod, current_gpus
from podium_core.placement.views import GpuReading, PodNeed
from podium_core.schema.pod import Pod
from podium_core.testing.builders import make_reading
from podium_extender.state.node_cache import Heartbeats


def reading(trials: int = 0, reserved: int = 0, health: str = "Healthy") -> GpuReading:
    return make_reading("u", trials=trials, memory_reserved=reserved, health=health)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gpus", "needs", "expected"),
    [
        ([reading(1), reading(0)], [PodNeed(1)], [1, 1]),
        ([reading(0), reading(0)], [PodNeed(1), PodNeed(1), PodNeed(1)], [2, 1]),
        ([reading(0), reading(0)], [PodNeed(2)], [1, 1]),
        ([reading(0, health="Unhealthy"), reading(3)], [PodNeed(1)], [0, 4]),
        ([reading(0, reserved=5), reading(0)], [PodNeed(1)], [0, 1]),
        ([], [PodNeed(1)], []),
    ],
)
def test_charge(gpus: list[GpuReading], needs: list[PodNeed], expected: list[int]) -> None:
    assert [gpu.trials for gpu in charge(tuple(gpus), needs)] == expected


def test_charge_adds_declared_memory() -> None:
    assert [gpu.memory.reserved for gpu in charge((reading(), reading()), [PodNeed(1, memory=7)])] == [7, 0]


def test_an_exclusive_pod_uses_no_slot() -> None:
    exclusive = PlacedPod("u", "n", PodNeed(1, memory=7, exclusive=True))
    trial = PlacedPod("t", "n", PodNeed(1, memory=5))
    (gpu,) = current_gpus(NodeReport((reading(),), ((),), None), [exclusive, trial], {})
    assert (gpu.trials, gpu.memory.reserved) == (1, 5)


def test_only_the_largest_movable_memory_counts() -> None:
    moved, stays = PodNeed(1, memory=60, memory_stays=False), PodNeed(1, memory=7)
    (gpu,) = charge((reading(),), [moved, stays, replace(moved, memory=50), moved])
    assert (gpu.trials, gpu.memory.reserved, gpu.memory.movable) == (4, 67, 60)
    assert (moved.memory_beside(gpu), stays.memory_beside(gpu)) == (7, 67)


@pytest.mark.parametrize(
    ("methods", "together"),
    [
        (None, True),
        ("freeze", True),
        ("cuda-checkpoint,freeze", True),
        ("cuda-checkpoint", False),
        ("cuda-checkpoint,app-checkpoint", False),
        ("app-checkpoint", True),
        ("", True),
    ],
)
def test_memory_that_may_stay_must_fit_beside_the_others(methods: str | None, together: bool) -> None:
    annotations = {} if methods is None else {"podium.dev/methods": methods}
    pod = Pod.model_validate({"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": []}})
    assert need_of(pod).memory_stays is together


def pod_with(init: list[str], main: list[str], resource: str = "podium.dev/gpu") -> Pod:
    def containers(amounts: list[str]) -> list[dict[str, object]]:
        return [{"name": "c", "resources": {"requests": {resource: amount}}} for amount in amounts]

    return Pod.model_validate(
        {"metadata": {"name": "p"}, "spec": {"containers": containers(main), "initContainers": containers(init)}}
    )


@pytest.mark.parametrize(
    ("init", "main", "gpus"),
    [([], ["1"], 1), (["1"], ["1"], 1), (["4"], ["1"], 4), ([], ["1", "2"], 3), ([], [], 0), ([], ["1k"], 1000)],
)
def test_gpus_are_counted_like_the_scheduler_does(init: list[str], main: list[str], gpus: int) -> None:
    assert need_of(pod_with(init, main)).gpus == gpus


def test_whole_gpus_cannot_be_combined_with_slots() -> None:
    whole = pod_with(["1"], ["1", "2"], "podium.dev/gpu-exclusive")
    assert need_of(whole) == PodNeed(3, exclusive=True)
    containers = (*whole.spec.containers, *pod_with([], ["1"]).spec.containers)
    both = whole.model_copy(update={"spec": whole.spec.model_copy(update={"containers": containers})})
    with pytest.raises(InvalidPodError, match=r"podium\.dev/gpu=1 and podium\.dev/gpu-exclusive=3"):
        need_of(both)


@pytest.mark.parametrize("amount", ["x", "1.5", "-1", "", "1001k"])
def test_an_invalid_amount_is_named(amount: str) -> None:
    with pytest.raises(InvalidPodError, match=r"podium\.dev/gpu"):
        need_of(pod_with([], [amount]))


def test_a_renewal_counts_from_its_observation_despite_the_nodes_clock() -> None:
    now = [1_800_000_000.0]
    beats = Heartbeats(lambda: now[0])

    def seen(renewed: str) -> float:
        return beats.parse({"metadata": {"name": "podium-agent-a"}, "spec": {"renewTime": renewed}})

    assert seen("2027-01-15T07:00:00.000000Z") == now[0] - 3600  # first sight: only the node's own clock to go by
    now[0] += 10
    assert seen("2027-01-15T07:00:10.000000Z") == now[0]  # it changed: alive now, its clock is an hour behind
    now[0] += 10
    assert seen("2027-01-15T07:00:10.000000Z") == now[0] - 10  # a relist brings nothing new
    assert Heartbeats(lambda: 5.0).parse({"metadata": {"name": "b"}, "spec": {}}) == 0.0
    assert (
        Heartbeats(lambda: 5.0).parse({"metadata": {"name": "b"}, "spec": {"renewTime": "2027-01-15T07:00:00Z"}}) == 5.0
    )
