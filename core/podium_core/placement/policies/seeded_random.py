"""Policy `random`: the baseline for other policies. The registry lists it.

The score is drawn from the pod's UID and the node's name alone, so every replica gives the same answer, also after a
restart.
"""

from __future__ import annotations

from hashlib import blake2b

from podium_core.placement.policies.base import PlacementPolicy, PlacementQuery
from podium_core.placement.views import NodeView


def cost(question: PlacementQuery, node: NodeView) -> float | None:
    """Return a value uniform over [0, 1), independent for each node and pod."""
    drawn = blake2b(f"{question.pod}/{node.name}".encode(), digest_size=8).digest()
    return int.from_bytes(drawn, "big") / 2**64


RANDOM = PlacementPolicy(
    name="random",
    summary="a random node, drawn from the pod's UID",
    cost=cost,
    single_best=True,
    uses_telemetry=False,
    uses_pod_uid=True,
)
