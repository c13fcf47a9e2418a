"""Policy `auto`, the default: the policy that suits the pod. Found in the registry.

Trials of one GPU take turns, so a node that is nearly full is a long queue: they go by `load_balance` (Hermes). A pod
with a GPU for itself (`exclusive`) suspends whoever is there, so it goes where the least work is, too. Any other pod
keeps its share to itself: it works no faster on an empty node, and what it leaves in pieces is lost to the pods that
come later: it goes by `fill` where the nodes' free CPUs are known, else by `fragmentation` (FGD), which allocates more
than `fill` does without them (benchmarks/results/bench-openb.md).
"""

from __future__ import annotations

from podium_core.placement.base import PlacementPolicy, PlacementQuery
from podium_core.placement.fill import FILL
from podium_core.placement.fragmentation import FRAGMENTATION
from podium_core.placement.load_balance import LOAD_BALANCE
from podium_core.placement.views import NodeView


def choose_policy(question: PlacementQuery) -> PlacementPolicy:
    if question.is_trial or question.need.exclusive:
        return LOAD_BALANCE
    return FILL if question.cpus_known else FRAGMENTATION


def cost(question: PlacementQuery, node: NodeView) -> float | None:
    return choose_policy(question).cost(question, node)


AUTO = PlacementPolicy(
    name="auto",
    summary="by the pod: trials, which take turns, by load_balance; pods that keep their share to themselves by "
    "fill, or "
    "by fragmentation where free CPUs are not known",
    cost=cost,
    uses_typical_pods=True,
    uses_cpus=True,
    choose=choose_policy,
)
