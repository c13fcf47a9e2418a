"""Policy `spread`: the node with the smallest fraction of its slots in use: `load_balance` without telemetry.

The registry lists it.
"""

from __future__ import annotations

from podium_core.placement.policies.base import PlacementPolicy, PlacementQuery, candidate_gpus
from podium_core.placement.views import NodeView


def cost(question: PlacementQuery, node: NodeView) -> float | None:
    """Return the fraction of the healthy GPUs' slots that are in use; 1 without any slot."""
    gpus = candidate_gpus(question.need, node)
    if gpus is None:
        return None
    slots = sum(gpu.slots for gpu in gpus)
    return min(1.0, sum(gpu.trials for gpu in gpus) / slots) if slots > 0 else 1.0


SPREAD = PlacementPolicy(name="spread", summary="the node with the smallest fraction of its slots in use", cost=cost)
