"""Interface of a placement policy: the cost of placing one pod on one node, by which `scores` ranks the nodes.

A policy sees one node at a time, so a cost can be cached until that node changes. Otherwise each pod would require the
costs of all nodes. A policy reads no clock and never sees stale telemetry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from podium_core.placement.fit import usable
from podium_core.placement.views import GpuReading, NodeView, PodNeed


@dataclass(frozen=True, slots=True)
class PlacementQuery:
    """A pod to be placed.

    `typical_pods`: needs of recent pods, each with its fraction of all (the sum is 1). `is_trial`: the pod belongs to a
    search, so it shares its GPU in time slices. `cpus_known`: the free CPUs of the nodes are known, and `need.cpu` is
    the pod's request.
    """

    need: PodNeed
    pod: str = ""  # UID of the pod
    typical_pods: tuple[tuple[PodNeed, float], ...] = ()
    is_trial: bool = False
    cpus_known: bool = False


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """A placement policy.

    `cost`: lower is better, on any finite scale; None if nothing is known of the node, which then scores 5 of 10.
    `single_best`: exactly one node gets the highest score, also for pods that use no slot (`scores.has_single_best`).
    """

    name: str
    summary: str
    cost: Callable[[PlacementQuery, NodeView], float | None]
    single_best: bool = False
    uses_telemetry: bool = True
    uses_typical_pods: bool = False  # the cost depends on `PlacementQuery.typical_pods`
    uses_pod_uid: bool = False  # the cost depends on the pod's UID, so it cannot be reused for another pod
    uses_cpus: bool = False  # the cost depends on free CPUs, if they are known
    # `cost` of many nodes at once, faster
    batch_cost: Callable[[PlacementQuery, Sequence[NodeView]], list[float | None]] | None = None
    # for a policy that delegates: the policy for this pod
    choose: Callable[[PlacementQuery], PlacementPolicy] | None = None

    def resolve(self, question: PlacementQuery) -> PlacementPolicy:
        """Return the policy that places this pod; the attributes about costs are those of the returned policy."""
        return self if self.choose is None else self.choose(question)

    def costs(self, question: PlacementQuery, nodes: Sequence[NodeView]) -> list[float | None]:
        """Return the cost of each node, in the given order."""
        return (
            [self.cost(question, node) for node in nodes]
            if self.batch_cost is None
            else self.batch_cost(question, nodes)
        )


def candidate_gpus(need: PodNeed, node: NodeView) -> tuple[GpuReading, ...] | None:
    """Return the GPUs that the pod may get; fewer than it needs if it cannot run there.

    None: too few GPUs have a known health.
    """
    fit = usable(need, node, fresh=True)
    healthy = tuple(gpu for gpu in fit if gpu.health == "Healthy")
    return None if len(healthy) < max(1, need.gpus) <= len(fit) else healthy
