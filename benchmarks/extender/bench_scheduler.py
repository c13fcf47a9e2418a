"""Pods per second of the real kube-scheduler with and without the extender, on nodes that are only objects.

    make bench-scheduler [OUT=FOLDER]            (root; one control plane, no kubelet)
    python -m benchmarks.extender.bench_scheduler [--sizes 100,1000,5000] [--pods 500] [--repeats N]

A real etcd, kube-apiserver and kube-scheduler run with the chart's configuration. Each node is a Node and a GPUNode of
eight GPUs, as KWOK would keep them. All pods, each of a trial, exist before the scheduler starts. The rate is taken
between the first and the last binding. It is measured with the extender, without one, and with `null_extender`, which
decides nothing: it shows the cost of the protocol when all nodes are returned with a score. The three alternate, each
time in reverse order, and the ratio is the median of all repetitions, because a machine can be slower for a while.

With `--own-core` the extender has one core and everything else has the others. The wall time of a verb is then its own
and not a wait for a processor; the ratio shows only how it scales.

Writes bench-scheduler.md and .png (or bench-scheduler-own-core) into `--out`; the last line is RESULT {json}.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import httpx
import matplotlib
import numpy as np

from benchmarks.command_line import Parser
from benchmarks.control_plane import TRIAL_LABEL, ExtenderSetup, free_port, now, open_setup
from benchmarks.extender.synthetic import gpunode
from benchmarks.output import add_out, command, commit, result_line, write_page
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, NODES, PODS
from podium_extender.verbs.node_selection import SCORED_NODES

matplotlib.use("Agg")
from matplotlib import pyplot as plt

NULL = "benchmarks.extender.null_extender"
BAR, AIM = 0.55, 0.8  # pods per second with the extender over without
CONCURRENCY = 32
CALLS_PER_SECOND = 5000  # high enough that it never limits
VERBS = ("filter", "prioritize")
MAX_SECONDS = 500.0  # of one repetition
SLOTS = 32  # of a node: eight GPUs with four each


@dataclass(frozen=True, slots=True)
class Size:
    """Figures of one number of nodes: pods per second of each repetition.

    `verbs_ms`: the extender's wall milliseconds for a pod in both verbs; `p99_ms`: of filter and prioritize, added, as
    bounds of the histogram's buckets; `cpu_ms`: its CPU milliseconds for a pod in everything; `memory`: resident MB.
    """

    nodes: int
    with_extender: list[float] = field(default_factory=list)
    without: list[float] = field(default_factory=list)
    null: list[float] = field(default_factory=list)
    verbs_ms: float = 0.0
    p99_ms: float = 0.0
    cpu_ms: float = 0.0
    memory: float = 0.0

    @property
    def ratio(self) -> float:
        """Median of the rates with the extender over those without."""
        return _median_ratio(self.with_extender, self.without)

    @property
    def limit(self) -> float:
        """The same ratio for the extender that decides nothing."""
        return _median_ratio(self.null, self.without)


def _median_ratio(rates: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(rates, others, strict=True))


def repeats_at(nodes: int) -> int:
    """Return the default repetitions: a run on few nodes takes a second or two, so one says little."""
    return max(2, min(6, 600 // nodes))


async def add_nodes(api: Api, setup: ExtenderSetup, first: int, last: int) -> None:
    """Create the nodes with these numbers."""
    chance = np.random.default_rng(first)
    limit = asyncio.Semaphore(CONCURRENCY)
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "110", "podium.dev/gpu": str(SLOTS)}
    ready = {"type": "Ready", "status": "True", "reason": "Bench", "message": "", "lastTransitionTime": now()}

    async def add(name: str) -> None:
        node = gpunode(chance, name, 0)
        gpus = [gpu | {"memoryReserved": 0, "health": "Healthy"} for gpu in node["status"]["gpus"]]
        async with limit:
            status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
            await api.create(NODES, {"metadata": {"name": name}, "status": status}, manager="bench")
            await api.apply(GPUNODES, {"metadata": {"name": name}}, manager="bench")
            seen = {"updatedAt": now(), "gpus": gpus}
            await api.apply_status(GPUNODES, {"metadata": {"name": name}, "status": seen}, manager="podium-agent")

    await asyncio.gather(*(add(setup.node(f"{i:05d}")) for i in range(first, last)))


async def add_pods(api: Api, setup: ExtenderSetup, names: Sequence[str]) -> None:
    """Create the pods; they tolerate every taint, because no kubelet keeps the nodes ready."""
    limit = asyncio.Semaphore(CONCURRENCY)
    slot = {"podium.dev/gpu": "1"}
    container = {"name": "c", "image": "none", "resources": {"requests": slot | {"cpu": "1"}, "limits": slot}}
    spec = {"schedulerName": setup.scheduler, "containers": [container], "tolerations": [{"operator": "Exists"}]}

    async def add(name: str) -> None:
        async with limit:
            metadata = {"name": name, "namespace": setup.namespace, "labels": {TRIAL_LABEL: name}}
            pod = {"metadata": metadata, "spec": spec}
            await api.create(PODS, pod, manager="bench")

    await asyncio.gather(*(add(name) for name in names))


async def rate(api: Api, setup: ExtenderSetup, pods: int, *, with_extender: bool, port: int | None = None) -> float:
    """Return the pods per second between the first and the last binding, as a watch sees them.

    `port`: of another extender than Podium's.
    """
    names = [f"pod-{i}" for i in range(pods)]
    await add_pods(api, setup, names)
    version = (await api.list(PODS, setup.namespace))["metadata"]["resourceVersion"]
    other = {"urlPrefix": f"http://127.0.0.1:{port}"} if port else {}
    setup.start_scheduler(with_extender=with_extender, calls_per_second=CALLS_PER_SECOND, **other)
    bound: dict[str, float] = {}
    deadline = time.monotonic() + MAX_SECONDS
    while len(bound) < pods:  # the server closes a watch that reads more slowly than events come
        if time.monotonic() > deadline:
            raise SystemExit(f"{len(bound)} of {pods} pods were bound within {MAX_SECONDS:g} s")
        watch = api.watch(PODS, setup.namespace, version=version, labels=None, fields=None, seconds=60)
        async for event in watch:
            pod = event["object"]
            version = pod["metadata"]["resourceVersion"]
            if event["type"] == "MODIFIED" and pod["spec"].get("nodeName"):
                bound.setdefault(pod["metadata"]["name"], time.monotonic())
            if len(bound) == pods:
                break
    setup.kill("scheduler")
    for name in names:
        await api.delete(PODS, name, setup.namespace, grace_seconds=0)
    return (pods - 1) / (max(bound.values()) - min(bound.values()))


def milliseconds(setup: ExtenderSetup) -> tuple[float, float]:
    """Return the milliseconds in filter and prioritize so far, and for how many pods."""
    counters = request_seconds(setup)
    spent = sum(counters[f'_sum{{verb="{verb}"}}'] for verb in VERBS)
    return 1000 * spent, counters['_count{verb="filter"}']


def p99(setup: ExtenderSetup) -> float:
    """Return the 99th percentile in milliseconds: the bucket bounds of both verbs, added."""
    counters, bounds = request_seconds(setup), 0.0
    for verb in VERBS:
        below = {
            float(key.partition('le="')[2].partition('"')[0]): count
            for key, count in counters.items()
            if key.startswith("_bucket") and f'verb="{verb}"' in key
        }
        bounds += min(bound for bound, count in below.items() if count >= 0.99 * counters[f'_count{{verb="{verb}"}}'])
    return 1000 * bounds


def request_seconds(setup: ExtenderSetup) -> dict[str, float]:
    """Return the extender's histogram of requests.

    The keys are the rest of each line of /metrics after the metric's name.
    """
    name = "podium_extender_request_seconds"
    page = httpx.get(f"http://127.0.0.1:{setup.health_port}/metrics", timeout=10).text
    lines = (line.removeprefix(name).rsplit(" ", 1) for line in page.splitlines() if line.startswith(name))
    return {key: float(value) for key, value in lines}


@contextmanager
def on(cores: set[int]) -> Iterator[None]:
    """Run processes that are started within the block on these cores alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_seconds(setup: ExtenderSetup) -> float:
    """Return the CPU seconds of the extender's process so far, in user and kernel mode."""
    fields = Path(f"/proc/{setup.processes['extender'].pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(setup: ExtenderSetup, options: argparse.Namespace, cores: set[int], results: Path) -> list[Size]:
    """Measure from the smallest to the largest cluster; nodes are only added. `cores`: the extender's."""
    pods = options.pods
    done: list[Size] = []
    created = 0
    null_port = free_port()
    setup.start("null", [sys.executable, "-m", NULL, str(null_port)])
    for nodes in sorted(map(int, options.sizes.split(","))):
        setup.api(partial(add_nodes, setup=setup, first=created, last=nodes))
        created = nodes
        print(f"{nodes} nodes exist", flush=True)
        with on(cores):
            setup.start_extender()  # a new process, whose memory is that of this size
        size = Size(nodes)
        used = 0.0
        kinds = [("Podium's", size.with_extender), ("none", size.without), ("null", size.null)]
        for repeat in range(options.repeats or repeats_at(nodes)):
            for kind, rates in kinds[:: -1 if repeat % 2 else 1]:
                port = null_port if kind == "null" else None
                ask = kind != "none"
                started = cpu_seconds(setup)
                rates.append(setup.api(partial(rate, setup=setup, pods=pods, with_extender=ask, port=port)))
                # the extender also watches the pods of the other kinds; that time does not count
                used += cpu_seconds(setup) - started if kind == "Podium's" else 0.0
                print(f"  extender {kind}: {rates[-1]:.1f} pods/s", flush=True)
        (spent, asked), slowest = milliseconds(setup), p99(setup)
        status = Path(f"/proc/{setup.processes['extender'].pid}/status").read_text()
        memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024
        setup.kill("extender")
        cpu = 1000 * used / asked
        done.append(replace(size, verbs_ms=spent / asked, p99_ms=slowest, cpu_ms=cpu, memory=memory))
        write_page(results, page(done, options))
    return done


def page(sizes: Sequence[Size], options: argparse.Namespace) -> str:
    """Return the page."""
    repeats = " / ".join(str(len(size.without)) for size in sizes)
    own = options.own_core
    where = "the extender alone on one of" if own else "on"
    image = f"![pods per second](bench-scheduler{'-own-core' if own else ''}.png)"
    head = f"""# bench-scheduler{", a core for the extender" if own else ""}

`{command()}` (commit {commit()}): the real kube-scheduler 1.36,
{repeats} repetitions (by size), of which the median is shown, {where} {os.cpu_count()} cores with etcd and the API
server, load average {os.getloadavg()[0]:.1f} at the end. Nodes are objects without kubelets. `null` decides
nothing: it returns every node with the same score, and so shows the cost of calling an extender.
Podium's extender returns the {SCORED_NODES} best nodes, so kube-scheduler reads and scores no others. Verbs: wall time
of both for a pod, from the whole request to the whole answer. CPU: of everything that the extender does, with its
watches.

| nodes | pods/s with | without | ratio | of null | verbs, ms | p99, at most | CPU, ms a pod | RSS, MB |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
    rows = [
        f"| {size.nodes} | {statistics.median(size.with_extender):.1f} | {statistics.median(size.without):.1f} | "
        f"{size.ratio:.2f} | {size.limit:.2f} | {size.verbs_ms:.2f} | {size.p99_ms:g} | {size.cpu_ms:.2f} | "
        f"{size.memory:.0f} |\n"
        for size in sizes
    ]
    verdict = "kept" if all(size.ratio >= BAR for size in sizes) else "**not kept**"
    return head + "".join(rows) + f"\nBar, ratio >= {BAR} (aim {AIM}): {verdict}.\n\n{image}\n"


def plot(sizes: Sequence[Size], results: Path) -> None:
    """Draw the pods per second over the nodes."""
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    nodes = [size.nodes for size in sizes]
    axes.plot(nodes, [statistics.median(size.without) for size in sizes], "o:", label="without extender")
    axes.plot(nodes, [statistics.median(size.with_extender) for size in sizes], "o-", label="with extender")
    axes.plot(nodes, [statistics.median(size.null) for size in sizes], "o--", label="one that decides nothing")
    axes.set_xlabel("nodes")
    axes.set_ylabel("pods per second")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(results.with_suffix(".png"), dpi=110)


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--sizes", default="100,1000,5000", help="numbers of nodes (default: 100,1000,5000)")
    parser.add_argument("--pods", type=int, default=500, help="of each repetition (default: 500)")
    parser.add_argument("--repeats", type=int, help="of each size (default: more of a small one)")
    parser.add_argument("--own-core", action="store_true", help="one core for the extender alone")
    add_out(parser)
    options = parser.parse_args()
    cores = os.sched_getaffinity(0)
    own = {max(cores)} if options.own_core else cores
    results = options.out / f"bench-scheduler{'-own-core' if options.own_core else ''}.md"
    os.environ["PODIUM_STALE_SECONDS"] = "86400"  # there are no agents whose heartbeats would keep the nodes fresh
    with on(cores - own or cores), open_setup() as setup:
        sizes = measure(setup, options, own, results)
    plot(sizes, results)
    ratios = {str(size.nodes): {"ratio": round(size.ratio, 3), "limit": round(size.limit, 3)} for size in sizes}
    print(result_line({"ratios": ratios, "kept": all(size.ratio >= BAR for size in sizes)}))


if __name__ == "__main__":
    main()
