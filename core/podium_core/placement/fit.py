"""Whether a pod can run on a node at all: health, product, memory. Never a waiting room: a node that is merely full
is not refused, for the scheduler counts shares itself. It does not know that several shares must be of different GPUs.

Called by the extender's filter and by the scores. What is not known (stale telemetry) refuses nothing that may have
changed since.
"""

from __future__ import annotations

from collections.abc import Callable

from podium_core.placement.views import GpuReading, NodeRefusal, NodeView, PodNeed

STALE_AFTER = 60.0  # seconds without a heartbeat
# Memory that is taken may be given back by deleting a pod; a product, a broken GPU or a GPU that is too small may not.
FULL = frozenset({"GPUMemoryReserved", "NoFreeSlot"})  # codes


def refuse(need: PodNeed, node: NodeView, now: float, stale_after: float = STALE_AFTER) -> NodeRefusal | None:
    """The first reason why the pod cannot run there, None where it can or may. O(GPUs).

    The message leaves the node's name out: kube-scheduler puts equal reasons of many nodes into one line.
    """
    return refuse_with_freshness(need, node, not node.stale(now, stale_after))


def refuse_with_freshness(need: PodNeed, node: NodeView, fresh: bool) -> NodeRefusal | None:
    """`refuse` where the caller knows whether the node's telemetry is fresh."""
    if need.gpus <= 0:
        return None
    if not node.gpus and node.reported_at is None:
        return None  # its agent has not spoken yet: the scheduler's own resource check stands
    if len(node.gpus) < need.gpus:
        return NodeRefusal("TooFewGPUs", f"{len(node.gpus)} GPUs are there; {need.gpus} needed.")
    left = node.gpus
    for code, text, test in _checks(need, fresh):
        kept = tuple([gpu for gpu in left if test(gpu)])
        if len(kept) < need.gpus:
            causes = _causes(left) if code == "Unhealthy" else ""
            return NodeRefusal(code, f"{len(kept)} of {len(node.gpus)} GPUs {text}; {need.gpus} needed{causes}.")
        left = kept
    return None


def usable(need: PodNeed, node: NodeView, fresh: bool) -> tuple[GpuReading, ...]:
    """The GPUs of the node that pass every check."""
    left = node.gpus
    for _, _, test in _checks(need, fresh):
        left = tuple([gpu for gpu in left if test(gpu)])
    return left


def _checks(need: PodNeed, fresh: bool) -> list[tuple[str, str, Callable[[GpuReading], bool]]]:
    checks: list[tuple[str, str, Callable[[GpuReading], bool]]] = []
    if need.products:
        names = ", ".join(need.products)
        checks.append(
            ("GPUProductMismatch", f"are of a wanted product ({names})", lambda g: g.product in need.products)
        )
    if fresh:
        checks.append(("Unhealthy", "fit and are not unhealthy", lambda g: g.health != "Unhealthy"))
    if fresh and need.gpus > 1 and not need.exclusive:
        checks.append(("NoFreeSlot", "fit and have a free share", lambda g: g.trials < g.slots))
    if need.memory is not None:
        size = _bytes(need.memory)
        checks.append(("GPUTooSmall", f"have {size} of memory at all", lambda g: _holds(g, need.memory or 0)))
        if fresh:
            checks.append(
                (
                    "GPUMemoryReserved",
                    f"have {size} beside what their trials declared",
                    lambda g: _holds(g, (need.memory or 0) + need.memory_beside(g)),
                )
            )
    return checks


def _causes(gpus: tuple[GpuReading, ...]) -> str:
    """What is wrong with the broken ones, where the agent knows it (an Xid, say)."""
    told = sorted({gpu.health_reason for gpu in gpus if gpu.health == "Unhealthy" and gpu.health_reason})
    return f" ({', '.join(told)})" if told else ""


def _holds(gpu: GpuReading, size: int) -> bool:
    return gpu.memory_total == 0 or size <= gpu.memory_total


def _bytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
