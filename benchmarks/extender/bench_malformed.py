"""10,000 malformed request bodies: every answer follows the protocol, nothing crashes, and memory does not grow.

    python -m benchmarks.extender.bench_malformed [BODIES]

The bodies are those of tests/unit/extender/malformed.py, sent to the app in one process. Memory is the resident size
after each tenth of the bodies; the first two tenths warm up. The last line is RESULT {json}; the status is 1 where an
answer is wrong or memory grew by more than 4 MiB after the warm-up.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "unit" / "extender"))

from malformed import GOLDEN, malformed, protocol_error, recorded, send

from benchmarks.command_line import Parser
from benchmarks.extender.synthetic import Live
from benchmarks.output import result_line
from podium_cluster.resources import GPUNODES, LEASES, PODS, TRIALS, Selection
from podium_cluster.watch import WatchCache
from podium_core.placement.policies.registry import DEFAULT, placement_policy
from podium_extender.app import create_app
from podium_extender.metrics import Metrics
from podium_extender.server.limits import ConcurrencyLimit
from podium_extender.state.node_cache import Heartbeats, NodeCache, Watches, parse_gpunode, parse_pod
from podium_extender.state.trials import parse_trial
from podium_extender.verbs.decisions import NodeEvaluator
from podium_extender.verbs.handlers import Verbs

PARTS = 10
MAX_GROWTH = 4 * 2**20


async def send_all(bodies: int) -> tuple[Counter[str], list[int]]:
    """Send the bodies; return the answers by status or fault, and the resident bytes after each part."""
    nodes = json.loads((GOLDEN / "gpunodes.json").read_text())["filter"]
    placed = json.loads((GOLDEN / "trials.json").read_text())
    live = Live({GPUNODES: nodes, PODS: placed["pods"], LEASES: [], TRIALS: placed["trials"]})
    nodes_cache = NodeCache(
        Watches(
            WatchCache(live, Selection(GPUNODES), parse_gpunode),  # type: ignore[arg-type]
            WatchCache(live, Selection(PODS), parse_pod),  # type: ignore[arg-type]
            WatchCache(live, Selection(LEASES), Heartbeats(time.time).parse),  # type: ignore[arg-type]
            WatchCache(live, Selection(TRIALS), parse_trial),  # type: ignore[arg-type]
        ),
        namespace="podium-system",
        clock=time.time,
    )
    watches = [asyncio.create_task(cache.run()) for cache in nodes_cache.caches.values()]
    await asyncio.gather(*(cache.wait_synced() for cache in nodes_cache.caches.values()))
    evaluator = NodeEvaluator(placement_policy(DEFAULT), 60.0)
    metrics = Metrics()
    app = create_app(Verbs(nodes_cache, metrics, evaluator), metrics, ConcurrencyLimit(32), 2**20)
    chance, true = random.Random(6), recorded()
    seen: Counter[str] = Counter()
    held = []
    for _ in range(PARTS):
        for _ in range(bodies // PARTS):
            verb, body = malformed(chance, true)
            status, answer = await send(app, verb, body)
            fault = protocol_error(verb, status, answer)
            seen[fault or str(status)] += 1
        gc.collect()
        held.append(_resident())
    for watch in watches:
        watch.cancel()
    return seen, held


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("bodies", nargs="?", type=int, default=10_000, help="to send (default: 10000)")
    bodies = parser.parse_args().bodies
    logging.disable(logging.WARNING)  # the extender logs one line for each refusal
    seen, held = asyncio.run(send_all(bodies))
    growth = held[-1] - held[1]
    print(result_line({"answers": seen, "resident_bytes": held, "growth_bytes": growth}))
    if seen.keys() - {"200", "400"} or growth > MAX_GROWTH:
        raise SystemExit("an answer does not follow the protocol, or memory grows; see RESULT")


if __name__ == "__main__":
    main()
