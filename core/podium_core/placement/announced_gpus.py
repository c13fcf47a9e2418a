"""Resources under which other device plugins announce a node's NVIDIA GPUs to Kubernetes.

The agent refuses such a node in the mode `dedicated`, and `podium doctor` names it: otherwise kube-scheduler would give
a GPU to a pod of the other plugin while trials use it.
"""

from __future__ import annotations

from collections.abc import Mapping

from podium_core.schema.quantity import to_thousandths

NVIDIA_GPU = "nvidia.com/gpu"
# Beginnings of names: whole, shared and partitioned GPUs of NVIDIA's plugin, and plugins that share NVIDIA's GPUs.
PREFIXES = (
    *(NVIDIA_GPU, "nvidia.com/mig-"),
    *("aliyun.com/gpu-", "tencent.com/vcuda-", "volcano.sh/gpu-", "volcano.sh/vgpu-"),
)


def announced_by_others(amounts: Mapping[str, str]) -> dict[str, int]:
    """Return the amount of each GPU resource of other plugins that is not 0.

    `amounts` is `capacity` or `allocatable` of a Node. The kubelet keeps a resource with the amount 0 when its plugin
    has gone, so that does not count.
    """
    return {
        name: amount
        for name in sorted(amounts)
        if name.startswith(PREFIXES) and (amount := whole_amount(amounts[name])) > 0
    }


def whole_amount(quantity: str) -> int:
    """Return the amount of an extended resource, which is a whole number; 0 if it is not a quantity."""
    try:
        return to_thousandths(quantity) // 1000
    except ValueError:
        return 0
