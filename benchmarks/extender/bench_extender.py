"""CPU time of the extender's filter and prioritize over synthetic caches, as kube-scheduler calls them.

    make bench-extender [OUT=FOLDER]
    python -m benchmarks.extender.bench_extender [PODS] [--nodes 5000]

Everything runs in one process, without socket, kube-scheduler or KWOK (bench_scheduler measures those). For each pod,
filter is asked about all nodes and prioritize about the nodes that filter returned, both as bytes of HTTP to the
connection's protocol. Then the pod is placed on the best node: outside the timed part the caches handle a watch event
for it, a heartbeat and a new status of a GPUNode, so that something has changed before each pod. `json`: the time of
json.loads and json.dumps alone for the same bodies.

Writes bench-extender.md and .png into `--out`; the last line is RESULT {json}.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import numpy as np

from benchmarks.command_line import Parser
from benchmarks.extender.report import OTHERS, PODS_PER_RUN, TRIALS_PER_NODE, Measured, Page, page_text, plot
from benchmarks.extender.synthetic import (
    Connection,
    Json,
    Live,
    OtherPods,
    as_sent,
    gpunode,
    lease,
    pod,
    trial,
    trial_names,
)
from benchmarks.output import add_out, result_line, write_page
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, LEASES, PODS, TRIALS, Selection
from podium_cluster.watch import WatchCache
from podium_core.placement.policies.registry import DEFAULT, placement_policy
from podium_extender.app import create_app
from podium_extender.main import prepare_when_synced
from podium_extender.metrics import Metrics
from podium_extender.server.limits import ConcurrencyLimit
from podium_extender.state.node_cache import Heartbeats, NodeCache, Watches, parse_gpunode, parse_pod
from podium_extender.state.soft_preferences import SoftPreferences
from podium_extender.state.trials import parse_trial
from podium_extender.verbs.decisions import NodeEvaluator
from podium_extender.verbs.handlers import Verbs

NODES = 5000  # of the largest cluster
MIN_NODES = 500
GROWTH = (100, 1000, 10_000)  # trials at 1,000 nodes; fewer on smaller clusters
PREFERENCE = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}
        ]
    }
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One run: how many pods are placed, of trials or not, on how many nodes with how many trials.

    `others`: pods of other schedulers, from which free CPUs are known. `prefers`: the pods prefer some nodes, so filter
    returns all nodes.
    """

    nodes: int
    pods: int
    policy: str = DEFAULT
    trials: int | None = None
    of_trial: bool = True
    others: int = 0
    prefers: bool = False


class Cluster:
    """The extender over caches of a synthetic cluster, and the scheduler that calls it."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.chance = np.random.default_rng(setting.nodes)
        self.names = [f"gpu-node-{i:05d}.cluster.example" for i in range(setting.nodes)]
        whole = TRIALS_PER_NODE * setting.nodes if setting.trials is None else setting.trials
        self.trials = {name: len(range(i, whole, setting.nodes)) for i, name in enumerate(self.names)}
        placed = [(node, name) for node, count in self.trials.items() for name in trial_names(node, count)]
        self.live = Live(
            {
                GPUNODES: (self.gpunode(name) for name in self.names),
                PODS: (pod(f"{name}-0", node) for node, name in placed),
                LEASES: (lease(name, 0) for name in self.names),
                TRIALS: (trial(self.chance, name) for _, name in placed),
            }
        )
        self.others = OtherPods(self.names, setting.others)
        api, free_cpus = cast(Api, self.live), self.others.free_cpus()
        own = WatchCache(api, Selection(PODS), parse_pod)
        others = [free_cpus.caches["other pods"]] if setting.others else []
        self.nodes = NodeCache(
            Watches(
                WatchCache(api, Selection(GPUNODES), parse_gpunode),
                own,
                WatchCache(api, Selection(LEASES, namespace="podium-system"), Heartbeats(time.time).parse),
                WatchCache(api, Selection(TRIALS), parse_trial),
            ),
            namespace="podium-system",
            clock=time.time,
            free_cpus=free_cpus if setting.others else None,
            preferences=SoftPreferences(free_cpus.caches["nodes"], [own, *others]),
        )
        evaluator = NodeEvaluator(placement_policy(setting.policy), 1e9)
        metrics = Metrics()
        app = create_app(Verbs(self.nodes, metrics, evaluator), metrics, ConcurrencyLimit(32), 2**26)
        self.connection = Connection(app)
        self.watches: list[asyncio.Task[None]] = []

    def gpunode(self, name: str) -> Json:
        """Return a new status of this node."""
        return gpunode(self.chance, name, self.trials[name])

    async def warm(self) -> float:
        """Fill the caches; return the MB by which the process grew with nodes and other pods."""
        self._watch(self.nodes.caches)
        await prepare_when_synced(self.nodes, self.nodes.caches.values())
        before = _resident()
        self._watch(self.nodes.optional_caches)
        await prepare_when_synced(self.nodes, self.nodes.optional_caches.values())
        return _resident() - before

    def _watch(self, caches: Mapping[str, WatchCache[object]]) -> None:
        self.watches += [asyncio.create_task(cache.run()) for cache in caches.values()]

    async def ask(self, number: int) -> tuple[float, float, float, int]:
        """Place one pod.

        Returns the milliseconds of filter, of prioritize and of JSON alone, and how many nodes filter returned.
        """
        made = pod(f"pod-{number}-0", of_trial=self.setting.of_trial)
        sent = as_sent(made, **({"affinity": PREFERENCE} if self.setting.prefers else {}))
        body = request(sent, _shuffled(self.names, self.chance))
        passed, filtering = await self.connection.post("filter", body)
        left = json.loads(passed)["NodeNames"]
        second = request(sent, left)
        scored, scoring = await self.connection.post("prioritize", second)
        best = max(json.loads(scored), key=lambda row: row["Score"])["Host"]
        await self.live.change(PODS, pod(f"pod-{number}-0", best, of_trial=self.setting.of_trial))
        return filtering, scoring, _json_alone([body, second], [passed, scored]), len(left)

    async def change(self, number: int) -> None:
        """Send a heartbeat and a new status of one node, and a change of one other pod."""
        changed = self.names[number % len(self.names)]
        await self.live.change(LEASES, lease(changed, number))
        await self.live.change(GPUNODES, self.gpunode(changed))
        if self.setting.others:
            await self.others.change(number % self.setting.others, f"{number % 7 + 1}00m")


async def measure(setting: Setting) -> Measured:
    """Place all pods of a setting."""
    cluster = Cluster(setting)
    grown = await cluster.warm()
    first = await cluster.ask(0)
    pods = []
    for number in range(1, setting.pods + 1):
        await cluster.change(number)
        pods.append(await cluster.ask(number))
    await cluster.live.change(GPUNODES, *(cluster.gpunode(name) for name in cluster.names))
    last = await cluster.ask(setting.pods + 1)
    for watch in cluster.watches:
        watch.cancel()
    filters, scores, json_alone, returned = zip(*pods, strict=True)
    return Measured(
        nodes=setting.nodes,
        both=[a + b for a, b in zip(filters, scores, strict=True)],
        verbs={"filter": statistics.mean(filters), "prioritize": statistics.mean(scores)},
        first=first[0] + first[1],
        all_changed=last[0] + last[1],
        json_alone=statistics.mean(json_alone),
        returned=max(returned),
        rss=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        growth=grown,
    )


def _resident() -> float:
    """Return the resident MB of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def request(sent: Json, names: Sequence[str]) -> bytes:
    """Return the body as Go writes it: without white space."""
    return json.dumps({"Pod": sent, "Nodes": None, "NodeNames": names}, separators=(",", ":")).encode()


