"""How long the extender thinks: filter and prioritize over synthetic caches, through the ASGI app, of all nodes.

    python benchmarks/bench_extender.py [PODS]

In one process: no socket, no HTTP parser, no kube-scheduler, no KWOK (those come on top). For each pod both verbs are
called one after the other, then the pod is placed on the best node: a watch event that the caches take in, outside the
timed part, with one heartbeat and one new status of a GPUNode, so that something has changed before each pod. `floor`:
what json.loads and json.dumps alone take for the same bodies. Writes benchmarks/results/bench-extender.md and .png,
prints RESULT {json}.
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
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import matplotlib
import numpy as np
from crowd import Crowd
from fastapi import FastAPI

from podium.placement.registry import placement_policy
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, LEASES, PODS, TRIALS, Resource
from podium_cluster.watch import WatchCache
from podium_extender.app import create_app
from podium_extender.decide import Judge
from podium_extender.front import Front
from podium_extender.main import settle_memory
from podium_extender.metrics import Metrics
from podium_extender.telemetry import Heartbeats, Telemetry, parse_gpunode, parse_pod
from podium_extender.trials import parse_trial

matplotlib.use("Agg")
from matplotlib import pyplot as plt

RESULTS = Path(__file__).resolve().parent / "results" / "bench-extender.md"
SIZES = (100, 1000, 5000)
GPUS, SHARES = 8, 4
OTHERS = 150_000  # pods, as many as Kubernetes is made for
PODS_A_RUN = 100
GIB = 2**30
MEAN_BAR, P99_BAR = 4.0, 10.0  # milliseconds at 5,000 nodes, issue 6
Json = dict[str, Any]


class Live:
    """A stand-in for the API server: lists what there is, then passes events on."""

    def __init__(self, objects: Mapping[Resource, Sequence[Json]]) -> None:
        self.objects = objects
        self.events: dict[Resource, asyncio.Queue[Json]] = {resource: asyncio.Queue() for resource in objects}

    async def list(self, resource: Resource, *_: Any, **__: Any) -> Json:
        return {"metadata": {"resourceVersion": "1"}, "items": self.objects[resource]}

    async def watch(self, resource: Resource, *_: Any, **__: Any) -> AsyncIterator[Json]:
        while True:
            yield await self.events[resource].get()
            self.events[resource].task_done()

    async def change(self, resource: Resource, payload: Json) -> None:
        self.events[resource].put_nowait({"type": "MODIFIED", "object": payload})
        await self.events[resource].join()


def _meta(name: str, namespace: str = "default", **more: Any) -> Json:
    return {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "2"} | more


def gpunode(chance: np.random.Generator, name: str, trials: int) -> Json:
    """Eight GPUs with as many trials each."""
    gpus = [
        {
            "uuid": f"GPU-{name}-{g}",
            "index": g,
            "product": "NVIDIA-H100-80GB-HBM3",
            "memoryTotal": 80 * GIB,
            "memoryUsed": int(chance.integers(0, 70)) * GIB,
            "memoryReserved": trials * 10 * GIB,
            "smUtilization": float(chance.uniform(0, 100)),
            "temperature": float(chance.uniform(40, 85)),
            "health": "Unhealthy" if chance.random() < 0.01 else "Healthy",
            "shares": SHARES,
            "trials": [_seat(f"{name}-{g}-{t}") for t in range(trials)],
        }
        for g in range(GPUS)
    ]
    return {"metadata": _meta(name, ""), "status": {"updatedAt": _now(), "gpus": gpus}}


def _seat(trial: str) -> Json:
    where = {"namespace": "default", "trial": trial, "uid": f"uid-{trial}", "pod": f"{trial}-0"}
    return where | {"podUID": f"uid-{trial}-0", "state": "Suspended", "since": _now()}


def pod(name: str, node: str = "") -> Json:
    container = {"name": "c", "resources": {"requests": {"podium.dev/gpu": "1", "cpu": "4"}}}
    spec = {"nodeName": node, "schedulerName": "podium", "containers": [container]}
    return {"metadata": _meta(name, annotations={"podium.dev/gpu-memory": str(10 * GIB)}), "spec": spec}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def lease(node: str, beat: int) -> Json:
    return {"metadata": _meta(f"podium-agent-{node}", "podium-system"), "spec": {"renewTime": _now(), "beat": beat}}


async def call(app: FastAPI, path: str, body: bytes) -> tuple[bytes, float]:
    """The answer, and the process's milliseconds of CPU from the whole request to the whole answer."""
    sent: list[bytes] = []

    async def receive() -> Json:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and message["status"] != 200:
            raise SystemExit(f"{path} answered {message['status']}")
        sent.append(message.get("body", b""))

    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": [], "http_version": "1.1", "scheme": "http", "client": None, "server": None}
    started = time.process_time()
    await app(scope, receive, send)  # type: ignore[arg-type]
    return b"".join(sent), 1000 * (time.process_time() - started)


