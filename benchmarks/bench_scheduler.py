"""Pods per second of the real kube-scheduler with and without our extender, on nodes that are objects only.

    python benchmarks/bench_scheduler.py [--sizes 100,1000,5000] [--pods 500] [--turns N]

As root; one control plane, no kubelet.

A real etcd, kube-apiserver and kube-scheduler with the chart's configuration; each node is a Node and a GPUNode of
eight GPUs, as KWOK would keep them. All pods, each a trial's, are there before the scheduler starts. The rate is taken
between the first and the last binding, with the extender, without one, and with one that decides nothing
(null_extender.py: what the protocol costs where all nodes are handed on, each with a score), in turns, each in the
opposite order of the last, so that one run gives the ratios: the middle one of all turns, for a machine is slower at
times. Writes benchmarks/results/bench-scheduler.md and .png, prints RESULT {json}.

With `--own-core` the extender has one core and all else the others: then what a verb takes by the clock is its own
affair, and not the wait for a processor (bench-scheduler-own-core.md). The ratio then says how it scales, no more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import matplotlib
import numpy as np
from control_plane import open_setup
from extender_setup import TRIAL_LABEL, ExtenderSetup, free_port, now
from made_up import gpunode

from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, NODES, PODS
from podium_extender.verbs.node_selection import SCORED_NODES

matplotlib.use("Agg")
from matplotlib import pyplot as plt

RESULTS = Path(__file__).resolve().parent / "results" / "bench-scheduler.md"
NULL = Path(__file__).with_name("null_extender.py")
BAR, AIM = 0.55, 0.8  # pods per second with the extender over without, issue 6
AT_ONCE = 32
CALLS_PER_SECOND = 5000  # no limit is in the way of either
VERBS = ("filter", "prioritize")
LONGEST = 500.0  # seconds of one turn
SHARES = 32  # of a node: eight GPUs of four


@dataclass(frozen=True, slots=True)
class Size:
    """Pods per second of each turn; the extender's milliseconds a pod in both verbs (by the clock) and of CPU in all it
    does; its resident MB.
    """

    nodes: int
    with_extender: list[float] = field(default_factory=list)
    without: list[float] = field(default_factory=list)
    null: list[float] = field(default_factory=list)
    verbs_ms: float = 0.0
    p99_ms: float = 0.0  # of filter and of prioritize, added: bounds of the histogram's buckets
    cpu_ms: float = 0.0
    memory: float = 0.0

    @property
    def ratio(self) -> float:
        return _middle(self.with_extender, self.without)

    @property
    def limit(self) -> float:
        """The ratio of the extender that decides nothing."""
        return _middle(self.null, self.without)


def _middle(rates: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(rates, others, strict=True))


def turns_at(nodes: int) -> int:
    """Few nodes are over in a second or two, so one turn says little."""
    return max(2, min(6, 600 // nodes))


async def add_nodes(api: Api, setup: ExtenderSetup, first: int, last: int) -> None:
    chance = np.random.default_rng(first)
    room = asyncio.Semaphore(AT_ONCE)
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "110", "podium.dev/gpu": str(SHARES)}
    ready = {"type": "Ready", "status": "True", "reason": "Bench", "message": "", "lastTransitionTime": now()}

    async def add(name: str) -> None:
        told = gpunode(chance, name, 0)
        gpus = [gpu | {"memoryReserved": 0, "health": "Healthy"} for gpu in told["status"]["gpus"]]
        async with room:
            status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
            await api.create(NODES, {"metadata": {"name": name}, "status": status}, manager="bench")
            await api.apply(GPUNODES, {"metadata": {"name": name}}, manager="bench")
            seen = {"updatedAt": now(), "gpus": gpus}
            await api.apply_status(GPUNODES, {"metadata": {"name": name}, "status": seen}, manager="podium-agent")

    await asyncio.gather(*(add(setup.node(f"{i:05d}")) for i in range(first, last)))


async def add_pods(api: Api, setup: ExtenderSetup, names: Sequence[str]) -> None:
    room = asyncio.Semaphore(AT_ONCE)
    share = {"podium.dev/gpu": "1"}
    container = {"name": "c", "image": "none", "resources": {"requests": share | {"cpu": "1"}, "limits": share}}
    # no kubelet keeps the nodes ready
    spec = {"schedulerName": setup.scheduler, "containers": [container], "tolerations": [{"operator": "Exists"}]}

    async def add(name: str) -> None:
        async with room:
            metadata = {"name": name, "namespace": setup.namespace, "labels": {TRIAL_LABEL: name}}
            pod = {"metadata": metadata, "spec": spec}
            await api.create(PODS, pod, manager="bench")

    await asyncio.gather(*(add(name) for name in names))


async def rate(api: Api, setup: ExtenderSetup, pods: int, *, with_extender: bool, port: int | None = None) -> float:
    """Pods per second between the first and the last binding, as a watch sees them. `port`: of an extender that is not
    ours.
    """
    names = [f"pod-{i}" for i in range(pods)]
    await add_pods(api, setup, names)
    version = (await api.list(PODS, setup.namespace))["metadata"]["resourceVersion"]
    other = {"urlPrefix": f"http://127.0.0.1:{port}"} if port else {}
    setup.start_scheduler(with_extender=with_extender, calls_per_second=CALLS_PER_SECOND, **other)
    bound: dict[str, float] = {}
    until = time.monotonic() + LONGEST
    while len(bound) < pods:  # the server closes a watch whose reader is slower than its events
        if time.monotonic() > until:
            raise SystemExit(f"{len(bound)} of {pods} pods were bound within {LONGEST:g} s")
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
    """So far: seconds in filter and prioritize, and how many pods that was for."""
    found = request_seconds(setup)
    spent = sum(found[f'_sum{{verb="{verb}"}}'] for verb in VERBS)
    return 1000 * spent, found['_count{verb="filter"}']


def p99(setup: ExtenderSetup) -> float:
    """Milliseconds that 99 of 100 requests did not exceed, filter and prioritize added; bounds of buckets."""
    found, bounds = request_seconds(setup), 0.0
    for verb in VERBS:
        below = {
            float(key.partition('le="')[2].partition('"')[0]): count
            for key, count in found.items()
            if key.startswith("_bucket") and f'verb="{verb}"' in key
        }
        bounds += min(bound for bound, count in below.items() if count >= 0.99 * found[f'_count{{verb="{verb}"}}'])
    return 1000 * bounds


def request_seconds(setup: ExtenderSetup) -> dict[str, float]:
    """The extender's histogram of requests: what is behind its name on a line of /metrics, and the figure there."""
    name = "podium_extender_request_seconds"
    page = httpx.get(f"http://127.0.0.1:{setup.health_port}/metrics", timeout=10).text
    lines = (line.removeprefix(name).rsplit(" ", 1) for line in page.splitlines() if line.startswith(name))
    return {key: float(value) for key, value in lines}


