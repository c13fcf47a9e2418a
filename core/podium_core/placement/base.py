"""What a placement policy is: the cost of putting one pod on one node, by which `scores` ranks all nodes.

A policy sees one node at a time, so a cost can be kept until that node changes: 5,000 nodes are not looked at again for
each pod. It reads no clock; stale telemetry never reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from podium_core.placement.fit import usable
from podium_core.placement.views import GpuReading, NodeView, PodNeed


@dataclass(frozen=True, slots=True)
class PlacementQuery:
    """One pod to be placed. `typical`: needs of the pods seen lately, each with its part of all (they sum to 1).
    `trial`: it is a search's, and takes turns with the others of its GPU.
    """

    need: PodNeed
    pod: str = ""  # its uid
    typical_pods: tuple[tuple[PodNeed, float], ...] = ()
    is_trial: bool = False
    cpus_known: bool = False  # the nodes' free CPUs are known, and `need.cpu` is what the pod requests


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """`cost`: less is better, any finite scale; None = nothing is known, which gives the middle score.

    `one_best`: one node stands alone at the top for pods that take no share, too (`scores.has_favourite`).
    """

    name: str
    summary: str
    cost: Callable[[PlacementQuery, NodeView], float | None]
    single_best: bool = False
    uses_telemetry: bool = True
    uses_typical_pods: bool = False  # the cost depends on `Question.typical`
    uses_pod_uid: bool = False  # the cost depends on the pod's uid: it is of no use for another pod
    uses_cpus: bool = False  # the cost depends on free CPUs, where they are known
    batch_cost: Callable[[PlacementQuery, Sequence[NodeView]], list[float | None]] | None = (
        None  # `cost` of many nodes, sooner
    )
    choose: Callable[[PlacementQuery], PlacementPolicy] | None = None  # which other policy it is for this pod

    def resolve(self, question: PlacementQuery) -> PlacementPolicy:
        """The policy by which this pod is placed: what is said above of costs counts for that one."""
        return self if self.choose is None else self.choose(question)

    def costs(self, question: PlacementQuery, nodes: Sequence[NodeView]) -> list[float | None]:
        """`cost` of each node, in the order given."""
        return (
            [self.cost(question, node) for node in nodes]
            if self.batch_cost is None
            else self.batch_cost(question, nodes)
        )


def candidate_gpus(need: PodNeed, node: NodeView) -> tuple[GpuReading, ...] | None:
    """The GPUs that the pod may get; fewer than it needs: it cannot go there. None: too few say how they are."""
    fit = usable(need, node, fresh=True)
    healthy = tuple(gpu for gpu in fit if gpu.health == "Healthy")
    return None if len(healthy) < max(1, need.gpus) <= len(fit) else healthy
