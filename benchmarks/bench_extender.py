"""How long the extender thinks: filter and prioritize over synthetic caches, as kube-scheduler asks.

    python benchmarks/bench_extender.py [PODS]

In one process: no socket, no kube-scheduler, no KWOK (those come on top: bench_scheduler.py). For each pod filter is
asked about all nodes and prioritize about those that filter hands on, both as bytes of HTTP to the connection's own
protocol (`lane`). Then the pod is placed on the best node: a watch event that the caches take in, outside the timed
part, with one heartbeat and one new status of a GPUNode, so that something has changed before each pod. `floor`: what
json.loads and json.dumps alone take for the same bodies. Writes benchmarks/results/bench-extender.md and .png, prints
RESULT {json}.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import matplotlib
import numpy as np
from crowd import Crowd
from made_up import GPUS, Connection, Json, Live, as_sent, gpunode, lease, pod, seats, trial

from podium.placement.registry import DEFAULT, placement_policy
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, LEASES, PODS, TRIALS
from podium_cluster.watch import WatchCache
from podium_extender.decide import Judge
from podium_extender.front import Front
from podium_extender.head import SCORED
from podium_extender.main import when_warm
from podium_extender.metrics import Metrics
from podium_extender.preferences import Preferences
from podium_extender.telemetry import Heartbeats, Telemetry, parse_gpunode, parse_pod
from podium_extender.trials import parse_trial

matplotlib.use("Agg")
from matplotlib import pyplot as plt

RESULTS = Path(__file__).resolve().parent / "results" / "bench-extender.md"
SIZES = (100, 1000, 5000)
A_NODE = 2 * GPUS  # trials, where nothing else is said
TRIALS_THERE = (100, 1000, 10_000)  # at 1,000 nodes
OTHERS = 150_000  # pods, as many as Kubernetes is made for
PODS_A_RUN = 100
MEAN_BAR, P99_BAR = 4.0, 10.0  # milliseconds at 5,000 nodes, issue 6
WISH = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}
        ]
    }
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A run: so many pods, of trials or not, at so many nodes with so many trials. `others`: pods of other schedulers,
    by which free CPUs are known. `wish`: the pods prefer some nodes, so all are handed on.
    """

    nodes: int
    pods: int
    policy: str = DEFAULT
    trials: int | None = None
    of_trial: bool = True
    others: int = 0
    wish: bool = False


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


class Cluster:
    """The extender over caches of a made-up cluster, and the scheduler that asks it."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.chance = np.random.default_rng(asked.nodes)
        self.names = [f"gpu-node-{i:05d}.cluster.example" for i in range(asked.nodes)]
        whole = A_NODE * asked.nodes if asked.trials is None else asked.trials
        self.there = {name: len(range(i, whole, asked.nodes)) for i, name in enumerate(self.names)}
        sitting = [(node, name) for node, count in self.there.items() for name in seats(node, count)]
        self.live = Live(
            {
                GPUNODES: (self.gpunode(name) for name in self.names),
                PODS: (pod(f"{name}-0", node) for node, name in sitting),
                LEASES: (lease(name, 0) for name in self.names),
                TRIALS: (trial(self.chance, name) for _, name in sitting),
            }
        )
        self.crowd = Crowd(self.names, asked.others)
        api, room = cast(Api, self.live), self.crowd.room()
        own = WatchCache(api, PODS, parse_pod)
        others = [room.caches["other pods"]] if asked.others else []
        self.telemetry = Telemetry(
            WatchCache(api, GPUNODES, parse_gpunode),
            own,
            WatchCache(api, LEASES, Heartbeats(time.time).parse, namespace="podium-system"),
            WatchCache(api, TRIALS, parse_trial),
            namespace="podium-system",
            clock=time.time,
            room=room if asked.others else None,
            preferences=Preferences(room.caches["nodes"], [own, *others]),
        )
        judge = Judge(placement_policy(asked.policy), 1e9)
        self.connection = Connection(Front(self.telemetry, Metrics(), judge, body_limit=2**26, max_requests=32))
        self.watches: list[asyncio.Task[None]] = []

    def gpunode(self, name: str) -> Json:
        return gpunode(self.chance, name, self.there[name])

    async def warm(self) -> float:
        """MB that the process grew by with nodes and pods of others."""
        self._watch(self.telemetry.caches)
        await when_warm(self.telemetry, self.telemetry.caches.values())
        before = _resident()
        self._watch(self.telemetry.more_caches)
        await when_warm(self.telemetry, self.telemetry.more_caches.values())
        return _resident() - before

    def _watch(self, caches: Mapping[str, WatchCache[object]]) -> None:
        self.watches += [asyncio.create_task(cache.run()) for cache in caches.values()]

    async def ask(self, number: int) -> tuple[float, float, float, int]:
        """Milliseconds of filter, of prioritize and of their floor for a pod, and how many nodes filter handed on; then
        it is there.
        """
        made = pod(f"pod-{number}-0", of_trial=self.asked.of_trial)
        sent = as_sent(made, **({"affinity": WISH} if self.asked.wish else {}))
        body = question(sent, _as_found(self.names, self.chance))
        passed, filtering = await self.connection.post("filter", body)
        left = json.loads(passed)["NodeNames"]
        second = question(sent, left)
        scored, scoring = await self.connection.post("prioritize", second)
        best = max(json.loads(scored), key=lambda row: row["Score"])["Host"]
        await self.live.change(PODS, pod(f"pod-{number}-0", best, of_trial=self.asked.of_trial))
        return filtering, scoring, _floor([body, second], [passed, scored]), len(left)

    async def change(self, number: int) -> None:
        changed = self.names[number % len(self.names)]
        await self.live.change(LEASES, lease(changed, number))
        await self.live.change(GPUNODES, self.gpunode(changed))
        if self.asked.others:
            await self.crowd.change(number % self.asked.others, f"{number % 7 + 1}00m")


async def measure(asked: Asked) -> Found:
    cluster = Cluster(asked)
    grown = await cluster.warm()
    first = await cluster.ask(0)
    pods = []
    for number in range(1, asked.pods + 1):
        await cluster.change(number)
        pods.append(await cluster.ask(number))
    await cluster.live.change(GPUNODES, *(cluster.gpunode(name) for name in cluster.names))
    last = await cluster.ask(asked.pods + 1)
    for watch in cluster.watches:
        watch.cancel()
    filters, scores, floors, handed = zip(*pods, strict=True)
    return Found(
        nodes=asked.nodes,
        both=[a + b for a, b in zip(filters, scores, strict=True)],
        verbs={"filter": statistics.mean(filters), "prioritize": statistics.mean(scores)},
        first=first[0] + first[1],
        after_all=last[0] + last[1],
        floor=statistics.mean(floors),
        handed=max(handed),
        rss=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        room=grown,
    )


def _resident() -> float:
    """MB of memory that the process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def question(asked: Json, names: Sequence[str]) -> bytes:
    """As Go writes it: without white space."""
    return json.dumps({"Pod": asked, "Nodes": None, "NodeNames": names}, separators=(",", ":")).encode()