@dataclass(frozen=True, slots=True)
class Found:
    """Milliseconds of both verbs together, a value a pod; `floor` the same for the bodies alone."""

    nodes: int
    both: list[float]
    verbs: Mapping[str, float]
    first: float
    floor: float
    room: float = 0.0  # MB that the process grew by with nodes and other pods

    @property
    def mean(self) -> float:
        return statistics.mean(self.both)

    @property
    def p99(self) -> float:
        return float(np.quantile(self.both, 0.99))


async def measure(nodes: int, pods: int, policy: str = "load_balance", trials: int = 2, others: int = 0) -> Found:
    """`others`: pods of other schedulers, by which free CPUs are known."""
    chance = np.random.default_rng(nodes)
    names = [f"gpu-node-{i:05d}.cluster.example" for i in range(nodes)]
    told = [gpunode(chance, name, trials) for name in names]
    ranked = [
        {"metadata": _meta(seat["trial"]), "status": {"rank": int(chance.integers(1, 40))}}
        for node in told
        for gpu in node["status"]["gpus"]
        for seat in gpu["trials"]
    ]
    live = Live({GPUNODES: told, PODS: [], LEASES: [lease(name, 0) for name in names], TRIALS: ranked})
    api = cast(Api, live)
    crowd = Crowd(names, others)
    telemetry = Telemetry(
        WatchCache(api, GPUNODES, parse_gpunode),
        WatchCache(api, PODS, parse_pod),
        WatchCache(api, LEASES, Heartbeats(time.time).parse, namespace="podium-system"),
        WatchCache(api, TRIALS, parse_trial),
        namespace="podium-system",
        clock=time.time,
        room=crowd.room() if others else None,
    )
    watches = [asyncio.create_task(cache.run()) for cache in telemetry.caches.values()]
    await asyncio.gather(*(cache.wait_synced() for cache in telemetry.caches.values()))
    settle_memory()
    before = _resident()
    watches += [asyncio.create_task(cache.run()) for cache in telemetry.more_caches.values()]
    await asyncio.gather(*(cache.wait_synced() for cache in telemetry.more_caches.values()))
    settle_memory()
    grown = _resident() - before
    app = create_app(
        Front(telemetry, Metrics(), Judge(placement_policy(policy), 1e9), body_limit=2**26, max_requests=32)
    )
    both: list[float] = []
    filters: list[float] = []
    floors: list[float] = []
    for number in range(pods + 1):
        asked = pod(f"pod-{number}")
        body = question(asked, _as_found(names, chance))
        passed, filtering = await call(app, "/filter", body)
        left = json.loads(passed)["NodeNames"]
        second = question(asked, left)
        scored, scoring = await call(app, "/prioritize", second)
        both.append(filtering + scoring)
        filters.append(filtering)
        floors.append(_floor([body, second], [passed, scored]))
        best = max(json.loads(scored), key=lambda row: row["Score"])["Host"]
        changed = names[number % nodes]
        await live.change(PODS, pod(f"pod-{number}", best))
        await live.change(LEASES, lease(changed, number))
        await live.change(GPUNODES, gpunode(chance, changed, trials))
        if others:
            await crowd.change(number % others, f"{number % 7 + 1}00m")
    for watch in watches:
        watch.cancel()
    mean = statistics.mean(filters[1:])
    verbs = {"filter": mean, "prioritize": statistics.mean(both[1:]) - mean}
    return Found(nodes, both[1:], verbs, both[0], statistics.mean(floors[1:]), grown)


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


