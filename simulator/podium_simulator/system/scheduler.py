"""Scheduling of pods: the extender's own filter and cost on the simulated nodes. Pure.

The device plugin's part, the choice of GPUs on the node, is the least loaded GPUs that fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import nsmallest

from podium_core.placement.fit import STALE_AFTER, refuse, usable
from podium_core.placement.policies.base import PlacementQuery
from podium_core.placement.policies.load_balance import LOAD_BALANCE
from podium_core.placement.views import GpuReading, MemoryUse, NodeView, PodNeed
from podium_simulator.system.state import Gpu, Job, Node, Trial
from podium_simulator.system.telemetry import load_percent, reserved_bytes


def place(trial: Trial, nodes: Sequence[Node]) -> tuple[Gpu, ...]:
    """Return the GPUs whose slots the pod gets, all on one node; empty where nothing fits.

    The workers of a trial get as many nodes, the best first. The real scheduler places one pod at a time.

    A node without a recent report scores 5 of 10, below the best known node. So it is used only if no other node fits.
    O(GPUs log GPUs) of the nodes that have trials, and of one of each kind of nodes without any: there may be thousands
    of these.
    """
    need, known = _need(trial.job), trial.job.spec.fact(trial.number).node
    if trial.migration is not None and trial.starts_from_image:  # by its required affinity
        known = trial.migration.target
    empty: dict[tuple[int, int, int], float | None] = {}
    found: list[tuple[float, str, Node]] = []
    for node in nodes:
        if not node.up or node.draining or (known and known != node.spec.name):
            continue
        if node.trials or node.gpus[0].reported is not None:
            cost = _cost(need, node)
        else:
            kind = node.spec.gpus, node.spec.slots, node.spec.memory
            if kind not in empty:
                empty[kind] = _cost(need, node)
            cost = empty[kind]
        if cost is not None:
            found.append((cost, node.spec.name, node))
    workers = trial.job.view.gpus.workers
    if len(found) < workers:
        return ()
    best = (min(found),) if workers == 1 else nsmallest(workers, found)
    return tuple([gpu for _, _, node in best for gpu in _least_loaded(need, node)])


def _least_loaded(need: PodNeed, node: Node) -> list[Gpu]:
    chosen = sorted(_open(need, _view(node)), key=lambda gpu: (gpu.trials, gpu.uuid))[: need.gpus]
    names = {gpu.uuid for gpu in chosen}
    return [gpu for gpu in node.gpus if gpu.uuid in names]


def _cost(need: PodNeed, node: Node) -> float | None:
    """Return the cost; None: nothing fits; infinity: something may fit, but there is no recent report."""
    view = _view(node)
    if refuse(need, view, 0.0) is not None or len(_open(need, view)) < need.gpus:
        return None
    return math.inf if node.stale else LOAD_BALANCE.cost(PlacementQuery(need), view) or 0.0


def _open(need: PodNeed, view: NodeView) -> list[GpuReading]:
    """Return the usable GPUs with a free slot; slots are the kubelet's own count and always known."""
    fresh = not view.stale(0.0, STALE_AFTER)
    return [gpu for gpu in usable(need, view, fresh) if gpu.trials < gpu.slots]


def _need(job: Job) -> PodNeed:
    """Return the needs of each pod. Simulated GPUs have no product: a request for one is always met."""
    view = job.view
    return PodNeed(view.gpus.per_worker, view.gpus.memory, memory_stays=job.spec.method.keeps_memory)


def _view(node: Node) -> NodeView:
    """Return the node as of time 0: its last report is either current or long past."""
    at = -math.inf if node.stale else 0.0
    return NodeView(node.spec.name, tuple(_reading(gpu, node) for gpu in node.gpus), reported_at=at)


def _reading(gpu: Gpu, node: Node) -> GpuReading:
    here, reported = gpu.trials, gpu.reported
    reserved = reserved_bytes(here)
    return GpuReading(
        uuid=gpu.uuid,
        memory_total=node.spec.memory,
        memory=MemoryUse(reserved=reserved, used=reserved if reported is None else reported.memory),
        sm_utilization=load_percent(here) if reported is None else reported.load,
        health="Healthy",
        slots=node.spec.slots,
        trials=len(here),
    )
