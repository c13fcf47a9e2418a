"""The first pods of the openb trace through the real kube-scheduler and HTTP: do they go where the library puts them?

    python benchmarks/bench_openb_cluster.py [--pods 500] [--policies ...] [--weight 100]   (root; no kubelet)

All 1,213 nodes are Node and GPUNode objects. The pods are created one after another, faster than they are placed, so
nearly every pod is asked about before the last one's binding is seen. The library places the same pods with every
binding known, with kube-scheduler's count of CPU and memory and the device plugin's choice of GPUs. The extender's
weight is such that no other score outvotes it, and what it takes for typical comes from pods that wait behind a gate.
Writes benchmarks/results/bench-openb-cluster.md (another weight: -weight-N.md), prints RESULT {json}.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from control_plane import open_setup
from extender_setup import ExtenderSetup, now
from openb_replay import Arrival, Trace, arrivals, read_trace

from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, NODES, PODS
from podium_core.placement.base import PlacementQuery
from podium_core.placement.gpu_choice import charge
from podium_core.placement.gpu_fragments import WHOLE
from podium_core.placement.registry import DEFAULT, placement_policy
from podium_core.placement.typical_pods import typical_needs
from podium_core.placement.views import GpuReading, NodeView, PodNeed
from podium_extender.state.node_cache import parse_gpunode
from podium_extender.state.views import Views
from podium_extender.verbs.decisions import NodeEvaluator

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results" / "bench-openb-cluster.md"
POLICIES = (DEFAULT, "fragmentation", "fill", "binpack", "load_balance", "spread", "random")
SHARES = 1000  # of a GPU: never what a pod lacks
WEIGHT = 100  # a point of the extender's is then 1,000 of kube-scheduler's, whose own differ here by 200 at most
FIRST = "first"
CROWD = 10  # times as many pods: what is typical is counted anew when a tenth has changed
AT_ONCE = 32
NOW = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one policy: pods that went where the library put them, of how many; the first that did not; pods a second."""

    policy: str
    same: int
    pods: int
    first: str
    rate: float


def gpunode(node: NodeView) -> dict[str, Any]:
    """`memoryTotal` in thousandths, as the trace has them: bytes to Podium."""
    gpu = {"product": "G", "memoryTotal": WHOLE, "health": "Healthy", "slots": SHARES}
    gpus = [gpu | {"uuid": f"{node.name}-{i}", "index": i} for i in range(len(node.gpus))]
    return {"metadata": {"name": node.name}, "status": {"updatedAt": now(), "gpus": gpus}}


async def add_nodes(api: Api, nodes: Sequence[NodeView], memory: Sequence[int]) -> None:
    room = asyncio.Semaphore(AT_ONCE)
    ready = {"type": "Ready", "status": "True", "reason": "Bench", "message": "", "lastTransitionTime": now()}

    async def add(node: NodeView, mebibytes: int) -> None:
        amounts = {"cpu": f"{node.cpu_free}m", "memory": f"{mebibytes}Mi", "pods": "10000"}
        amounts["podium.dev/gpu"] = str(SHARES * len(node.gpus))
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        told = gpunode(node)
        async with room:
            await api.create(NODES, {"metadata": {"name": node.name}, "status": status}, manager="bench")
            await api.apply(GPUNODES, {"metadata": told["metadata"]}, manager="bench")
            await api.apply_status(GPUNODES, told, manager="podium-agent")

    await asyncio.gather(*(add(node, size) for node, size in zip(nodes, memory, strict=True)))


def pod(setup: ExtenderSetup, name: str, need: PodNeed, mebibytes: int) -> dict[str, Any]:
    share = {"podium.dev/gpu": str(need.gpus)}
    requests = share | {"cpu": f"{need.cpu}m", "memory": f"{mebibytes}Mi"}
    annotations = {"podium.dev/gpu-memory": str(need.memory)}
    container = {"name": "c", "image": "none", "resources": {"requests": requests, "limits": share}}
    metadata = {"name": name, "namespace": setup.namespace, "annotations": annotations}
    return {"metadata": metadata, "spec": spec(setup, container)}


