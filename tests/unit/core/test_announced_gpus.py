"""GPU resources of other device plugins in the status of a Node."""

from __future__ import annotations

import pytest

from podium_core.placement.announced_gpus import announced_by_others, whole_amount


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.10gb",
        "volcano.sh/vgpu-number",
        "aliyun.com/gpu-mem",
    ],
)
def test_other_plugins_of_nvidia_gpus_are_found(name: str) -> None:
    assert announced_by_others({name: "2", "cpu": "8"}) == {name: 2}


@pytest.mark.parametrize(
    "amounts",
    [
        {},
        {"podium.dev/gpu": "8", "podium.dev/gpu-exclusive": "2"},
        {"nvidia.com/gpu": "0"},  # the kubelet keeps the resource of a plugin that has gone
        {"amd.com/gpu": "4", "gpu.intel.com/i915": "1", "cpu": "8", "memory": "64Gi"},  # other GPUs
        {"nvidia.com/gpu": "many"},
    ],
)
def test_nothing_else_is_taken_for_them(amounts: dict[str, str]) -> None:
    assert announced_by_others(amounts) == {}


@pytest.mark.parametrize(("quantity", "amount"), [("8", 8), ("2k", 2000), ("0", 0), ("1500m", 1), ("x", 0), ("-1", 0)])
def test_the_amount_of_a_quantity(quantity: str, amount: int) -> None:
    assert whole_amount(quantity) == amount
