"""Which shares a container gets: preference and refusal."""

from __future__ import annotations

import pytest

from podium_agent.deviceplugin.slots import AllocationRefusedError, check_allocation, choose_slots, slot_devices
from podium_agent.observe.gpu_health import Gpu, Sample

HEALTH = {"A": "Healthy", "B": "Healthy", "C": "Unhealthy"}


def ids(text: str) -> list[str]:
    """`A01 B0`: shares 0 and 1 of A, 0 of B."""
    return [f"{word[0]}::{share}" for word in text.split() for share in word[1:]]


@pytest.mark.parametrize(
    ("available", "must", "size", "use", "chosen"),
    [
        ("A012 B0123", "", 1, {}, "B0"),  # most free shares
        ("A0123 B0123", "", 1, {"A": 80.0, "B": 10.0}, "B0"),  # then the least used
        ("A0123 B0123", "", 1, {}, "A0"),  # then the name
        ("A01 C0123", "", 1, {}, "A0"),  # never the sick one while there is another
        ("C01", "", 1, {}, "C0"),
        ("A01 B01", "", 2, {}, "A0 B0"),  # two shares: two GPUs
        ("A0123", "", 2, {}, "A0"),  # there is one GPU only: the kubelet fills up, Allocate refuses
        ("A01 B01", "A1", 2, {}, "A1 B0"),
    ],
)
def test_preference(available: str, must: str, size: int, use: dict[str, float], chosen: str) -> None:
    assert list(choose_slots(ids(available), ids(must), size, HEALTH, use)) == ids(chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("available", "size", "exclusive", "chosen"),
    [
        ("A0123 B0123", 1, "A", "B0"),
        ("A0123 B0", 1, "A", "B0"),
        ("A0123 B0123", 2, "A", "B0 A0"),
        ("A0123", 1, "A", "A0"),  # the trial waits there for the exclusive pod to end
        ("A0123 C0123", 1, "A", "A0"),  # a GPU that is broken may never come back
    ],
)
def test_gpus_of_exclusive_pods_are_avoided(available: str, size: int, exclusive: str, chosen: str) -> None:
    assert list(choose_slots(ids(available), (), size, HEALTH, {}, exclusive)) == ids(chosen)  # type: ignore[arg-type]


def test_a_container_never_gets_two_slots_of_one_gpu() -> None:
    assert check_allocation(ids("B1 A0"), {"A", "B"}) == ("A", "B")
    with pytest.raises(AllocationRefusedError, match="DuplicateGPU: a container requested 2 slots"):
        check_allocation(ids("A01"), {"A", "B"})
    with pytest.raises(AllocationRefusedError, match="UnknownGPU: X is not a GPU of this node; its GPUs are: A, B"):
        check_allocation(ids("X0"), {"A", "B"})


def test_advertised_devices() -> None:
    gpus = [Gpu(Sample("A", 0), 0.0, "Unhealthy"), Gpu(Sample("B", 1), 0.0, "Unknown")]
    assert [(one.id, one.healthy) for one in slot_devices(gpus, 2)] == [
        ("A::0", False), ("A::1", False), ("B::0", True), ("B::1", True),
    ]  # fmt: skip
