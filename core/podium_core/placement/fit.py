"""Test whether a pod can run on a node at all: health, product and memory of its GPUs.

A node that is merely full is not refused, since the scheduler counts slots itself. The scheduler does not know that
several slots must be on different GPUs. The extender's filter and the scores call it. Stale telemetry refuses nothing
that may have changed since.
"""

from __future__ import annotations

from podium_core.domain.gpu_fit import Misfit, misfit
from podium_core.placement.views import GpuReading, NodeRefusal, NodeView, PodNeed

STALE_AFTER = 60.0  # seconds without a heartbeat
# Deleting a pod can free memory or a slot. It cannot change a product, an unhealthy GPU or a GPU that is too small.
NO_FREE_SLOT = "NoFreeSlot"
FULL = frozenset({str(Misfit.MEMORY_RESERVED), NO_FREE_SLOT})
_ORDER = (*(str(reason) for reason in Misfit), NO_FREE_SLOT)  # a GPU counts for the first check that it does not pass


def refuse(need: PodNeed, node: NodeView, now: float, stale_after: float = STALE_AFTER) -> NodeRefusal | None:
    """Return the first reason why the pod cannot run there; None if it can or may. O(GPUs).

    The message omits the name of the node: kube-scheduler combines equal reasons of many nodes in one line.
    """
    return refuse_with_freshness(need, node, not node.stale(now, stale_after))


def refuse_with_freshness(need: PodNeed, node: NodeView, fresh: bool) -> NodeRefusal | None:
    """Return the same as `refuse`, where the caller knows whether the node's telemetry is fresh."""
    if need.gpus <= 0:
        return None
    if not node.gpus and node.reported_at is None:
        return None  # its agent has reported nothing yet: the scheduler's resource check decides
    if len(node.gpus) < need.gpus:
        return NodeRefusal("TooFewGPUs", f"the node has {len(node.gpus)} GPUs; {need.gpus} needed.")
    refusals = [_refusal(need, gpu, fresh) for gpu in node.gpus]
    left = len(refusals)
    for code in _ORDER:
        before, left = left, left - refusals.count(code)
        if left < need.gpus <= before:
            causes = _causes(node.gpus) if code == Misfit.UNHEALTHY else ""
            text = f"{left} of {len(node.gpus)} GPUs {_text(code, need)}; {need.gpus} needed{causes}."
            return NodeRefusal(code, text)
    return None


def usable(need: PodNeed, node: NodeView, fresh: bool) -> tuple[GpuReading, ...]:
    """Return the GPUs of the node that pass every check."""
    return tuple([gpu for gpu in node.gpus if not _refusal(need, gpu, fresh)])


def _refusal(need: PodNeed, gpu: GpuReading, fresh: bool) -> str:
    """Return the first check that the GPU does not pass; empty if it passes all."""
    reason = misfit(need, gpu, beside=need.memory_beside(gpu) if fresh else None, fresh=fresh)
    if reason is not None:
        return reason
    needs_slot = fresh and need.gpus > 1 and not need.exclusive
    return NO_FREE_SLOT if needs_slot and gpu.trials >= gpu.slots else ""


def _text(code: str, need: PodNeed) -> str:
    size = _bytes(need.memory or 0)
    return {
        str(Misfit.PRODUCT): f"are of a wanted product ({', '.join(need.products)})",
        str(Misfit.UNHEALTHY): "fit and are not unhealthy",
        str(Misfit.TOO_SMALL): f"have {size} of memory in total",
        str(Misfit.MEMORY_RESERVED): f"have {size} besides what their trials declared",
        NO_FREE_SLOT: "fit and have a free slot",
    }[code]


def _causes(gpus: tuple[GpuReading, ...]) -> str:
    """Return the reasons (such as an Xid) that the agent reports for unhealthy GPUs."""
    reasons = sorted({gpu.health_reason for gpu in gpus if gpu.health == "Unhealthy" and gpu.health_reason})
    return f" ({', '.join(reasons)})" if reasons else ""


def _bytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
