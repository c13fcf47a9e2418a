"""Policy `auto`, the default: it chooses the policy that suits the pod. The registry lists it.

Trials on one GPU run in rotation, so a nearly full node means a long queue: trials use `load_balance` (Hermes). An
exclusive pod suspends the trials of its GPU, so it uses `load_balance` too. Any other pod keeps its slot: it runs no
faster on an empty node, and GPUs that it fragments are lost to later pods. Such pods use `fill` if the nodes' free CPUs
are known, else `fragmentation` (FGD), which allocates more than `fill` without them
(benchmarks/results/bench-openb.md).
"""

from __future__ import annotations

from podium_core.placement.policies.base import PlacementPolicy, PlacementQuery
from podium_core.placement.policies.fill import FILL
from podium_core.placement.policies.fragmentation import FRAGMENTATION
from podium_core.placement.policies.load_balance import LOAD_BALANCE
from podium_core.placement.views import NodeView


def choose_policy(question: PlacementQuery) -> PlacementPolicy:
    """Return the policy for this pod."""
    if question.is_trial or question.need.exclusive:
        return LOAD_BALANCE
    return FILL if question.cpus_known else FRAGMENTATION


def cost(question: PlacementQuery, node: NodeView) -> float | None:
    """Return the cost by the policy that suits the pod."""
    return choose_policy(question).cost(question, node)


AUTO = PlacementPolicy(
    name="auto",
    summary="depends on the pod: load_balance for trials and exclusive pods; for other pods fill, or fragmentation "
    "if the nodes' free CPUs are not known",
    cost=cost,
    uses_typical_pods=True,
    uses_cpus=True,
    choose=choose_policy,
)
