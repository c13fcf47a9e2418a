"""Metrics of the duration of a reconcile."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from operator_builders import make_cluster_state, make_job, make_node, make_trial

import podium_operator.reconciler
from podium_cluster.client import Api
from podium_core.domain.actions import LazyRanks, TrialRank
from podium_operator.act.actuator import Actuator
from podium_operator.act.pod_manifest import PodRules
from podium_operator.act.rebalancing import Rebalancer
from podium_operator.cleanup.deleted_jobs import Cleanup
from podium_operator.metrics import Metrics
from podium_operator.observe.final_log_read import FinalLogReader
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.reconciler import Reconciler
from podium_operator.report.status_writer import StatusWriter
from podium_operator.reservations.controller import ReservationController
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
    real = podium_operator.reconciler.plan

    def plan(snapshot: Any) -> Any:
        decided = real(snapshot)

        def ranks() -> Any:
            for place in decided.ranks:
                read.append(under_way[-1])
                yield TrialRank(place.trial, place.rank, place.reason, place.message)

        return type(decided)(decided.actions, LazyRanks(ranks), decided.wake_at)

    monkeypatch.setattr(podium_operator.reconciler, "plan", plan)
    metrics.part_seconds = cast(Any, Parts())
    actuator = Actuator(api, caches, PodRules("podium", "podium.dev/gpu"), metrics)
    status_writer, reservation_controller = (
        StatusWriter(api, 2.0, metrics),
        ReservationController(api, settings, metrics),
    )
    cleanup, rebalancer = Cleanup(api, caches.cluster_state, None), Rebalancer(api, settings)
    asyncio.run(
        Reconciler(
            settings,
            caches,
            actuator,
            status_writer,
            FinalLogReader(api),
            cleanup,
            metrics,
            reservation_controller,
            rebalancer,
        ).reconcile()
    )
    assert read
    assert set(read) == {"describe"}
    assert [part for part in under_way if part] == ["plan", "run_queues", "act", "describe", "report"]
