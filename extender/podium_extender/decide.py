"""filter and prioritize as pure functions of a need and the views of the nodes; `app` puts them behind HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podium.placement.scores import load_balance, refuse
from podium.placement.views import NodeScore, NodeView, PodNeed, Refusal

# Memory that is taken may be given back by deleting a pod; a product, a broken GPU or a GPU that is too small may not.
HELPED_BY_PREEMPTION = frozenset({"MemoryReserved", "NoFreeShare"})


@dataclass(frozen=True, slots=True)
class Filtered:
    """Nodes that may take the pod, in the order asked, and why the others may not."""

    passed: tuple[str, ...]
    failed: dict[str, Refusal]
    unresolvable: dict[str, Refusal]


def filter_nodes(need: PodNeed, nodes: Sequence[NodeView], now: float, stale_after: float) -> Filtered:
    """Health, product, memory, and for several GPUs whether as many different ones have a free share.

    The number of shares is counted by the scheduler itself, and a filter is no waiting room.
    """
    passed: list[str] = []
    failed: dict[str, Refusal] = {}
    unresolvable: dict[str, Refusal] = {}
    for node in nodes:
        refusal = refuse(need, node, now, stale_after)
        if refusal is None:
            passed.append(node.name)
        elif refusal.code in HELPED_BY_PREEMPTION:
            failed[node.name] = refusal
        else:
            unresolvable[node.name] = _with_causes(refusal, node)
    return Filtered(tuple(passed), failed, unresolvable)


def _with_causes(refusal: Refusal, node: NodeView) -> Refusal:
    """What is wrong with the broken GPUs, where the agent knows it (an Xid, say)."""
    causes = sorted({gpu.health_reason for gpu in node.gpus if gpu.health == "Unhealthy" and gpu.health_reason})
    if refusal.code != "Unhealthy" or not causes:
        return refusal
    return Refusal(refusal.code, f"{refusal.message.rstrip('.')} ({', '.join(causes)})")


def prioritize_nodes(need: PodNeed, nodes: Sequence[NodeView], now: float, stale_after: float) -> tuple[NodeScore, ...]:
    return load_balance(need, nodes, now, stale_after)
