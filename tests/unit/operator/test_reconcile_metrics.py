"""Metrics of the duration of a reconcile."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from operator_builders import make_cluster_state, make_job, make_node, make_reconciler, make_trial

import podium_operator.reconciler
from podium_cluster.client import Api
from podium_core.domain.actions import LazyRanks, TrialRank
from podium_core.planning.planner import Decision
from podium_operator.metrics import Metrics
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.settings import OperatorSettings


class Server:
    async def _take(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}

    apply = apply_status = create = patch = _take


def test_the_sentences_of_the_ranks_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are created on first use, which is after the plan: a part of their own."""
    metrics, settings, api = Metrics(), OperatorSettings(), cast(Api, Server())
    caches = WatchCaches(api, settings)
    monkeypatch.setattr(caches, "cluster_state", lambda: make_cluster_state(make_job(), make_trial(), make_node()))
    under_way: list[str] = []

    class Parts:
        """Replacement of the histogram: the part that is being timed when a sentence is read."""

        def labels(self, part: str) -> Parts:
            self.part = part
            return self

        def time(self) -> Parts:
            return self

        def __enter__(self) -> None:
            under_way.append(self.part)

        def __exit__(self, *_: object) -> None:
            under_way.append("")

    read: list[str] = []
    real = podium_operator.reconciler.decide

    def decide(snapshot: Any) -> Any:
        decided = real(snapshot).plan

        def ranks() -> Any:
            for place in decided.ranks:
                read.append(under_way[-1])
                yield TrialRank(place.trial, place.rank, place.reason, place.message)

        return Decision(type(decided)(decided.actions, LazyRanks(ranks), decided.wake_at))

    monkeypatch.setattr(podium_operator.reconciler, "decide", decide)
    metrics.part_seconds = cast(Any, Parts())
    asyncio.run(make_reconciler(api, caches, settings, metrics).reconcile())
    assert read
    assert set(read) == {"describe"}
    assert [part for part in under_way if part] == ["plan", "run_queues", "act", "describe", "report"]
