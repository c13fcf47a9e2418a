"""Page and plot of bench_extender."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np

from benchmarks.extender.synthetic import GPUS
from benchmarks.output import command, commit
from podium_core.placement.policies.registry import DEFAULT
from podium_extender.verbs.node_selection import SCORED_NODES

matplotlib.use("Agg")
from matplotlib import pyplot as plt

TRIALS_PER_NODE = 2 * GPUS  # unless a setting says otherwise
OTHERS = 150_000  # pods: the limit that Kubernetes is designed for
PODS_PER_RUN = 100
MEAN_BAR, P99_BAR = 4.0, 10.0  # milliseconds at 5,000 nodes


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of one setting.

    `both`: milliseconds of both verbs together, one value for each pod; `json_alone`: mean milliseconds of JSON for the
    same bodies. `first`: of the first pod of its kind; `all_changed`: after every node had changed. `returned`: nodes
    that filter returned. `rss`: the maximum, in MB; `growth`: MB by which the process grew with nodes and other pods.
    """

    nodes: int
    both: list[float]
    verbs: Mapping[str, float]
    first: float
    all_changed: float
    json_alone: float
    returned: int
    rss: float
    growth: float = 0.0

    @property
    def mean(self) -> float:
        return statistics.mean(self.both)

    @property
    def p99(self) -> float:
        return float(np.quantile(self.both, 0.99))

    @property
    def kept(self) -> bool:
        """Whether the bars are kept."""
        return self.mean <= MEAN_BAR and self.p99 <= P99_BAR


@dataclass(frozen=True, slots=True)
class Page:
    """All runs.

    `kinds`: kinds of pods at the most nodes; `growth`: by the number of trials, two runs each.
    """

    pods: int
    sizes: Sequence[Measured]
    kinds: Mapping[str, Measured]
    growth: Mapping[int, Sequence[Measured]]
    policies: Mapping[str, Measured]
    others: int = OTHERS

    def growth_ms(self, trials: int) -> float:
        """Return the median milliseconds with this number of trials."""
        return statistics.median(ms for run in self.growth[trials] for ms in run.both)


def page_text(page: Page) -> str:
    """Return the page."""
    head = f"""# bench-extender (in process)

`{command()}`

{os.cpu_count()} cores (one is used), commit {commit()}, load average {os.getloadavg()[0]:.1f} at the end.
Synthetic caches, {GPUS} GPUs a node, {page.pods} pods a run, policy `{DEFAULT}`. filter is sent all names. It returns
the {SCORED_NODES} best nodes, or all for a pod with preferences of its own, and prioritize is sent these. The bodies
are those of a real kube-scheduler, as bytes of HTTP to the protocol of its connection. Figures are **CPU time of that
process**; other work may run on the machine. There is **no socket, no kube-scheduler and no KWOK**: for those see
[bench-scheduler](bench-scheduler.md). `times JSON`: multiple of the time of json.loads and json.dumps for these bodies.

| nodes | trials | both verbs, mean ms | p99 ms | filter | prioritize | times JSON | RSS, MB |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
    return head + _sizes(page) + _kinds(page) + _growth(page) + _policies(page) + "\n![growth](bench-extender.png)\n"


def _sizes(page: Page) -> str:
    rows = []
    for one in page.sizes:
        cells = (one.mean, one.p99, one.verbs["filter"], one.verbs["prioritize"], one.mean / one.json_alone)
        figures = " | ".join(f"{value:.2f}" for value in cells)
        rows.append(f"| {one.nodes} | {one.nodes * TRIALS_PER_NODE:,} | {figures} | {one.rss:.0f} |\n")
    return (
        "".join(rows) + "\nRSS: the maximum, with Python, numpy and matplotlib (which the extender does not import).\n"
    )


def _kinds(page: Page) -> str:
    with_others = list(page.kinds.values())[-1]
    verdict = "kept by all" if all(one.kept for one in page.kinds.values()) else "**not kept by all**"
    head = f"""
## Kinds of pods at {with_others.nodes:,} nodes

`first`: the first pod of its kind (other GPUs, memory or products), for which every node is evaluated. `all changed`:
the same after every node has a new status. kube-scheduler waits for 1,000 ms.

| pod | returned nodes | both verbs, mean ms | p99 ms | first, ms | all changed, ms |
| --- | --- | --- | --- | --- | --- |
"""
    rows = (
        f"| {name} | {one.returned:,} | {one.mean:.2f} | {one.p99:.2f} | {one.first:.0f} | {one.all_changed:.0f} |\n"
        for name, one in page.kinds.items()
    )
    tail = f"""
Bar, mean <= {MEAN_BAR:g} ms and p99 <= {P99_BAR:g} ms: {verdict}. The {page.others:,} other pods take
{with_others.growth:.0f} MB; one of them changes before each pod.
"""
    return head + "".join(rows) + tail


def _growth(page: Page) -> str:
    few, many = min(page.growth), max(page.growth)
    rows = (
        f"| {trials:,} | {page.growth_ms(trials):.2f} | {max(run.p99 for run in runs):.2f} |\n"
        for trials, runs in page.growth.items()
    )
    return f"""
## Trials at {page.growth[few][0].nodes:,} nodes

Each is a HyperParamTrial with a rank, a pod on a node and a slot on a GPU. {many:,} take
{page.growth_ms(many) / page.growth_ms(few):.2f} times as long as {few:,}: the extender evaluates only the node that has
changed since the last pod, with its trials.

| trials | both verbs, median ms | p99 ms |
| --- | --- | --- |
{"".join(rows)}"""


def _policies(page: Page) -> str:
    head = f"""
## Policies at {next(iter(page.policies.values())).nodes:,} nodes

| policy | mean ms | p99 ms | first, ms |
| --- | --- | --- | --- |
"""
    return head + "".join(
        f"| {name} | {one.mean:.2f} | {one.p99:.2f} | {one.first:.0f} |\n" for name, one in page.policies.items()
    )


def plot(page: Page, path: Path) -> None:
    """Draw the milliseconds over nodes and over trials."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained", sharey=True)
    lines: Mapping[str, Callable[[Measured], float]] = {
        "p99": lambda one: one.p99,
        "mean": lambda one: one.mean,
        "JSON alone": lambda one: one.json_alone,
    }
    for (label, value), style in zip(lines.items(), ("o--", "o-", "o:"), strict=True):
        left.plot([one.nodes for one in page.sizes], [value(one) for one in page.sizes], style, label=label)
        means = [statistics.mean(value(run) for run in runs) for runs in page.growth.values()]
        right.plot(list(page.growth), means, style, label=label)
    left.set_xlabel("nodes, all names sent to filter")
    right.set_xlabel(f"trials at {next(iter(page.growth.values()))[0].nodes:,} nodes")
    left.set_ylabel("filter + prioritize, ms of CPU")
    left.set_ylim(bottom=0)
    left.legend()
    figure.savefig(path, dpi=110)
