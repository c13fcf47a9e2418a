"""The verbs against their OpenAPI description.

schemathesis generates valid and invalid bodies. Every response has a described status and body. There is no 5xx,
because the caches are filled and there is one request at a time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from malformed import GOLDEN
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from podium_cluster.resources import GPUNODES, PODS, TRIALS
from podium_core.placement.policies.registry import DEFAULT, placement_policy
from podium_extender.app import create_app
from podium_extender.metrics import Metrics
from podium_extender.server.limits import ConcurrencyLimit
from podium_extender.state.node_cache import NodeCache
from podium_extender.verbs.decisions import NodeEvaluator
from podium_extender.verbs.handlers import Verbs

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 20


@pytest.fixture
def schema(caches: Callable[..., NodeCache]) -> schemathesis.BaseSchema:
    nodes = json.loads((GOLDEN / "gpunodes.json").read_text())["filter"]
    sitting = json.loads((GOLDEN / "trials.json").read_text())
    node_cache = caches({GPUNODES: nodes, PODS: sitting["pods"], TRIALS: sitting["trials"]})

    async def warm() -> None:
        runs = [asyncio.create_task(cache.run()) for cache in node_cache.caches.values()]
        await asyncio.gather(*(cache.wait_synced() for cache in node_cache.caches.values()))
        for run in runs:
            run.cancel()

    asyncio.run(warm())
    evaluator = NodeEvaluator(placement_policy(DEFAULT), 60.0)
    metrics = Metrics()
    verbs = Verbs(node_cache, metrics, evaluator)
    app = create_app(verbs, metrics, ConcurrencyLimit(32), 2**20, openapi_url="/openapi.json")
    return schemathesis.openapi.from_asgi("/openapi.json", app)


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
@pytest.mark.parametrize(("mode", "status"), [(GenerationMode.POSITIVE, 200), (GenerationMode.NEGATIVE, 400)])
def test_every_response_matches_the_description(
    schema: schemathesis.BaseSchema, verb: str, mode: GenerationMode, status: int
) -> None:
    operation = schema[f"/{verb}"]["POST"]
    seen: set[int] = set()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def answered(case: schemathesis.Case) -> None:
        seen.add(case.call_and_validate(checks=CHECKS).status_code)

    answered()
    assert status in seen


def test_all_verbs_are_described_and_nothing_else(schema: schemathesis.BaseSchema) -> None:
    assert {op.ok().label for op in schema.get_all_operations()} == {
        f"POST /{verb}" for verb in ("filter", "prioritize", "preempt")
    }
