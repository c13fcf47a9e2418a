"""Policy `load_balance`, the default for trials: Hermes' Find_Available_GPU as a cost. The registry lists it.

The node whose GPUs have the shortest queues and the least load comes first. `podium explain pod` shows its terms.
"""

from __future__ import annotations

from podium_core.placement.load_terms import TERMS, Term, load_of
from podium_core.placement.policies.base import PlacementPolicy, PlacementQuery, candidate_gpus
from podium_core.placement.views import GpuReading, NodeView, PodNeed

FULL = 1.0


def cost(question: PlacementQuery, node: NodeView) -> float | None:
    """Return the mean load (0 to 1) of the GPUs that the pod would get; 1 if too few have a free slot.

    O(GPUs log GPUs).
    """
    gpus = candidate_gpus(question.need, node)
    if gpus is None:
        return None
    chosen = _least_loaded(question.need, gpus)
    if len(chosen) < max(1, question.need.gpus):
        return FULL
    return sum(load for load, _, _ in chosen) / len(chosen)


def term_means(need: PodNeed, node: NodeView) -> tuple[tuple[Term, float], ...]:
    """Return the mean of each term over the GPUs that the pod would get.

    Empty if nothing is known or no slot is free.
    """
    chosen = _least_loaded(need, candidate_gpus(need, node) or ())
    if len(chosen) < max(1, need.gpus):
        return ()
    return tuple((term, sum(term.value(gpu, need) for _, _, gpu in chosen) / len(chosen)) for term in TERMS)


def _least_loaded(need: PodNeed, gpus: tuple[GpuReading, ...]) -> list[tuple[float, str, GpuReading]]:
    """Sort by load, then UUID. UUIDs are unique, so GPUs themselves are never compared."""
    free = ((load_of(gpu, need), gpu.uuid, gpu) for gpu in gpus if gpu.trials < gpu.slots)
    return sorted(free, key=lambda entry: entry[:2])[: max(1, need.gpus)]


LOAD_BALANCE = PlacementPolicy(
    name="load_balance",
    summary="the node whose GPUs have the shortest queues and the least load (Hermes)",
    cost=cost,
)
