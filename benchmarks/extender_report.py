"""What bench_extender found, as a page and a plot. Called by it."""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from made_up import GPUS

from podium_core.placement.registry import DEFAULT
from podium_extender.verbs.node_selection import SCORED_NODES

matplotlib.use("Agg")
from matplotlib import pyplot as plt

RESULTS = Path(__file__).resolve().parent / "results" / "bench-extender.md"
A_NODE = 2 * GPUS  # trials, where nothing else is said
OTHERS = 150_000  # pods, as many as Kubernetes is made for
PODS_A_RUN = 100
MEAN_BAR, P99_BAR = 4.0, 10.0  # milliseconds at 5,000 nodes, issue 6


@dataclass(frozen=True, slots=True)
class Found:
    """Milliseconds of both verbs together, a value a pod; `floor` the same for the bodies alone. `first`: of the first
    pod of its kind; `after_all`: after every node had changed. `handed`: nodes that prioritize was asked about.
    """

    nodes: int
    both: list[float]
    verbs: Mapping[str, float]
    first: float
    after_all: float
    floor: float
    handed: int
    rss: float  # MB at most
    room: float = 0.0  # MB that the process grew by with nodes and other pods

    @property
    def mean(self) -> float:
        return statistics.mean(self.both)

    @property
    def p99(self) -> float:
        return float(np.quantile(self.both, 0.99))

    @property
    def kept(self) -> bool:
        return self.mean <= MEAN_BAR and self.p99 <= P99_BAR


@dataclass(frozen=True, slots=True)
class Page:
    """All runs. `kinds`: of pods at 5,000 nodes; `growth`: by the number of trials, each in two turns."""

    pods: int
    sizes: Sequence[Found]
    kinds: Mapping[str, Found]
    growth: Mapping[int, Sequence[Found]]
    policies: Mapping[str, Found]

    def growth_ms(self, trials: int) -> float:
        return statistics.median(ms for run in self.growth[trials] for ms in run.both)


def text(page: Page) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    head = f"""# bench-extender (in process)

`python benchmarks/bench_extender.py{"" if page.pods == PODS_A_RUN else f" {page.pods}"}`

{os.cpu_count()} cores (one is used), commit {commit.stdout.strip()}, load average {os.getloadavg()[0]:.1f} at the end.
Synthetic caches, {GPUS} GPUs a node, {page.pods} pods a run, policy `{DEFAULT}`. filter is sent all names, prioritize
those that filter hands on: the {SCORED_NODES} best, or all for a pod with a wish of its own. Bodies as a real
kube-scheduler sends them, as bytes of HTTP to the protocol of its connection. **CPU time of that process**
(other work may run on the machine). **No socket, no kube-scheduler, no KWOK**: those are in
[bench-scheduler](bench-scheduler.md). `floor`: json.loads and json.dumps of the same bodies.

| nodes | trials | both verbs, mean ms | p99 ms | filter | prioritize | times floor | RSS, MB |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
    return head + _sizes(page) + _kinds(page) + _growth(page) + _policies(page) + "\n![growth](bench-extender.png)\n"


def _sizes(page: Page) -> str:
    rows = []
    for one in page.sizes:
        cells = (one.mean, one.p99, one.verbs["filter"], one.verbs["prioritize"], one.mean / one.floor)
        told = " | ".join(f"{value:.2f}" for value in cells)
        rows.append(f"| {one.nodes} | {one.nodes * A_NODE:,} | {told} | {one.rss:.0f} |\n")
    return (
        "".join(rows) + "\nRSS: the most, with Python, numpy and matplotlib (which the extender itself is without).\n"
    )


def _kinds(page: Page) -> str:
    seeing = list(page.kinds.values())[-1]
    verdict = "kept by all" if all(one.kept for one in page.kinds.values()) else "**not kept by all**"
    head = f"""
## Kinds of pods at {seeing.nodes:,} nodes

`first`: the first pod of its kind (other GPUs, memory or products): every node is judged. `all changed`: the same, as
every node has a new status since the last pod. kube-scheduler waits for 1,000 ms.

| pod | handed on | both verbs, mean ms | p99 ms | first, ms | all changed, ms |
| --- | --- | --- | --- | --- | --- |
"""
    rows = (
        f"| {name} | {one.handed:,} | {one.mean:.2f} | {one.p99:.2f} | {one.first:.0f} | {one.after_all:.0f} |\n"
        for name, one in page.kinds.items()
    )
    tail = f"""
Bar of issue 6, mean <= {MEAN_BAR:g} ms and p99 <= {P99_BAR:g} ms: {verdict}. The {OTHERS:,} other pods take
{seeing.room:.0f} MB; one of them changes before each pod.
"""
    return head + "".join(rows) + tail


def _growth(page: Page) -> str:
    few, many = min(page.growth), max(page.growth)
    rows = (
        f"| {trials:,} | {page.growth_ms(trials):.2f} | {max(run.p99 for run in runs):.2f} |\n"
        for trials, runs in page.growth.items()
    )
    return f"""
## Trials at 1,000 nodes

Each a HyperParamTrial with a rank, a pod on a node and a seat on a GPU. {many:,} take
{page.growth_ms(many) / page.growth_ms(few):.2f} times as long as {few:,}: the one node that has changed since the last
pod is looked at with its trials, and nothing else.

| trials | both verbs, median ms | p99 ms |
| --- | --- | --- |
{"".join(rows)}"""


def _policies(page: Page) -> str:
    head = """
## Policies at 1,000 nodes

| policy | mean ms | p99 ms | first, ms |
| --- | --- | --- | --- |
"""
    return head + "".join(
        f"| {name} | {one.mean:.2f} | {one.p99:.2f} | {one.first:.0f} |\n" for name, one in page.policies.items()
    )


def plot(page: Page) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained", sharey=True)
    lines: Mapping[str, Callable[[Found], float]] = {
        "p99": lambda one: one.p99,
        "mean": lambda one: one.mean,
        "floor (JSON alone)": lambda one: one.floor,
    }
    for (label, value), style in zip(lines.items(), ("o--", "o-", "o:"), strict=True):
        left.plot([one.nodes for one in page.sizes], [value(one) for one in page.sizes], style, label=label)
        means = [statistics.mean(value(run) for run in runs) for runs in page.growth.values()]
        right.plot(list(page.growth), means, style, label=label)
    left.set_xlabel("nodes, all names sent to filter")
    right.set_xlabel("trials at 1,000 nodes")
    left.set_ylabel("filter + prioritize, ms of CPU")
    left.set_ylim(bottom=0)
    left.legend()
    figure.savefig(RESULTS.with_suffix(".png"), dpi=110)
