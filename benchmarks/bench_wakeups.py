"""How long a pod that every node refused waits after room appeared: from the GPUNode's write to the pod's binding.

    python benchmarks/bench_wakeups.py [ROUNDS]    (root; one control plane, no kubelet)

The real kube-apiserver, kube-scheduler and extender with the chart's configuration; a GPU breaks and recovers. Prints
RESULT {json}; ends with 1 where the median is above 100 ms, issue 6's bar.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from typing import Any

from control_plane import open_world
from extender_world import World, gpu, now

from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, PODS

BAR = 100.0  # milliseconds


async def recover(api: Api, world: World, pod: str) -> float:
    """Milliseconds from the call that says the GPU is healthy to the sight of the binding."""
    found = await api.get(PODS, pod, world.namespace)
    events = api.watch(
        PODS,
        world.namespace,
        version=found["metadata"]["resourceVersion"],
        labels=None,
        fields=f"metadata.name={pod}",
        seconds=30,
    )

    async def bound() -> float:
        async for event in events:
            if event["object"]["spec"].get("nodeName"):
                return time.monotonic()
        raise SystemExit(f"{pod} was not bound within 30 s")

    seen = asyncio.create_task(bound())
    status: dict[str, Any] = {"updatedAt": now(), "gpus": [gpu(1)]}
    started = time.monotonic()
    await api.apply_status(GPUNODES, {"metadata": {"name": world.node("a")}, "status": status}, manager="podium-agent")
    return 1000 * (await seen - started)


def measure(world: World, rounds: int) -> list[float]:
    world.start_extender()
    world.start_scheduler()
    taken = []
    for number in range(rounds):
        world.add_node("a", gpu(1, health="Unhealthy", healthReason="Xid 79"))
        pod = f"pod-{number}"
        world.add_pod(pod, on="a")
        world.why_not(pod)
        taken.append(world.api(lambda api, pod=pod: recover(api, world, pod)))  # type: ignore[misc]
        world.api(lambda api, pod=pod: api.delete(PODS, pod, world.namespace, grace_seconds=0))  # type: ignore[misc]
    world.clear()
    return taken


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with open_world() as world:
        taken = measure(world, rounds)
    median = statistics.median(taken)
    told = {"p50_ms": round(median, 1), "max_ms": round(max(taken), 1), "load_average": os.getloadavg()[0]}
    print("RESULT", json.dumps(told))
    if median > BAR:
        raise SystemExit(f"above {BAR:g} ms")


if __name__ == "__main__":
    main()
