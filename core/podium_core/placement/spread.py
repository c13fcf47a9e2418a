"""Policy `spread`: the node with the smallest part of its shares taken, whatever its GPUs are doing. What
`load_balance` would be without telemetry. Found in the registry.
"""

from __future__ import annotations

from podium_core.placement.base import PlacementPolicy, PlacementQuery, candidate_gpus
from podium_core.placement.views import NodeView


def cost(question: PlacementQuery, node: NodeView) -> float | None:
    """Part of the shares of the healthy GPUs that trials have taken, from 0; 1 where there is no share."""
    gpus = candidate_gpus(question.need, node)
    if gpus is None:
        return None
    shares = sum(gpu.slots for gpu in gpus)
    return min(1.0, sum(gpu.trials for gpu in gpus) / shares) if shares > 0 else 1.0


SPREAD = PlacementPolicy(name="spread", summary="the node with the smallest part of its shares taken", cost=cost)
