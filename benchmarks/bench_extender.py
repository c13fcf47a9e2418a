"""How long the extender thinks: filter and prioritize over synthetic caches, as kube-scheduler asks.

    python benchmarks/bench_extender.py [PODS]

In one process: no socket, no kube-scheduler, no KWOK (those come on top: bench_scheduler.py). For each pod filter is
asked about all nodes and prioritize about those that filter hands on, both as bytes of HTTP to the connection's own
protocol (`fast_path_protocol`). Then the pod is placed on the best node: a watch event outside the timed part, with
one heartbeat and one new status of a GPUNode, so that something has changed before each pod. `floor`: what json.loads
and json.dumps alone take for the same bodies. Writes benchmarks/results/bench-extender.md and .png, prints RESULT
{json}.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import numpy as np
from crowd import Crowd
from extender_report import A_NODE, OTHERS, PODS_A_RUN, RESULTS, Found, Page, plot, text
from made_up import Connection, Json, Live, as_sent, gpunode, lease, pod, seats, trial

from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, LEASES, PODS, TRIALS
from podium_cluster.watch import WatchCache
from podium_core.placement.registry import DEFAULT, placement_policy
from podium_extender.main import prepare_when_synced
from podium_extender.metrics import Metrics
from podium_extender.server.endpoint import Endpoint
from podium_extender.state.node_cache import Heartbeats, NodeCache, parse_gpunode, parse_pod
from podium_extender.state.soft_preferences import SoftPreferences
from podium_extender.state.trials import parse_trial
from podium_extender.verbs.decisions import NodeEvaluator

SIZES = (100, 1000, 5000)
TRIALS_THERE = (100, 1000, 10_000)  # at 1,000 nodes
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
        self.telemetry = NodeCache(
            WatchCache(api, GPUNODES, parse_gpunode),
            own,
            WatchCache(api, LEASES, Heartbeats(time.time).parse, namespace="podium-system"),
            WatchCache(api, TRIALS, parse_trial),
            namespace="podium-system",
            clock=time.time,
            free_cpus=room if asked.others else None,
            preferences=SoftPreferences(room.caches["nodes"], [own, *others]),
        )
        judge = NodeEvaluator(placement_policy(asked.policy), 1e9)
        self.connection = Connection(Endpoint(self.telemetry, Metrics(), judge, body_limit=2**26, max_requests=32))
        self.watches: list[asyncio.Task[None]] = []

    def gpunode(self, name: str) -> Json:
        return gpunode(self.chance, name, self.there[name])

    async def warm(self) -> float:
        """MB that the process grew by with nodes and pods of others."""
        self._watch(self.telemetry.caches)
        await prepare_when_synced(self.telemetry, self.telemetry.caches.values())
        before = _resident()
        self._watch(self.telemetry.optional_caches)
        await prepare_when_synced(self.telemetry, self.telemetry.optional_caches.values())
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
