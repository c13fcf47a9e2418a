"""Any body gets a response of the protocol or a 400 with a message, and nothing of it stays in memory."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable

import pytest
from malformed import GOLDEN, malformed, protocol_error, recorded, send

from podium_cluster.resources import GPUNODES, PODS, TRIALS
from podium_core.placement import gpu_fragments
from podium_core.placement.policies.registry import placement_policy
from podium_extender.app import create_app
from podium_extender.metrics import Metrics
from podium_extender.server.limits import ConcurrencyLimit
from podium_extender.state.node_cache import NodeCache
from podium_extender.verbs.decisions import MAX_POD_KINDS, NodeEvaluator
from podium_extender.verbs.handlers import Verbs

BODIES = 200


@pytest.mark.parametrize("placement", ["load_balance", "fill"])
def test_malformed_bodies_get_valid_responses(caches: Callable[..., NodeCache], placement: str) -> None:
    nodes = json.loads((GOLDEN / "gpunodes.json").read_text())["filter"]
    sitting = json.loads((GOLDEN / "trials.json").read_text())
    chance = random.Random(placement)
    true = recorded()

    async def main() -> Counter[int]:
        node_cache = caches({GPUNODES: nodes, PODS: sitting["pods"], TRIALS: sitting["trials"]})
        runs = [asyncio.create_task(cache.run()) for cache in node_cache.caches.values()]
        await asyncio.gather(*(cache.wait_synced() for cache in node_cache.caches.values()))
        evaluator = NodeEvaluator(placement_policy(placement), 60.0)
        metrics = Metrics()
        app = create_app(Verbs(node_cache, metrics, evaluator), metrics, ConcurrencyLimit(32), 2**20)
        seen: Counter[int] = Counter()
        for _ in range(BODIES):
            verb, body = malformed(chance, true)
            status, answer = await send(app, verb, body)
            assert protocol_error(verb, status, answer) is None, (verb, body[:2000], status, answer[:500])
            seen[status] += 1
        for verb, request in true:  # and it still answers what is right
            status, answer = await send(app, verb, json.dumps(request).encode())
            assert status == 200
        assert max(len(evaluator._costs), len(evaluator._refusals)) <= MAX_POD_KINDS
        assert len(gpu_fragments._mixes) <= gpu_fragments.MIXES_KEPT
        for run in runs:
            run.cancel()
        return seen

    seen = asyncio.run(main())
    # some are only unusual (an annotation, an unknown node), others are invalid requests
    assert seen[200] > BODIES / 10
    assert seen[400] > BODIES / 10
