"""Policy `random`: the base that other policies are held against. Drawn from the pod's uid and the node's name alone,
so the same question has the same answer, on every replica and after a restart. Found in the registry.
"""

from __future__ import annotations

from hashlib import blake2b

from podium_core.placement.base import PlacementPolicy, PlacementQuery
from podium_core.placement.views import NodeView


def cost(question: PlacementQuery, node: NodeView) -> float | None:
    """Even over [0, 1), and independent from node to node and from pod to pod."""
    drawn = blake2b(f"{question.pod}/{node.name}".encode(), digest_size=8).digest()
    return int.from_bytes(drawn, "big") / 2**64


RANDOM = PlacementPolicy(
    name="random",
    summary="any node, by the pod's uid",
    cost=cost,
    single_best=True,
    uses_telemetry=False,
    uses_pod_uid=True,
)