@contextmanager
def on(cores: set[int]) -> Iterator[None]:
    """What is started meanwhile runs on these alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_seconds(setup: ExtenderSetup) -> float:
    """Of the extender's process so far, in user and kernel."""
    fields = Path(f"/proc/{setup.processes['extender'].pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(setup: ExtenderSetup, options: argparse.Namespace, cores: set[int], results: Path) -> list[Size]:
    """From the smallest to the largest cluster; nodes are only added. `cores`: the extender's."""
    pods, turns = options.pods, options.turns
    done: list[Size] = []
    there = 0
    null_port = free_port()
    setup.start("null", [sys.executable, str(NULL), str(null_port)])
    for nodes in sorted(map(int, options.sizes.split(","))):
        setup.api(lambda api, first=there, last=nodes: add_nodes(api, setup, first, last))  # type: ignore[misc]
        there = nodes
        print(f"{nodes} nodes are there", flush=True)
        with on(cores):
            setup.start_extender()  # anew: its memory is that of this size
        size = Size(nodes)
        used = 0.0
        kinds = [("ours", size.with_extender), ("none", size.without), ("null", size.null)]
        for turn in range(turns or turns_at(nodes)):
            for kind, rates in kinds[:: -1 if turn % 2 else 1]:
                port = null_port if kind == "null" else None
                ask = kind != "none"
                started = cpu_seconds(setup)
                rates.append(
                    setup.api(lambda api, ask=ask, port=port: rate(api, setup, pods, with_extender=ask, port=port))
                )  # type: ignore[misc]
                # it watches the pods of the other turns as well
                used += cpu_seconds(setup) - started if kind == "ours" else 0.0
                print(f"  extender {kind}: {rates[-1]:.1f} pods/s", flush=True)
        (spent, asked), slowest = milliseconds(setup), p99(setup)
        status = Path(f"/proc/{setup.processes['extender'].pid}/status").read_text()
        memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024
        setup.kill("extender")
        cpu = 1000 * used / asked
        done.append(replace(size, verbs_ms=spent / asked, p99_ms=slowest, cpu_ms=cpu, memory=memory))
        results.write_text(page(done, options), encoding="utf-8")
    return done


def page(sizes: Sequence[Size], options: argparse.Namespace) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    turns = " / ".join(str(len(size.without)) for size in sizes)
    own = options.own_core
    where = "the extender alone on one of" if own else "on"
    image = f"![pods per second](bench-scheduler{'-own-core' if own else ''}.png)"
    head = f"""# bench-scheduler{", a core for the extender" if own else ""}

`python {" ".join(sys.argv)}` (commit {commit.stdout.strip()}): the real kube-scheduler 1.36,
{turns} turns each (by size), the middle of which is shown, {where} {os.cpu_count()} cores with etcd and the API
server, load average {os.getloadavg()[0]:.1f} at the end. Nodes are objects without kubelets. `null` decides
nothing, hands on every node and scores them all alike: what asking an extender costs by itself.
Ours hands on the {SCORED_NODES} best, so kube-scheduler reads, scores and asks about no others. Verbs: both of a pod,
by the clock, from the whole request to the whole answer; CPU: of all that the extender does, its watches too.

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
    return head + "".join(rows) + f"\nBar of issue 6, ratio >= {BAR} (aim {AIM}): {verdict}.\n\n{image}\n"


def plot(sizes: Sequence[Size], results: Path) -> None:
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="100,1000,5000")
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--turns", type=int, help="of each size; default: more of a small one")
    parser.add_argument("--own-core", action="store_true", help="one core for the extender alone")
    options = parser.parse_args()
    cores = os.sched_getaffinity(0)
    own = {max(cores)} if options.own_core else cores
    results = RESULTS.with_stem("bench-scheduler-own-core") if options.own_core else RESULTS
    os.environ["PODIUM_STALE_SECONDS"] = "86400"  # no agents are there whose heartbeats would keep the nodes known
    with on(cores - own or cores), open_setup() as setup:
        sizes = measure(setup, options, own, results)
    plot(sizes, results)
    told = {str(size.nodes): {"ratio": round(size.ratio, 3), "limit": round(size.limit, 3)} for size in sizes}
    print("RESULT", json.dumps({"ratios": told, "kept": all(size.ratio >= BAR for size in sizes)}))


if __name__ == "__main__":
    main()
