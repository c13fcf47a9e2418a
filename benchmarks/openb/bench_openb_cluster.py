"""The first pods of the openb trace through the real kube-scheduler: are they placed as by the library?

    make bench-openb-cluster [PODS=FILE] [NODES=FILE] [OUT=FOLDER]         (root; no kubelet)
    python -m benchmarks.openb.bench_openb_cluster [--count 500] [--policies ...] [--weight 100]

All nodes are Node and GPUNode objects. The pods are created one after another, faster than they are placed, so the
extender is asked about nearly every pod before it has seen the previous binding. The library places the same pods with
every binding known, with kube-scheduler's count of CPU and memory and the device plugin's choice of GPUs. The
extender's weight is so high that no other score outvotes it. What it takes for typical pods comes from pods that wait
behind a scheduling gate.

Writes bench-openb-cluster.md (with another weight: -weight-N) into `--out`; the last line is RESULT {json}.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.command_line import Parser
from benchmarks.control_plane import ExtenderSetup, now, open_setup
from benchmarks.inputs import positive
from benchmarks.openb.replay import Arrival, Trace, add_trace, arrivals, read_trace
from benchmarks.output import add_out, command, commit, result_line, write_page
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, NODES, PODS
from podium_core.placement.gpu_choice import charge
from podium_core.placement.gpu_fragments import WHOLE
from podium_core.placement.policies.base import PlacementQuery
from podium_core.placement.policies.registry import DEFAULT, placement_policy
from podium_core.placement.typical_pods import typical_needs
from podium_core.placement.views import GpuReading, NodeView, PodNeed
from podium_extender.state.node_cache import parse_gpunode
from podium_extender.state.views import Views
from podium_extender.verbs.decisions import NodeEvaluator

POLICIES = (DEFAULT, "fragmentation", "fill", "binpack", "load_balance", "spread", "random")
SLOTS = 1000  # of a GPU: high enough that a pod never lacks one
WEIGHT = 100  # a point of the extender is then 1,000 of kube-scheduler's, whose other scores differ by 200 at most here
FIRST = "first"
GATED = 10  # copies of each pod: typical pods are counted again when a tenth of the pods has changed
CONCURRENCY = 32
NOW = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one policy.

    `same`: pods that have the library's node; `first`: the first pod that does not; `rate`: pods a second.
    """

    policy: str
    same: int
    pods: int
    first: str
    rate: float


def gpunode(node: NodeView) -> dict[str, Any]:
    """Return the GPUNode; `memoryTotal` has the trace's thousandths of a GPU where Podium has bytes."""
    gpu = {"memoryTotal": WHOLE, "health": "Healthy", "slots": SLOTS}
    gpus = [
        gpu | {"uuid": f"{node.name}-{i}", "index": i, "product": one.product or "G"} for i, one in enumerate(node.gpus)
    ]
    return {"metadata": {"name": node.name}, "status": {"updatedAt": now(), "gpus": gpus}}


async def add_nodes(api: Api, nodes: Sequence[NodeView], memory: Sequence[int]) -> None:
    """Create the nodes with these MiB of memory."""
    limit = asyncio.Semaphore(CONCURRENCY)
    ready = {"type": "Ready", "status": "True", "reason": "Bench", "message": "", "lastTransitionTime": now()}

    async def add(node: NodeView, mebibytes: int) -> None:
        amounts = {"cpu": f"{node.cpu_free}m", "memory": f"{mebibytes}Mi", "pods": "10000"}
        amounts["podium.dev/gpu"] = str(SLOTS * len(node.gpus))
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        gpu_node = gpunode(node)
        async with limit:
            await api.create(NODES, {"metadata": {"name": node.name}, "status": status}, manager="bench")
            await api.apply(GPUNODES, {"metadata": gpu_node["metadata"]}, manager="bench")
            await api.apply_status(GPUNODES, gpu_node, manager="podium-agent")

    await asyncio.gather(*(add(node, size) for node, size in zip(nodes, memory, strict=True)))