def spec(setup: ExtenderSetup, container: Mapping[str, Any]) -> dict[str, Any]:
    return {"schedulerName": setup.scheduler, "containers": [container], "tolerations": [{"operator": "Exists"}]}


async def awake(api: Api, setup: ExtenderSetup, version: str) -> None:
    """The scheduler has listed everything: it places a pod that takes nothing."""
    metadata = {"name": FIRST, "namespace": setup.namespace}
    await api.create(PODS, {"metadata": metadata, "spec": spec(setup, {"name": "c", "image": "none"})}, manager="bench")
    watch = api.watch(PODS, setup.namespace, version=version, labels=None, fields=f"metadata.name={FIRST}", seconds=60)
    async for event in watch:
        if event["object"]["spec"].get("nodeName"):
            return
    raise SystemExit(f"{FIRST} was not bound within a minute")


async def add_crowd(api: Api, setup: ExtenderSetup, pods: Sequence[Arrival]) -> None:
    """So many pods like these, behind a gate, that those to be placed do not change what is typical."""
    room = asyncio.Semaphore(AT_ONCE)

    async def add(name: str, need: PodNeed, size: int) -> None:
        waiting = pod(setup, name, need, size)
        waiting["spec"]["schedulingGates"] = [{"name": "podium.dev/bench"}]
        async with room:
            await api.create(PODS, waiting, manager="bench")

    crowd = [(f"crowd-{copy}-{number}", *one) for copy in range(CROWD) for number, one in enumerate(pods)]
    await asyncio.gather(*(add(*one) for one in crowd))


async def add_pods(api: Api, setup: ExtenderSetup, pods: Sequence[Arrival]) -> list[str]:
    """Their uids. kube-scheduler takes pods in the order in which it sees them come."""
    uids: list[str] = []
    for number, one in enumerate(pods):
        made = await api.create(PODS, pod(setup, f"pod-{number:05d}", *one), manager="bench")
        uids.append(made["metadata"]["uid"])
    return uids


async def place(api: Api, setup: ExtenderSetup, pods: Sequence[Arrival]) -> tuple[list[str], list[str], float]:
    """The pods' uids and their nodes, in the order of arrival, and pods a second from the first to the last binding."""
    await asyncio.to_thread(setup.start_extender)
    await asyncio.to_thread(setup.extender_knows, "")  # with the first question it looks at what is typical
    version = (await api.list(PODS, setup.namespace))["metadata"]["resourceVersion"]
    # a timeout on a machine that does much else would put the pod behind others
    await asyncio.to_thread(setup.start_scheduler, patience="30s")
    await awake(api, setup, version)
    adding = asyncio.create_task(add_pods(api, setup, pods))
    nodes: dict[str, str] = {}
    times: list[float] = []
    watch = api.watch(PODS, setup.namespace, version=version, labels=None, fields=None, seconds=550)
    async for event in watch:
        name, node = event["object"]["metadata"]["name"], event["object"]["spec"].get("nodeName")
        if node and name.startswith("pod-") and name not in nodes:
            nodes[name] = node
            times.append(time.monotonic())
        if len(nodes) == len(pods):
            break
    else:
        raise SystemExit(f"{len(nodes)} of {len(pods)} pods were bound within the watch")
    uids = await adding
    for process in ("scheduler", "extender"):
        setup.kill(process)
    for name in (FIRST, *nodes):
        await api.delete(PODS, name, setup.namespace, grace_seconds=0)
    return uids, [nodes[name] for name in sorted(nodes)], (len(times) - 1) / (times[-1] - times[0])


