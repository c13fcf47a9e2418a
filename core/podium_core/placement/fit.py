"""Test whether a pod can run on a node at all: health, product and memory of its GPUs.

A node that is merely full is not refused, since the scheduler counts slots itself. The scheduler does not know that
several slots must be on different GPUs. The extender's filter and the scores call it. Stale telemetry refuses nothing
that may have changed since.
"""

from __future__ import annotations

from collections.abc import Callable

from podium_core.placement.views import GpuReading, NodeRefusal, NodeView, PodNeed

STALE_AFTER = 60.0  # seconds without a heartbeat
# Deleting a pod can free memory or a slot. It cannot change a product, an unhealthy GPU or a GPU that is too small.
FULL = frozenset({"GPUMemoryReserved", "NoFreeSlot"})


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
    left = node.gpus
    for code, text, test in _checks(need, fresh):
        kept = tuple([gpu for gpu in left if test(gpu)])
        if len(kept) < need.gpus:
            causes = _causes(left) if code == "Unhealthy" else ""
            return NodeRefusal(code, f"{len(kept)} of {len(node.gpus)} GPUs {text}; {need.gpus} needed{causes}.")
        left = kept
    return None


def usable(need: PodNeed, node: NodeView, fresh: bool) -> tuple[GpuReading, ...]:
    """Return the GPUs of the node that pass every check."""
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
        checks.append(("NoFreeSlot", "fit and have a free slot", lambda g: g.trials < g.slots))
    if need.memory is not None:
        size = _bytes(need.memory)
        checks.append(("GPUTooSmall", f"have {size} of memory in total", lambda g: _holds(g, need.memory or 0)))
        if fresh:
            checks.append(
                (
                    "GPUMemoryReserved",
                    f"have {size} besides what their trials declared",
                    lambda g: _holds(g, (need.memory or 0) + need.memory_beside(g)),
                )
            )
    return checks


def _causes(gpus: tuple[GpuReading, ...]) -> str:
    """Return the reasons (such as an Xid) that the agent reports for unhealthy GPUs."""
    reasons = sorted({gpu.health_reason for gpu in gpus if gpu.health == "Unhealthy" and gpu.health_reason})
    return f" ({', '.join(reasons)})" if reasons else ""


def _holds(gpu: GpuReading, size: int) -> bool:
    return gpu.memory_total == 0 or size <= gpu.memory_total


def _bytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
