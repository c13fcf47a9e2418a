"""The openb trace through the extender's own NodeEvaluator: pods arrive and stay, each goes where the policy says.
Used by bench_openb.

What the trace says of a pod is told in Podium's terms: thousandths of a GPU are its declared memory on GPUs of 1,000
(`WHOLE`), whole GPUs are such pods of 1,000. CPU and memory of the node are counted here, as kube-scheduler does,
before the policy is asked. Which GPUs of the node a pod gets is the device plugin's rule (`placement.charge`).
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from podium_core.placement.base import PlacementPolicy, PlacementQuery
from podium_core.placement.gpu_choice import charge_at, chosen_gpus
from podium_core.placement.gpu_fragments import WHOLE
from podium_core.placement.scores import rank, tie_break
from podium_core.placement.typical_pods import typical_needs
from podium_core.placement.views import GpuReading, NodeView, PodNeed
from podium_extender.state.views import Views
from podium_extender.verbs.decisions import NodeEvaluator

SHARES = 10**6  # never what a pod lacks
NOW = 0.0
Arrival = tuple[PodNeed, int]  # with MiB of memory of the node


@dataclass(frozen=True, slots=True)
class Trace:
    """`nodes`: views with nothing on them, ordered by name, and MiB of memory of each."""

    nodes: tuple[NodeView, ...]
    memory: tuple[int, ...]
    pods: tuple[Arrival, ...]

    @property
    def gpus(self) -> int:
        return sum(len(node.gpus) for node in self.nodes)


def read_trace(folder: Path) -> Trace:
    """The two files of the authors (Alibaba's cluster, 2023)."""
    with (folder / "openb_node_list_gpu_node.csv").open() as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["sn"])
    gpu = GpuReading("", memory_total=WHOLE, health="Healthy", slots=SHARES)
    nodes = tuple(NodeView(row["sn"], (gpu,) * int(row["gpu"]), NOW, cpu_free=int(row["cpu_milli"])) for row in rows)
    with (folder / "openb_pod_list_default.csv").open() as file:
        pods = tuple(
            (
                PodNeed(int(pod["num_gpu"]), int(pod["gpu_milli"]), packed=True, cpu=int(pod["cpu_milli"])),
                int(pod["memory_mib"]),
            )
            for pod in csv.DictReader(file)
        )
    return Trace(nodes, tuple(int(row["memory_mib"]) for row in rows), pods)


def arrivals(trace: Trace, chance: np.random.Generator, share: float) -> list[Arrival]:
    """The trace, grown by pods drawn from it until they ask for `share` of all GPUs, in any order."""
    drawn = list(trace.pods)
    asked = sum(_asks(need) for need, _ in drawn)
    while asked < share * trace.gpus:
        drawn.append(trace.pods[chance.integers(len(trace.pods))])
        asked += _asks(drawn[-1][0])
    return [drawn[i] for i in chance.permutation(len(drawn))]


@dataclass(frozen=True, slots=True)
class Replay:
    """Percent of all GPUs, after each arrival: asked for so far, and allocated."""

    asked: tuple[float, ...]
    allocated: tuple[float, ...]

    def at(self, asked: float) -> float:
        """Allocated when pods that ask for so much had arrived."""
        return self.allocated[min(int(np.searchsorted(self.asked, asked)), len(self.asked) - 1)]


def replay(trace: Trace, policy: PlacementPolicy, seed: int, share: float, *, cpus: bool = True) -> Replay:
    """`cpus`: the policy hears of the nodes' free CPUs. kube-scheduler filters by them in any case."""
    chance = np.random.default_rng(seed)
    coming = arrivals(trace, chance, share)
    typical = typical_needs(Counter(need for need, _ in trace.pods), least_gpus=0)
    cpu = np.array([node.cpu_free for node in trace.nodes])
    memory = np.array(trace.memory)
    views = Views(replace(node, cpu_free=node.cpu_free if cpus else None) for node in trace.nodes)
    judge = NodeEvaluator(policy, 1.0, kinds=10**6)
    names = np.array([node.name for node in trace.nodes])
    row = {name: i for i, name in enumerate(names.tolist())}
    asked = allocated = 0.0
    seen: list[tuple[float, float]] = []
    for number, (need, size) in enumerate(coming):
        question = PlacementQuery(need, f"{seed}/{number}", typical, cpus_known=cpus)
        asked += _asks(need)
        beside = names[(cpu >= need.cpu) & (memory >= size)].tolist()
        left = judge.filter(PlacementQuery(replace(need, cpu=0)), beside, views, NOW).passed
        if left:
            if policy.uses_pod_uid:  # nothing to keep from pod to pod
                costs = np.array([policy.cost(question, views.get(name)) for name in left], dtype=np.float64)
                ranking = rank(left, costs, *tie_break(policy, question))
            else:
                ranking = judge.prioritize(question, left, views, NOW)
            best = left[int(ranking.scores.argmax())]
            node, i = views.get(best), row[best]
            gpus = charge_at(node.gpus, _chosen(policy, need, node, chance), need)
            cpu[i] -= need.cpu
            memory[i] -= size
            views.put(replace(node, gpus=gpus, cpu_free=int(cpu[i]) if cpus else None))
            allocated += _asks(need)
        seen.append((100 * asked / trace.gpus, 100 * allocated / trace.gpus))
    return Replay(tuple(a for a, _ in seen), tuple(b for _, b in seen))


def _asks(need: PodNeed) -> float:
    return need.gpus * (need.memory or 0) / WHOLE


def _chosen(policy: PlacementPolicy, need: PodNeed, node: NodeView, chance: np.random.Generator) -> Sequence[int]:
    """The GPUs of the node: any that fit for `random`, as the authors have it; else the device plugin's."""
    if policy.name != "random":
        return chosen_gpus(node.gpus, need)
    fit = [i for i, gpu in enumerate(node.gpus) if gpu.memory_reserved + (need.memory or 0) <= WHOLE]
    return [int(i) for i in chance.permutation(fit)[: need.gpus]]
