"""Where a pod goes: the extender's own filter and cost on the simulated nodes. Pure; called by the engine.

The device plugin's part, which GPUs of the node, is the least loaded that fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from podium_core.placement.base import PlacementQuery
from podium_core.placement.fit import STALE_AFTER, refuse, usable
from podium_core.placement.load_balance import LOAD_BALANCE
from podium_core.placement.views import GpuReading, NodeView, PodNeed
from podium_simulator.system.state import Gpu, Job, Node, Trial
from podium_simulator.system.telemetry import kept, work


def place(trial: Trial, nodes: Sequence[Node]) -> tuple[Gpu, ...]:
    """The GPUs whose shares its pod gets, all of one node; empty where there is no room. A node of which nothing recent
    is known is taken where no other one has room: it scores in the middle, and the best one that is known above that.
    O(GPUs log GPUs) of the nodes that have trials, and of one of those without any that are alike: of these there may
    be thousands.
    """
    need, known = _need(trial.job), trial.job.spec.fact(trial.number).node
    if trial.way is not None and trial.arrives:  # by its required affinity
        known = trial.way.target
    empty: dict[tuple[int, int, int], float | None] = {}
    best: tuple[float, str, Node] | None = None
    for node in nodes:
        if not node.up or node.draining or (known and known != node.spec.name):
            continue
        if node.trials or node.gpus[0].shown is not None:
            cost = _cost(need, node)
        else:
            kind = node.spec.gpus, node.spec.shares, node.spec.memory
            if kind not in empty:
                empty[kind] = _cost(need, node)
            cost = empty[kind]
        if cost is not None and (best is None or (cost, node.spec.name) < best[:2]):
            best = cost, node.spec.name, node
    if best is None:
        return ()
    node = best[2]
    chosen = sorted(_open(need, _view(node)), key=lambda gpu: (gpu.trials, gpu.uuid))[: need.gpus]
    names = {gpu.uuid for gpu in chosen}
    return tuple(gpu for gpu in node.gpus if gpu.uuid in names)


def _cost(need: PodNeed, node: Node) -> float | None:
    """None: there is no room; infinity: there may be, and nothing recent is known of it."""
    view = _view(node)
    if refuse(need, view, 0.0) is not None or len(_open(need, view)) < need.gpus:
        return None
    return math.inf if node.stale else LOAD_BALANCE.cost(PlacementQuery(need), view) or 0.0


def _open(need: PodNeed, view: NodeView) -> list[GpuReading]:
    """Shares are the kubelet's own count, and always known."""
    fresh = not view.stale(0.0, STALE_AFTER)
    return [gpu for gpu in usable(need, view, fresh) if gpu.trials < gpu.slots]


def _need(job: Job) -> PodNeed:
    """Simulated GPUs have no product: whoever asks for one gets it."""
    view = job.view
    return PodNeed(view.gpus_per_trial, view.memory, memory_stays=job.spec.method.keeps_memory)


def _view(node: Node) -> NodeView:
    """As of time 0, so that what is known of the node is either of now or long past."""
    at = -math.inf if node.stale else 0.0
    return NodeView(node.spec.name, tuple(_reading(gpu, node) for gpu in node.gpus), reported_at=at)


def _reading(gpu: Gpu, node: Node) -> GpuReading:
    here, shown = gpu.trials, gpu.shown
    reserved = kept(here)
    return GpuReading(
        uuid=gpu.uuid,
        memory_total=node.spec.memory,
        memory_reserved=reserved,
        memory_used=reserved if shown is None else shown.memory,
        sm_utilization=work(here) if shown is None else shown.work,
        health="Healthy",
        slots=node.spec.shares,
        trials=len(here),
    )
