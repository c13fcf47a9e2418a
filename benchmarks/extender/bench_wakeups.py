"""How long a refused pod waits after it could be placed: the real kube-scheduler and extender.

    python -m benchmarks.extender.bench_wakeups [ROUNDS]    (root; one control plane, no kubelet)

Two cases, both while a GPU breaks and recovers:

- refused: every node refused the pod; from the write of the GPUNode to the pod's binding;
- unschedulable: no pod could be evicted because the GPU was unhealthy; from the write to the deletion of its trial.
  Between two rounds there is more than a second, which is the extender's own limit for such retries.

The real kube-apiserver, kube-scheduler and extender run with the chart's configuration. The last line is RESULT {json};
the status is 1 where a median is above the bar of 100 ms.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.command_line import Parser
from benchmarks.control_plane import ExtenderSetup, gpu, now, open_setup
from benchmarks.output import result_line
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, PODS

BAR = 100.0  # milliseconds
BETWEEN = 1.2  # seconds between two retries: a little more than the extender's limit


def is_bound(pod: Any) -> bool:
    """Return whether the pod has a node."""
    return bool(pod["spec"].get("nodeName"))


def is_deleted(pod: Any) -> bool:
    """Return whether the pod is being deleted."""
    return "deletionTimestamp" in pod["metadata"]


async def recover(api: Api, setup: ExtenderSetup, pod: str, seen: Callable[[Any], bool]) -> float:
    """Report the GPU as healthy; return the milliseconds until the pod meets the condition `seen`."""
    manifest = await api.get(PODS, pod, setup.namespace)
    events = api.watch(
        PODS,
        setup.namespace,
        version=manifest["metadata"]["resourceVersion"],
        labels=None,
        fields=f"metadata.name={pod}",
        seconds=30,
    )

    async def watch() -> float:
        async for event in events:
            if seen(event["object"]):
                return time.monotonic()
        raise SystemExit(f"{pod}: {seen.__name__} is not true within 30 s")

    watching = asyncio.create_task(watch())
    status: dict[str, Any] = {"updatedAt": now(), "gpus": [gpu(1)]}
    started = time.monotonic()
    await api.apply_status(GPUNODES, {"metadata": {"name": setup.node("a")}, "status": status}, manager="podium-agent")
    return 1000 * (await watching - started)


def measure_refused(setup: ExtenderSetup, rounds: int) -> list[float]:
    """Measure pods that every node refused."""
    taken = []
    for number in range(rounds):
        setup.add_node("a", gpu(1, health="Unhealthy", healthReason="Xid 79"))
        pod = f"pod-{number}"
        setup.add_pod(pod, on="a")
        setup.unschedulable_message(pod)
        taken.append(setup.api(partial(recover, setup=setup, pod=pod, seen=is_bound)))
        setup.api(lambda api, pod=pod: api.delete(PODS, pod, setup.namespace, grace_seconds=0))  # type: ignore[misc]
    setup.clear()
    return taken


def measure_unschedulable(setup: ExtenderSetup, rounds: int) -> list[float]:
    """Measure pods for which no pod could be evicted; evictions and retries of a pod have a rate limit."""
    refused = 'podium_extender_preemptions_total{code="Unhealthy"}'
    taken = []
    for number in range(rounds):
        placed, exclusive = f"placed-{number}", f"exclusive-{number}"
        setup.add_node("a", gpu(1), slots=1)
        setup.add_pod(placed, on="a")
        setup.bound(placed)
        setup.add_node("a", gpu(1, health="Unhealthy", healthReason="Xid 79"), slots=1)
        setup.wait(lambda: "Unhealthy" in setup.refusal("a"), "the extender knows that the GPU is unhealthy")
        before = setup.metric(refused)
        setup.add_pod(exclusive, on="a", high_priority=True)
        setup.wait(lambda before=before: setup.metric(refused) > before, "the preemption is refused")  # type: ignore[misc]
        setup.unschedulable_message(exclusive, "preemption")
        time.sleep(BETWEEN)
        taken.append(setup.api(partial(recover, setup=setup, pod=placed, seen=is_deleted)))
        setup.clear()
    return taken


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=20, help="of each case (default: 20)")
    rounds = parser.parse_args().rounds
    with open_setup() as setup:
        setup.start_extender()
        setup.start_scheduler()
        taken = {"refused": measure_refused(setup, rounds), "unschedulable": measure_unschedulable(setup, rounds)}
    figures: dict[str, object] = {
        name: {"p50_ms": round(statistics.median(times), 1), "max_ms": round(max(times), 1)}
        for name, times in taken.items()
    }
    print(result_line(figures | {"load_average": os.getloadavg()[0]}))
    if max(map(statistics.median, taken.values())) > BAR:
        raise SystemExit(f"a median is above the bar of {BAR:g} ms; see RESULT")


if __name__ == "__main__":
    main()
