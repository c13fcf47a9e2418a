"""Guard that the extender answers at once (no Nagle delay of 44 ms), against an empty route of FastAPI.

    python -m benchmarks.extender.bench_extender_latency [CALLS]

A real uvicorn serves the real app on loopback over one kept-alive connection, as kube-scheduler uses it. The guard is a
ratio, because the time of one call depends on the machine. The last line is RESULT {json}; the status is 1 where the
guard fails.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import statistics
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import uvicorn
from fastapi import Response

from benchmarks.command_line import Parser
from benchmarks.output import result_line
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, LEASES, PODS, TRIALS, Resource, Selection
from podium_cluster.watch import WatchCache
from podium_core.placement.policies.load_balance import LOAD_BALANCE
from podium_extender.app import create_app
from podium_extender.metrics import Metrics
from podium_extender.server.limits import ConcurrencyLimit
from podium_extender.state.node_cache import Heartbeats, NodeCache, Watches, parse_gpunode, parse_pod
from podium_extender.state.trials import parse_trial
from podium_extender.verbs.decisions import NodeEvaluator
from podium_extender.verbs.handlers import Verbs

NODES = ("node-a", "node-b")
NAGLE_MS = 40.0
MAX_TIMES_EMPTY = 20.0


class TwoNodes:
    """A stand-in for an Api that lists two GPUNodes and nothing else; its watch has no events."""

    async def list(self, resource: Resource, namespace: str | None = None, **_: Any) -> Mapping[str, Any]:
        gpu = {"uuid": "GPU-1", "index": 0, "health": "Healthy", "slots": 4, "memoryTotal": 2**36}
        nodes = [{"metadata": {"name": name}, "status": {"gpus": [gpu]}} for name in NODES]
        return {"metadata": {"resourceVersion": "1"}, "items": nodes if resource is GPUNODES else []}

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[Mapping[str, Any]]:
        await asyncio.Event().wait()
        yield {}


def milliseconds(port: int, path: str, body: bytes, calls: int) -> list[float]:
    """Return the milliseconds of each call on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    taken = []
    for _ in range(calls + 5):
        start = time.perf_counter()
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        taken.append((time.perf_counter() - start) * 1000)
        if answer.status != 200:
            raise SystemExit(f"{path} answered {answer.status}")
    connection.close()
    return taken[5:]


async def measure(calls: int) -> dict[str, float]:
    """Return median and maximum of each route."""
    api = cast(Api, TwoNodes())
    nodes_cache = NodeCache(
        Watches(
            WatchCache(api, Selection(GPUNODES), parse_gpunode),
            WatchCache(api, Selection(PODS), parse_pod),
            WatchCache(api, Selection(LEASES), Heartbeats(time.time).parse),
            WatchCache(api, Selection(TRIALS), parse_trial),
        ),
        namespace="podium-system",
        clock=time.time,
    )
    watches = [asyncio.create_task(cache.run()) for cache in nodes_cache.caches.values()]
    metrics = Metrics()
    verbs = Verbs(nodes_cache, metrics, NodeEvaluator(LOAD_BALANCE, 60.0))
    app = create_app(verbs, metrics, ConcurrencyLimit(32), 2**20)

    @app.post("/empty")
    async def empty() -> Response:
        return Response(b"{}", media_type="application/json")

    server = uvicorn.Server(uvicorn.Config(app, port=0, http="httptools", log_level="warning", access_log=False))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn offers no event
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    container = {"name": "train", "resources": {"requests": {"podium.dev/gpu": "1"}}}
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [container]}}
    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": NODES}).encode()
    figures = {}
    for name in ("empty", "filter", "prioritize"):
        taken = await asyncio.to_thread(milliseconds, port, f"/{name}", body, calls)
        figures[f"{name}_p50_ms"] = round(statistics.median(taken), 3)
        figures[f"{name}_max_ms"] = round(max(taken), 3)
    server.should_exit = True
    await serving
    for watch in watches:
        watch.cancel()
    return figures


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("calls", nargs="?", type=int, default=50, help="of each route (default: 50)")
    figures = asyncio.run(measure(parser.parse_args().calls))
    slowest = max(figures["filter_p50_ms"], figures["prioritize_p50_ms"])
    figures["times_empty"] = round(slowest / figures["empty_p50_ms"], 2)
    print(result_line(figures))
    if slowest >= NAGLE_MS or figures["times_empty"] > MAX_TIMES_EMPTY:
        raise SystemExit("an answer is delayed: check whether it is written in two packets without TCP_NODELAY")


if __name__ == "__main__":
    main()