def pod(setup: ExtenderSetup, name: str, need: PodNeed, mebibytes: int) -> dict[str, Any]:
    """Return the pod of the trace as Kubernetes has it."""
    slots = {"podium.dev/gpu": str(need.gpus)}
    requests = slots | {"cpu": f"{need.cpu}m", "memory": f"{mebibytes}Mi"}
    annotations = {"podium.dev/gpu-memory": str(need.memory)}
    if need.products:
        annotations["podium.dev/gpu-products"] = ",".join(need.products)
    container = {"name": "c", "image": "none", "resources": {"requests": requests, "limits": slots}}
    metadata = {"name": name, "namespace": setup.namespace, "annotations": annotations}
    return {"metadata": metadata, "spec": spec(setup, container)}


def spec(setup: ExtenderSetup, container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod that the scheduler under test places."""
    return {"schedulerName": setup.scheduler, "containers": [container], "tolerations": [{"operator": "Exists"}]}


async def wait_for_scheduler(api: Api, setup: ExtenderSetup, version: str) -> None:
    """Wait until the scheduler has listed everything: it then places a pod without requests."""
    metadata = {"name": FIRST, "namespace": setup.namespace}
    await api.create(PODS, {"metadata": metadata, "spec": spec(setup, {"name": "c", "image": "none"})}, manager="bench")
    watch = api.watch(PODS, setup.namespace, version=version, labels=None, fields=f"metadata.name={FIRST}", seconds=60)
    async for event in watch:
        if event["object"]["spec"].get("nodeName"):
            return
    raise SystemExit(f"{FIRST} was not bound within a minute")


async def add_gated(api: Api, setup: ExtenderSetup, pods: Sequence[Arrival]) -> None:
    """Create copies of these pods behind a scheduling gate.

    With them, the pods that are placed do not change what is typical.
    """
    limit = asyncio.Semaphore(CONCURRENCY)

    async def add(name: str, need: PodNeed, size: int) -> None:
        waiting = pod(setup, name, need, size)
        waiting["spec"]["schedulingGates"] = [{"name": "podium.dev/bench"}]
        async with limit:
            await api.create(PODS, waiting, manager="bench")

    gated = [(f"gated-{copy}-{number}", *one) for copy in range(GATED) for number, one in enumerate(pods)]
    await asyncio.gather(*(add(*one) for one in gated))


async def add_pods(api: Api, setup: ExtenderSetup, pods: Sequence[Arrival]) -> list[str]:
    """Create the pods and return their UIDs. kube-scheduler takes pods in the order in which it sees them."""
    uids: list[str] = []
    for number, one in enumerate(pods):
        made = await api.create(PODS, pod(setup, f"pod-{number:05d}", *one), manager="bench")
        uids.append(made["metadata"]["uid"])
    return uids


async def place(api: Api, setup: ExtenderSetup, pods: Sequence[Arrival]) -> tuple[list[str], list[str], float]:
    """Place the pods.

    Returns UIDs and nodes in the order of arrival, and pods a second between the first and the last binding.
    """
    await asyncio.to_thread(setup.start_extender)
    await asyncio.to_thread(setup.extender_knows, "")  # the first request makes it count the typical pods
    version = (await api.list(PODS, setup.namespace))["metadata"]["resourceVersion"]
    # after a timeout on a busy machine the scheduler would place the pod after others
    await asyncio.to_thread(setup.start_scheduler, patience="30s")
    await wait_for_scheduler(api, setup, version)
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
    """Return the nodes on which the library places the same pods, one after another."""
    gpus: dict[str, tuple[GpuReading, ...]] = {node.name: parse_gpunode(gpunode(node)).gpus for node in trace.nodes}
    views = Views(replace(node, gpus=gpus[node.name]) for node in trace.nodes)
    evaluator = NodeEvaluator(placement_policy(policy), 1.0)
    names = np.array([node.name for node in trace.nodes])
    row = {name: i for i, name in enumerate(names.tolist())}
    cpu, memory = np.array([node.cpu_free for node in trace.nodes]), np.array(trace.memory)
    typical = typical_needs(Counter(need for need, _ in pods))
    chosen: list[str] = []
    for (need, size), uid in zip(pods, uids, strict=True):
        question = PlacementQuery(need, uid, typical, cpus_known=True)
        fitting = names[(cpu >= need.cpu) & (memory >= size)].tolist()
        left = evaluator.filter(replace(need, cpu=0), fitting, views, NOW).passed
        best = evaluator.prioritize(question, left, views, NOW).favourite
        assert best is not None, f"pod {uid} fits on no node"
        node = views.get(left[best])
        views.put(replace(node, gpus=charge(node.gpus, [need]), cpu_free=int(cpu[row[node.name]]) - need.cpu))
        cpu[row[node.name]] -= need.cpu
        memory[row[node.name]] -= size
        chosen.append(node.name)
    return chosen


def measure(setup: ExtenderSetup, trace: Trace, pods: Sequence[Arrival], policy: str, weight: int) -> Outcome:
    """Place the pods under one policy and compare with the library."""
    setup.values = f"scheduler.weight={weight},extender.placement={policy}"
    os.environ["PODIUM_PLACEMENT"] = policy
    uids, nodes, rate = setup.api(lambda api: place(api, setup, pods))
    expected = library(policy, trace, pods, uids)
    other = [i for i, (wanted, actual) in enumerate(zip(expected, nodes, strict=True)) if wanted != actual]
    first = f"{other[0]} ({pods[other[0]][0].gpus} GPUs)" if other else "-"
    return Outcome(policy, len(pods) - len(other), len(pods), first, rate)


def page(outcomes: Sequence[Outcome], weight: int, nodes: int) -> str:
    """Return the page."""
    head = f"""# bench-openb-cluster

`{command()}` (commit {commit()}): the first pods of the openb trace (in random order, those
that request GPUs) on its {nodes:,} nodes, through the real kube-scheduler 1.36 and HTTP, against the library, which
places them one after another with every binding known. The extender's weight is {weight}. Load
average {os.getloadavg()[0]:.1f} at the end.

| policy | on the library's node | of pods | the first elsewhere | pods/s |
| --- | --- | --- | --- | --- |
"""
    rows = (f"| {one.policy} | {one.same} | {one.pods} | {one.first} | {one.rate:.0f} |\n" for one in outcomes)
    return head + "".join(rows)


def main() -> None:
    parser = Parser(__doc__)
    add_trace(parser)
    parser.add_argument("--count", type=positive, default=500, help="pods to place (default: 500)")
    parser.add_argument("--weight", type=int, default=WEIGHT, help="of the extender; the chart's default is 15")
    parser.add_argument("--policies", default=",".join(POLICIES), help=f"(default: {','.join(POLICIES)})")
    add_out(parser)
    options = parser.parse_args()
    os.environ["PODIUM_STALE_SECONDS"] = "86400"  # there are no agents whose heartbeats would keep the nodes fresh
    trace = read_trace(options.pods, options.nodes)
    arriving = arrivals(trace, np.random.default_rng(0), 1.0)
    pods = [(need, size) for need, size in arriving if need.gpus > 0][: options.count]
    outcomes: list[Outcome] = []
    suffix = "" if options.weight == WEIGHT else f"-weight-{options.weight}"
    path = options.out / f"bench-openb-cluster{suffix}.md"
    with open_setup() as setup:
        setup.api(lambda api: add_nodes(api, trace.nodes, trace.memory))
        setup.api(lambda api: add_gated(api, setup, pods))
        for policy in options.policies.split(","):
            outcomes.append(measure(setup, trace, pods, policy, options.weight))
            print(outcomes[-1], flush=True)
            write_page(path, page(outcomes, options.weight, len(trace.nodes)))
    print(result_line({"pods": len(pods), "same": {one.policy: one.same for one in outcomes}}))


if __name__ == "__main__":
    main()
