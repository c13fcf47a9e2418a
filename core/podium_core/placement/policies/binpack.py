"""Policy `binpack`: best fit. The registry lists it.

Of the nodes that can run the pod, it chooses the one with the fewest free slots. So whole nodes remain empty for large
pods, or can be removed.
"""

from __future__ import annotations

from podium_core.placement.gpu_fragments import free_part
from podium_core.placement.policies.base import PlacementPolicy, PlacementQuery, candidate_gpus
from podium_core.placement.views import NodeView

LARGE_NODE_GPUS, LARGE_NODE_CPU = 8, 128_000


def cost(question: PlacementQuery, node: NodeView) -> float | None:
    """Return the free part of the node's healthy GPUs and of its CPUs, each as a fraction of a large node.

    This is best fit over several resources, as in the FGD paper's baseline.
    """
    gpus = candidate_gpus(question.need, node)
    if gpus is None:
        return None
    return sum(free_part(gpu) for gpu in gpus) / LARGE_NODE_GPUS + (node.cpu_free or 0) / LARGE_NODE_CPU


BINPACK = PlacementPolicy(
    name="binpack",
    summary="the node with the fewest free slots (best fit)",
    cost=cost,
    single_best=True,
    uses_cpus=True,
)
