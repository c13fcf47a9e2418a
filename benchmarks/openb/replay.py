"""A trace of pods through the extender's NodeEvaluator: pods arrive and remain, and the policy chooses their nodes.

The trace's columns are expressed in Podium's terms. Thousandths of a GPU (`gpu_milli`) are declared memory on GPUs of
1,000 (`WHOLE`); a pod with whole GPUs declares 1,000 on each. The GPU models of a pod (`gpu_spec`, for example
"V100M16|V100M32") are its products, and a node's `model` is the product of its GPUs. CPU and memory of the nodes are
counted here, as kube-scheduler does before it calls the policy. The device plugin's rule chooses the GPUs of the node.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.inputs import NODES, PODS, require_file
from podium_core.placement.gpu_choice import charge_at, chosen_gpus
from podium_core.placement.gpu_fragments import WHOLE
from podium_core.placement.policies.base import PlacementPolicy, PlacementQuery
from podium_core.placement.scores import rank, tie_break
from podium_core.placement.typical_pods import typical_needs
from podium_core.placement.views import GpuReading, NodeView, PodNeed
from podium_core.tables.csv_table import TableError, named, open_table, shown
from podium_core.tables.text_file import TextFileError, text_lines
from podium_extender.state.views import Views
from podium_extender.verbs.decisions import NodeEvaluator

SLOTS = 10**6  # of a GPU: high enough that a pod never lacks one
NOW = 0.0
POD_COLUMNS = ("num_gpu", "gpu_milli", "cpu_milli", "memory_mib")
NODE_NAME = "sn"
NODE_COLUMNS = (NODE_NAME, "gpu", "cpu_milli", "memory_mib")
MOST = {"num_gpu": 1000, "gpu": 1000, "gpu_milli": 10**6, "cpu_milli": 10**9, "memory_mib": 10**12}
Arrival = tuple[PodNeed, int]  # with MiB of the node's memory


@dataclass(frozen=True, slots=True)
class Trace:
    """Empty nodes, sorted by name, with MiB of memory of each, and the pods in the order of the file."""

    nodes: tuple[NodeView, ...]
    memory: tuple[int, ...]
    pods: tuple[Arrival, ...]

    @property
    def gpus(self) -> int:
        return sum(len(node.gpus) for node in self.nodes)

    def __str__(self) -> str:
        return f"{len(self.nodes):,} nodes, {self.gpus:,} GPUs, {len(self.pods):,} pods"


def add_trace(parser: argparse.ArgumentParser) -> None:
    """Add `--pods` and `--nodes`, the two files of a trace."""
    parser.add_argument("--pods", type=Path, default=PODS, metavar="FILE", help=f"CSV of pods (default: {PODS.name})")
    parser.add_argument("--nodes", type=Path, default=NODES, metavar="FILE", help=f"CSV of nodes ({NODES.name})")


def read_trace(pods: Path, nodes: Path) -> Trace:
    """Read the two files, in the format of the openb trace. Ends the program where one cannot be read."""
    require_file(pods, "--pods (make: PODS=)")
    require_file(nodes, "--nodes (make: NODES=)")
    rows = sorted(_rows(nodes, NODE_COLUMNS), key=lambda row: row["sn"])
    needs = list(_rows(pods, POD_COLUMNS))
    if any(map(_products, needs)) and not any(row.get("model") for row in rows):
        raise SystemExit(f"{pods} has GPU models (gpu_spec), but {nodes} has no column model; add it")
    return Trace(
        tuple(_node(row) for row in rows),
        tuple(int(row["memory_mib"]) for row in rows),
        tuple((_need(row), int(row["memory_mib"])) for row in needs),
    )


def _rows(path: Path, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    try:
        table = open_table(text_lines(path), columns)
        missing = [column for column in columns if table.column(column) is None]
        if missing:
            raise SystemExit(f"{path}: no column {', '.join(missing)}; give a CSV in the format of the openb trace")
        needed = [at for at in map(table.column, columns) if at is not None]
        for row in table.rows:
            named(table, row, needed)
            fields = dict(zip((name.lower() for name in table.names), row.fields, strict=False))
            _check(fields, columns, row.line)
            yield fields
    except TextFileError as error:
        raise SystemExit(str(error)) from None
    except TableError as error:
        raise SystemExit(f"{path}, line {error.line or 1}: {error}") from None


def _check(fields: Mapping[str, str], columns: Sequence[str], line: int) -> None:
    """Raise TableError unless every column with a number holds a whole number in its range."""
    for column in columns:
        if column != NODE_NAME and not (fields[column].isdecimal() and int(fields[column][:19]) <= MOST[column]):
            text = f"{column} is {shown(fields[column])}, not a whole number up to {MOST[column]}"
            raise TableError(f"{text}; correct it", line)


def _node(row: dict[str, str]) -> NodeView:
    gpu = GpuReading("", row.get("model") or "", WHOLE, health="Healthy", slots=SLOTS)
    return NodeView(row["sn"], (gpu,) * int(row["gpu"]), NOW, cpu_free=int(row["cpu_milli"]))


def _need(row: dict[str, str]) -> PodNeed:
    gpus, memory, cpu = (int(row[column]) for column in ("num_gpu", "gpu_milli", "cpu_milli"))
    return PodNeed(gpus, memory, _products(row), packed=True, cpu=cpu)


def _products(row: dict[str, str]) -> tuple[str, ...]:
    """Return the GPU models that the pod accepts; empty for any."""
    return tuple(filter(None, (row.get("gpu_spec") or "").split("|")))


def arrivals(trace: Trace, chance: np.random.Generator, share: float) -> list[Arrival]:
    """Return the trace's pods in random order.

    Further pods are drawn from the trace until they request `share` of all GPUs.
    """
    drawn = list(trace.pods)
    requested = sum(_gpus(need) for need, _ in drawn)
    while requested < share * trace.gpus:
        drawn.append(trace.pods[chance.integers(len(trace.pods))])
        requested += _gpus(drawn[-1][0])
    return [drawn[i] for i in chance.permutation(len(drawn))]


@dataclass(frozen=True, slots=True)
class Replay:
    """Percent of all GPUs after each arrival: requested so far, and allocated."""

    requested: tuple[float, ...]
    allocated: tuple[float, ...]

    def at(self, requested: float) -> float:
        """Return the percent allocated when the pods that had arrived requested this percentage."""
        return self.allocated[min(int(np.searchsorted(self.requested, requested)), len(self.requested) - 1)]


def replay(trace: Trace, policy: PlacementPolicy, seed: int, share: float, *, cpus: bool = True) -> Replay:
    """Replay the trace under one policy.

    `cpus`: whether the policy knows the nodes' free CPUs; kube-scheduler filters by them in any case.
    """
    chance = np.random.default_rng(seed)
    arriving = arrivals(trace, chance, share)
    typical = typical_needs(Counter(need for need, _ in trace.pods), least_gpus=0)
    cpu = np.array([node.cpu_free for node in trace.nodes])
    memory = np.array(trace.memory)
    views = Views(replace(node, cpu_free=node.cpu_free if cpus else None) for node in trace.nodes)
    evaluator = NodeEvaluator(policy, 1.0, max_kinds=10**6)
    names = np.array([node.name for node in trace.nodes])
    row = {name: i for i, name in enumerate(names.tolist())}
    requested = allocated = 0.0
    levels: list[tuple[float, float]] = []
    for number, (need, size) in enumerate(arriving):
        question = PlacementQuery(need, f"{seed}/{number}", typical, cpus_known=cpus)
        requested += _gpus(need)
        fitting = names[(cpu >= need.cpu) & (memory >= size)].tolist()
        left = evaluator.filter(replace(need, cpu=0), fitting, views, NOW).passed
        if left:
            if policy.uses_pod_uid:  # the cost depends on the pod, so there is nothing to keep between pods
                costs = np.array([policy.cost(question, views.get(name)) for name in left], dtype=np.float64)
                ranking = rank(left, costs, *tie_break(policy, question))
            else:
                ranking = evaluator.prioritize(question, left, views, NOW)
            best = left[int(ranking.scores.argmax())]
            node, i = views.get(best), row[best]
            gpus = charge_at(node.gpus, _chosen(policy, need, node, chance), need)
            cpu[i] -= need.cpu
            memory[i] -= size
            views.put(replace(node, gpus=gpus, cpu_free=int(cpu[i]) if cpus else None))
            allocated += _gpus(need)
        levels.append((100 * requested / trace.gpus, 100 * allocated / trace.gpus))
    return Replay(tuple(level for level, _ in levels), tuple(level for _, level in levels))


def _gpus(need: PodNeed) -> float:
    """Return how many GPUs the pod requests, in fractions of a GPU."""
    return need.gpus * (need.memory or 0) / WHOLE


def _chosen(policy: PlacementPolicy, need: PodNeed, node: NodeView, chance: np.random.Generator) -> Sequence[int]:
    """Return the GPUs of the pod: for `random` random ones that fit, as the authors do.

    Else the device plugin's.
    """
    if policy.name != "random":
        return chosen_gpus(node.gpus, need)
    fit = [i for i, gpu in enumerate(node.gpus) if gpu.memory.reserved + (need.memory or 0) <= WHOLE]
    return [int(i) for i in chance.permutation(fit)[: need.gpus]]
