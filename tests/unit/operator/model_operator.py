"""Operator of the model: the real reconciler with all its parts, on watches that lag and a clock of the model."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from model_api import KilledError, Server, View
from operator_builders import REGISTRY

from podium_cluster import clock
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, JOBS, PODS, TRIALS
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import HyperParamJob
from podium_operator.act import actuator, postponed_actions
from podium_operator.act.actuator import Actuator
from podium_operator.act.pod_manifest import PodRules
from podium_operator.act.rebalancing import Rebalancer
from podium_operator.cleanup.deleted_jobs import Cleanup
from podium_operator.metrics import Metrics
from podium_operator.observe import watch_caches
from podium_operator.observe.final_log_read import FinalLogReader
from podium_operator.observe.pod_state import parse_pod
from podium_operator.observe.trial_state import parse_trial
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.queues.controller import QueueController
from podium_operator.reconciler import Actors, Reconciler
from podium_operator.report.status_writer import StatusWriter
from podium_operator.reservations.controller import ReservationController
from podium_operator.settings import OperatorSettings

_METRICS = Metrics()
_SETTINGS = OperatorSettings()
_REBALANCING = OperatorSettings(rebalancing=True, rebalancing_min_stay_seconds=5.0)


class Clock:
    """Replaces `time` in the modules that read it. It counts whole seconds, so that texts of times can be compared."""

    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class ModelWatchCaches(WatchCaches):
    """The real watch caches on views; `unresponsive`: nodes whose agent is taken to be away."""

    def __init__(self, server: Server, unresponsive: Collection[str]) -> None:
        super().__init__(cast(Api, server), _SETTINGS)
        jobs = View(server, JOBS, HyperParamJob.model_validate)
        trials = View(server, TRIALS, partial(parse_trial, registry=REGISTRY))
        pods = View(server, PODS, parse_pod)
        nodes = View(server, GPUNODES, GPUNode.model_validate)
        self.views: tuple[View[Any], ...] = (jobs, trials, pods, nodes)
        self._jobs, self._trials, self._pods, self._nodes = cast(Any, self.views)
        self.unresponsive = set(unresponsive)
        for view in self.views:
            view.receive()  # list before the first plan

    def _is_unresponsive(self, node: str) -> bool:
        return node in self.unresponsive


class Operator:
    """One process; when it is killed, another one is created. `rebalances`: it rebalances trials."""

    def __init__(
        self,
        server: Server,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        unresponsive: Collection[str],
        rebalances: bool,
    ) -> None:
        api = cast(Api, server)
        self._server = server
        self._clock = clock
        self._loop = loop
        self.caches = ModelWatchCaches(server, unresponsive)
        actors = Actors(
            Actuator(api, self.caches, PodRules("podium", "podium.dev/gpu"), _METRICS),
            Cleanup(api, self.caches.cluster_state, None),
            ReservationController(api, _SETTINGS, _METRICS),
            Rebalancer(api, _REBALANCING if rebalances else _SETTINGS),
            QueueController(api, 2.0, _METRICS),
        )
        self._reconciler = Reconciler(
            _SETTINGS, self.caches, FinalLogReader(api), actors, StatusWriter(api, 2.0, _METRICS), _METRICS
        )

    def reconcile(self, killed_after: int | None = None, unanswered_after: int | None = None) -> bool:
        """Reconcile once; return False if the process was killed.

        It is killed after `killed_after` calls of the server; one answer is lost after `unanswered_after` calls.
        """
        self._server.fuse, self._server.mute = killed_after, unanswered_after
        try:
            with self._with_clock():
                self._loop.run_until_complete(self._reconciler.reconcile())
        except KilledError:
            for task in asyncio.all_tasks(self._loop):  # calls concurrent with its last one fail as well
                self._loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            return False
        finally:
            self._server.fuse = self._server.mute = None
        return True

    @contextmanager
    def _with_clock(self) -> Iterator[None]:
        modules: tuple[Any, ...] = (watch_caches, actuator, postponed_actions)
        before, server_time = [module.time for module in modules], clock.now
        for module in modules:
            module.time = self._clock
        clock.now = self._clock.time
        try:
            yield
        finally:
            clock.now = server_time
            for module, real in zip(modules, before, strict=True):
                module.time = real