def _shuffled(names: Sequence[str], chance: np.random.Generator) -> list[str]:
    """Return the names in the order of a real request.

    The scheduler's 16 threads take the nodes in chunks of about the square root of their number, and the thread that
    is ready first writes first. So no two requests have the same order.
    """
    size = max(1, int(len(names) ** 0.5))
    chunks = [list(names[at : at + size]) for at in range(0, len(names), size)]
    order = np.argsort(np.arange(len(chunks)) + chance.uniform(0, 16, len(chunks)))
    return [name for chunk in order for name in chunks[chunk]]


def _json_alone(requests: Sequence[bytes], answers: Sequence[bytes]) -> float:
    """Return the milliseconds that the standard library takes to read the requests and to write the answers."""
    values = [json.loads(answer) for answer in answers]
    started = time.process_time()
    for body in requests:
        json.loads(body)
    for value in values:
        json.dumps(value)
    return 1000 * (time.process_time() - started)


def alone(setting: Setting) -> Measured:
    """Measure in a process of its own, which has its own memory."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        figures = asyncio.run(measure(setting))
        with os.fdopen(write, "w") as pipe:
            json.dump(asdict(figures), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    if not answer:
        raise SystemExit("a run ended without a result; its error is above")
    print(f"{setting}: done", flush=True)
    return Measured(**json.loads(answer))


def measure_all(pods: int, nodes: int) -> Page:
    """Measure everything with this number of pods a run; `nodes`: of the largest cluster."""
    middle, others = max(1, nodes // 5), OTHERS * nodes // NODES
    sizes = [alone(Setting(size, pods)) for size in (max(1, nodes // 50), middle, nodes)]
    kinds = {
        "a trial": sizes[-1],
        "a trial that prefers some nodes": alone(Setting(nodes, pods, prefers=True)),
        "no trial, free CPUs not known (FGD)": alone(Setting(nodes, pods, of_trial=False)),
        f"no trial, free CPUs known from {others:,} other pods (fill)": alone(
            Setting(nodes, pods, of_trial=False, others=others)
        ),
    }
    growth: dict[int, list[Measured]] = {trials * nodes // NODES: [] for trials in GROWTH}
    for _ in range(2):  # alternating, because the machine can be slower for a while
        for trials, runs in growth.items():
            runs.append(alone(Setting(middle, pods, trials=trials)))
    policies = {
        name: alone(Setting(middle, pods, name))
        for name in ("load_balance", "fragmentation", "fill", "binpack", "spread", "random")
    }
    return Page(pods, sizes, kinds, growth, policies, others)


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("pods", nargs="?", type=int, default=PODS_PER_RUN, help=f"of each run ({PODS_PER_RUN})")
    parser.add_argument("--nodes", type=int, default=NODES, help=f"of the largest cluster (default: {NODES})")
    add_out(parser)
    options = parser.parse_args()
    if options.nodes < MIN_NODES:
        parser.error(f"--nodes: {options.nodes}; give {MIN_NODES} or more")
    page = measure_all(options.pods, options.nodes)
    path = options.out / "bench-extender.md"
    write_page(path, page_text(page))
    plot(page, path.with_suffix(".png"))
    sizes = {
        str(one.nodes): {
            "filter_prioritize_mean_ms": round(one.mean, 2),
            "filter_prioritize_p99_ms": round(one.p99, 2),
            "times_json_alone": round(one.mean / one.json_alone, 2),
            "rss_mb": round(one.rss),
        }
        for one in page.sizes
    }
    growth = page.growth_ms(max(page.growth)) / page.growth_ms(min(page.growth))
    kept = all(one.kept for one in page.kinds.values())
    print(result_line({"nodes": sizes, "by_trials": round(growth, 2), "kept": kept}))


if __name__ == "__main__":
    main()