def library(policy: str, trace: Trace, pods: Sequence[Arrival], uids: Sequence[str]) -> list[str]:
    """The same, one pod after another."""
    told: dict[str, tuple[GpuReading, ...]] = {node.name: parse_gpunode(gpunode(node)).gpus for node in trace.nodes}
    views = Views(replace(node, gpus=told[node.name]) for node in trace.nodes)
    judge = NodeEvaluator(placement_policy(policy), 1.0)
    names = np.array([node.name for node in trace.nodes])
    row = {name: i for i, name in enumerate(names.tolist())}
    cpu, memory = np.array([node.cpu_free for node in trace.nodes]), np.array(trace.memory)
    typical = typical_needs(Counter(need for need, _ in pods))
    found: list[str] = []
    for (need, size), uid in zip(pods, uids, strict=True):
        question = PlacementQuery(need, uid, typical, cpus_known=True)
        left = judge.filter(
            PlacementQuery(replace(need, cpu=0)), names[(cpu >= need.cpu) & (memory >= size)].tolist(), views, NOW
        ).passed
        best = judge.prioritize(question, left, views, NOW).favourite
        assert best is not None, f"pod {uid} fits nowhere"
        node = views.get(left[best])
        views.put(replace(node, gpus=charge(node.gpus, [need]), cpu_free=int(cpu[row[node.name]]) - need.cpu))
        cpu[row[node.name]] -= need.cpu
        memory[row[node.name]] -= size
        found.append(node.name)
    return found


def measure(setup: ExtenderSetup, trace: Trace, pods: Sequence[Arrival], policy: str, weight: int) -> Outcome:
    setup.values = f"scheduler.weight={weight},extender.placement={policy}"
    os.environ["PODIUM_PLACEMENT"] = policy
    uids, nodes, rate = setup.api(lambda api: place(api, setup, pods))
    expected = library(policy, trace, pods, uids)
    other = [i for i, (ours, theirs) in enumerate(zip(expected, nodes, strict=True)) if ours != theirs]
    first = f"{other[0]} ({pods[other[0]][0].gpus} GPUs)" if other else "-"
    return Outcome(policy, len(pods) - len(other), len(pods), first, rate)


def page(outcomes: Sequence[Outcome], weight: int) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    head = f"""# bench-openb-cluster

`make bench-openb-cluster` (commit {commit.stdout.strip()}): the first pods of the openb trace (in random order, those
that ask for GPUs) on its 1,213 nodes, through the real kube-scheduler 1.36 and HTTP, against the library, which places
them one after another with every binding known. The extender's weight is {weight}. Load
average {os.getloadavg()[0]:.1f} at the end.

| policy | where the library puts them | of pods | the first elsewhere | pods/s |
| --- | --- | --- | --- | --- |
"""
    rows = (f"| {one.policy} | {one.same} | {one.pods} | {one.first} | {one.rate:.0f} |\n" for one in outcomes)
    return head + "".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=ROOT.parent / "shared" / "traces" / "openb")
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--weight", type=int, default=WEIGHT, help="of the extender; the chart's default is 15")
    parser.add_argument("--policies", default=",".join(POLICIES))
    options = parser.parse_args()
    os.environ["PODIUM_STALE_SECONDS"] = "86400"  # no agents are there whose heartbeats would keep the nodes known
    trace = read_trace(options.trace)
    coming = arrivals(trace, np.random.default_rng(0), 1.0)
    pods = [(need, size) for need, size in coming if need.gpus > 0][: options.pods]
    outcomes: list[Outcome] = []
    results = RESULTS if options.weight == WEIGHT else RESULTS.with_stem(f"{RESULTS.stem}-weight-{options.weight}")
    with open_setup() as setup:
        setup.api(lambda api: add_nodes(api, trace.nodes, trace.memory))
        setup.api(lambda api: add_crowd(api, setup, pods))
        for policy in options.policies.split(","):
            outcomes.append(measure(setup, trace, pods, policy, options.weight))
            print(outcomes[-1], flush=True)
            results.write_text(page(outcomes, options.weight), encoding="utf-8")
    told: Mapping[str, int] = {one.policy: one.same for one in outcomes}
    print("RESULT", json.dumps({"pods": len(pods), "same": told}))


if __name__ == "__main__":
    main()