def alone(work: Callable[[], Found]) -> tuple[Found, float]:
    """In a process of its own, so that its memory (MB at most) is its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        found = work()
        told = {"nodes": found.nodes, "both": found.both, "verbs": dict(found.verbs)}
        told |= {"first": found.first, "floor": found.floor, "room": found.room}
        told |= {"rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
        with os.fdopen(write, "w") as pipe:
            json.dump(told, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if not text:
        raise SystemExit("a run ended without a result; its error is above")
    told = json.loads(text)
    rss = told.pop("rss")
    return Found(**told), rss


def main() -> None:
    pods = int(sys.argv[1]) if len(sys.argv) > 1 else PODS_A_RUN
    sizes = [alone(lambda size=size: asyncio.run(measure(size, pods))) for size in SIZES]  # type: ignore[misc]
    # in turns, for the machine may be slower for a while
    crowd = [alone(lambda n=n: asyncio.run(measure(1000, pods, trials=n)))[0] for n in (0, SHARES - 1) * 2]  # type: ignore[misc]
    policies = {
        name: alone(lambda name=name: asyncio.run(measure(1000, pods, name)))[0]  # type: ignore[misc]
        for name in ("load_balance", "fragmentation", "binpack", "spread", "random")
    }
    packing = {
        others: alone(lambda others=others: asyncio.run(measure(SIZES[-1], pods, "auto", others=others)))[0]  # type: ignore[misc]
        for others in (0, OTHERS)
    }
    RESULTS.write_text(_page(pods, sizes, crowd, policies) + _packing(packing), encoding="utf-8")
    _plot(sizes)
    result = {
        str(found.nodes): {
            "filter_prioritize_mean_ms": round(found.mean, 2),
            "filter_prioritize_p99_ms": round(found.p99, 2),
            "times_floor": round(found.mean / found.floor, 2),
            "rss_mb": round(rss),
        }
        for found, rss in sizes
    }
    print("RESULT", json.dumps({"nodes": result}))


def _page(pods: int, sizes: list[tuple[Found, float]], crowd: list[Found], policies: Mapping[str, Found]) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    large = sizes[-1][0]
    verdict = "kept" if large.mean <= MEAN_BAR and large.p99 <= P99_BAR else "**not kept**"
    load = os.getloadavg()[0]
    growth = statistics.median(crowd[1].both + crowd[3].both) / statistics.median(crowd[0].both + crowd[2].both)
    head = f"""# bench-extender (in process)

`python benchmarks/bench_extender.py`

{os.cpu_count()} cores (one is used), commit {commit.stdout.strip()}, load average {load:.1f} at the end.
Synthetic caches, {GPUS} GPUs a node, {pods} pods a size, all names sent to filter and
those that it hands on to prioritize, through the ASGI app, one process.
**CPU time of that process** (other work may run on the machine). **No socket, no kube-scheduler, no KWOK**: pods per
second and the real scheduler are not measured here. `floor`: json.loads and json.dumps of the same bodies.

| nodes | both verbs, mean ms | p99 ms | filter | prioritize | times floor | first, ms | RSS, MB |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
    rows = []
    for found, rss in sizes:
        cells = (found.mean, found.p99, found.verbs["filter"], found.verbs["prioritize"], found.mean / found.floor)
        told = " | ".join(f"{value:.2f}" for value in cells)
        rows.append(f"| {found.nodes} | {told} | {found.first:.0f} | {rss:.0f} |\n")
    tail = f"""
Bar of issue 6 at 5,000 nodes, mean <= {MEAN_BAR:g} ms and p99 <= {P99_BAR:g} ms: {verdict}.

`first`: a pod of a kind that was not seen before: every node is looked at. RSS: with the synthetic objects.

Work that grows with the trials: 1,000 nodes with {GPUS * (SHARES - 1) * 1000:,} trials take {growth:.2f} times as
long as with none (median of two runs each, in turns).

| policy, 1,000 nodes | mean ms | p99 ms | first, ms |
| --- | --- | --- | --- |
"""
    table = [f"| {name} | {one.mean:.2f} | {one.p99:.2f} | {one.first:.0f} |\n" for name, one in policies.items()]
    return head + "".join(rows) + tail + "".join(table) + "\n![growth](bench-extender.png)\n"


def _packing(found: Mapping[int, Found]) -> str:
    """Pods that are no trials, by the default policy: without free CPUs (FGD), and with (fill)."""
    blind, seeing = found[0], found[OTHERS]
    head = f"""
Pods that are no trials, at {blind.nodes:,} nodes by `auto`. Free CPUs known by {OTHERS:,} pods of other schedulers, one
of which changes before each pod: {seeing.mean / blind.mean:.2f} times as long as without, and {seeing.room:.0f} MB.

| free CPUs | policy | mean ms | p99 ms | first, ms |
| --- | --- | --- | --- | --- |
"""
    rows = [("not known", "fragmentation", blind), ("known", "fill", seeing)]
    return head + "".join(f"| {a} | {b} | {one.mean:.2f} | {one.p99:.2f} | {one.first:.0f} |\n" for a, b, one in rows)


def _plot(sizes: list[tuple[Found, float]]) -> None:
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    nodes = [found.nodes for found, _ in sizes]
    axes.plot(nodes, [found.p99 for found, _ in sizes], "o--", label="p99")
    axes.plot(nodes, [found.mean for found, _ in sizes], "o-", label="mean")
    axes.plot(nodes, [found.floor for found, _ in sizes], "o:", label="floor (JSON alone)")
    axes.set_xlabel("nodes, all names sent")
    axes.set_ylabel("filter + prioritize, ms of CPU")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(RESULTS.with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()
