"""10,000 bodies that no scheduler should send: no answer but the protocol's, no crash, and memory that stays flat.

    python benchmarks/bench_malformed.py [BODIES]

The bodies are those of tests/unit/extender/malformed.py, on the app in one process. Memory: resident bytes after each
tenth, of which the first two warm up. Prints RESULT {json}; ends with 1 if an answer is wrong or memory grew by more
than 4 MiB after that.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "unit" / "extender"))

from made_up import Live
from malformed import GOLDEN, malformed, recorded, send, wrong_with

from podium_cluster.resources import GPUNODES, LEASES, PODS, TRIALS
from podium_cluster.watch import WatchCache
from podium_core.placement.registry import DEFAULT, placement_policy
from podium_extender.app import create_app
from podium_extender.metrics import Metrics
from podium_extender.server.endpoint import Endpoint
from podium_extender.state.node_cache import Heartbeats, NodeCache, parse_gpunode, parse_pod
from podium_extender.state.trials import parse_trial
from podium_extender.verbs.decisions import NodeEvaluator

PARTS = 10
MOST_GROWTH = 4 * 2**20


async def bombard(bodies: int) -> tuple[Counter[str], list[int]]:
    """Answers by status or by what is wrong with them; bytes held after each part."""
    nodes = json.loads((GOLDEN / "gpunodes.json").read_text())["filter"]
    sitting = json.loads((GOLDEN / "trials.json").read_text())
    live = Live({GPUNODES: nodes, PODS: sitting["pods"], LEASES: [], TRIALS: sitting["trials"]})
    telemetry = NodeCache(
        WatchCache(live, GPUNODES, parse_gpunode),  # type: ignore[arg-type]
        WatchCache(live, PODS, parse_pod),  # type: ignore[arg-type]
        WatchCache(live, LEASES, Heartbeats(time.time).parse),  # type: ignore[arg-type]
        WatchCache(live, TRIALS, parse_trial),  # type: ignore[arg-type]
        namespace="podium-system",
        clock=time.time,
    )
    watches = [asyncio.create_task(cache.run()) for cache in telemetry.caches.values()]
    await asyncio.gather(*(cache.wait_synced() for cache in telemetry.caches.values()))
    app = create_app(
        Endpoint(
            telemetry, Metrics(), NodeEvaluator(placement_policy(DEFAULT), 60.0), body_limit=2**20, max_requests=32
        )
    )
    chance, true = random.Random(6), recorded()
    seen: Counter[str] = Counter()
    held = []
    for _ in range(PARTS):
        for _ in range(bodies // PARTS):
            verb, body = malformed(chance, true)
            status, said = await send(app, verb, body)
            trouble = wrong_with(verb, status, said)
            seen[trouble or str(status)] += 1
        gc.collect()
        held.append(_resident())
    for watch in watches:
        watch.cancel()
    return seen, held


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    bodies = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    logging.disable(logging.WARNING)  # one line a refusal
    seen, held = asyncio.run(bombard(bodies))
    growth = held[-1] - held[1]
    print("RESULT", json.dumps({"answers": seen, "resident_bytes": held, "growth_bytes": growth}))
    if seen.keys() - {"200", "400"} or growth > MOST_GROWTH:
        raise SystemExit("an answer is none of the protocol's, or memory grows")


if __name__ == "__main__":
    main()
