"""Policy `binpack`: best fit. The node with the fewest free shares that still takes the pod, so that whole nodes stay
empty for large pods, or can be given back. Found in the registry.
"""

from __future__ import annotations

from podium_core.placement.base import PlacementPolicy, PlacementQuery, candidate_gpus
from podium_core.placement.gpu_fragments import free_part
from podium_core.placement.views import NodeView

MOST_GPUS, MOST_CPU = 8, 128_000


def cost(question: PlacementQuery, node: NodeView) -> float | None:
    """What is free on the healthy GPUs of the node and of its CPUs, each as part of a large machine's: best fit over
    several resources, as the FGD paper's baseline has it.
    """
    gpus = candidate_gpus(question.need, node)
    if gpus is None:
        return None
    return sum(free_part(gpu) for gpu in gpus) / MOST_GPUS + (node.cpu_free or 0) / MOST_CPU


BINPACK = PlacementPolicy(
    name="binpack",
    summary="the node with the fewest free shares (best fit)",
    cost=cost,
    single_best=True,
    uses_cpus=True,
)