def _as_found(names: Sequence[str], chance: np.random.Generator) -> list[str]:
    """The scheduler's 16 threads take the nodes in pieces of about the square root of their number, and whoever is
    ready first writes first: no two requests give the same order.
    """
    size = max(1, int(len(names) ** 0.5))
    pieces = [list(names[at : at + size]) for at in range(0, len(names), size)]
    near = np.argsort(np.arange(len(pieces)) + chance.uniform(0, 16, len(pieces)))
    return [name for piece in near for name in pieces[piece]]


def _floor(questions: Sequence[bytes], answers: Sequence[bytes]) -> float:
    """Milliseconds that the standard library takes to read the questions and to write the answers."""
    told = [json.loads(answer) for answer in answers]
    started = time.process_time()
    for question in questions:
        json.loads(question)
    for answer in told:
        json.dumps(answer)
    return 1000 * (time.process_time() - started)


def alone(asked: Asked) -> Found:
    """In a process of its own, so that its memory is its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        found = asyncio.run(measure(asked))
        with os.fdopen(write, "w") as pipe:
            json.dump(asdict(found), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if not text:
        raise SystemExit("a run ended without a result; its error is above")
    print(f"{asked}: done", flush=True)
    return Found(**json.loads(text))


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


def measure_all(pods: int) -> Page:
    large = SIZES[-1]
    sizes = [alone(Asked(nodes, pods)) for nodes in SIZES]
    kinds = {
        "a trial": sizes[-1],
        "a trial that prefers some nodes": alone(Asked(large, pods, wish=True)),
        "no trial, free CPUs not known (FGD)": alone(Asked(large, pods, of_trial=False)),
        f"no trial, free CPUs known by {OTHERS:,} other pods (fill)": alone(
            Asked(large, pods, of_trial=False, others=OTHERS)
        ),
    }
    growth: dict[int, list[Found]] = {trials: [] for trials in TRIALS_THERE}
    for _ in range(2):  # in turns, for the machine may be slower for a while
        for trials, runs in growth.items():
            runs.append(alone(Asked(1000, pods, trials=trials)))
    policies = {
        name: alone(Asked(1000, pods, name))
        for name in ("load_balance", "fragmentation", "fill", "binpack", "spread", "random")
    }
    return Page(pods, sizes, kinds, growth, policies)


def text(page: Page) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    head = f"""# bench-extender (in process)

`python benchmarks/bench_extender.py{"" if page.pods == PODS_A_RUN else f" {page.pods}"}`

{os.cpu_count()} cores (one is used), commit {commit.stdout.strip()}, load average {os.getloadavg()[0]:.1f} at the end.
Synthetic caches, {GPUS} GPUs a node, {page.pods} pods a run, policy `{DEFAULT}`. filter is sent all names, prioritize
those that filter hands on: the {SCORED} best, or all for a pod with a wish of its own. Bodies as a real kube-scheduler
sends them, as bytes of HTTP to the protocol of its connection. **CPU time of that process** (other work may run on the
machine). **No socket, no kube-scheduler, no KWOK**: those are in [bench-scheduler](bench-scheduler.md). `floor`:
json.loads and json.dumps of the same bodies.

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
    few, many = min(TRIALS_THERE), max(TRIALS_THERE)
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


def main() -> None:
    page = measure_all(int(sys.argv[1]) if len(sys.argv) > 1 else PODS_A_RUN)
    RESULTS.write_text(text(page), encoding="utf-8")
    plot(page)
    sizes = {
        str(one.nodes): {
            "filter_prioritize_mean_ms": round(one.mean, 2),
            "filter_prioritize_p99_ms": round(one.p99, 2),
            "times_floor": round(one.mean / one.floor, 2),
            "rss_mb": round(one.rss),
        }
        for one in page.sizes
    }
    growth = page.growth_ms(max(TRIALS_THERE)) / page.growth_ms(min(TRIALS_THERE))
    kept = all(one.kept for one in page.kinds.values())
    print("RESULT", json.dumps({"nodes": sizes, "by_trials": round(growth, 2), "kept": kept}))


if __name__ == "__main__":
    main()
