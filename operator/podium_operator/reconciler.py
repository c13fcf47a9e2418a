"""The operator's loop: observe, plan, act, report. Every change wakes it, and the plan names the latest time.

No GPU waits for a status. While a reconcile creates pods and writes statuses, the operator still answers the agents'
reports with run queues (`_answering_agents`). When eight trials start on a busy machine, that phase takes a third of a
second.

Reconciling is level-based: a reconcile reads the complete state and needs no memory of the one before. It may fail at
any point; the next one continues from the objects that exist.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from podium_cluster.garbage_collection import settle_memory
from podium_core.domain.actions import EndJob, EndTrial, Migrate, Requeue
from podium_core.domain.snapshot import Snapshot, TrialKey
from podium_core.planning.promised_slots import promises
from podium_operator.act.actuator import Actuator
from podium_operator.act.migration import carryings
from podium_operator.act.rebalancing import Leveller
from podium_operator.cleanup.deleted_jobs import Cleanup
from podium_operator.guarded_plan import Decided, decide, predict
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import World
from podium_operator.observe.final_log_read import LastWords
from podium_operator.observe.observation import Sight, observe
from podium_operator.observe.requeue_costs import RequeueCosts
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.observe.watch_caches import Mirror
from podium_operator.report.status_writer import Statuses
from podium_operator.reservations.controller import Leasing
from podium_operator.settings import OperatorSettings

SHORTEST_SLEEP = 0.05
log = logging.getLogger(__name__)


class Cycle:
    """The operator's loop, made of the parts that observe, plan, act and report."""

    def __init__(
        self,
        settings: OperatorSettings,
        mirror: Mirror,
        actuator: Actuator,
        statuses: Statuses,
        last_words: LastWords,
        cleanup: Cleanup,
        metrics: Metrics,
        leasing: Leasing,
        leveller: Leveller,
    ) -> None:
        self._settings = settings
        self._mirror = mirror
        self._actuator = actuator
        self._statuses = statuses
        self._last_words = last_words
        self._cleanup = cleanup
        self._metrics = metrics
        self._leasing = leasing
        self._leveller = leveller
        self._requeue_costs = RequeueCosts()
        self._lease_wake: float | None = None
        self._changed = asyncio.Event()
        self._agents_spoke = asyncio.Event()
        self.last = time.monotonic()
        mirror.subscribe(self._changed.set)
        mirror.subscribe_nodes(self._agents_spoke.set)

    async def run(self) -> None:
        """Reconcile until the task is cancelled."""
        await self._mirror.wait_synced()
        settle_memory()
        while True:
            self._changed.clear()
            wake_at: float | None = None
            try:
                wake_at = await self.once()
            except Exception:
                # the next reconcile starts from the objects again; if the loop ended, every search would stop
                self._metrics.errors.inc()
                log.exception("a reconcile ended in an error; the next one follows")
            self.last = time.monotonic()
            await self._sleep(wake_at)

    async def _sleep(self, wake_at: float | None) -> None:
        longest = self._settings.reconcile_seconds
        if wake_at is not None:
            longest = min(longest, max(SHORTEST_SLEEP, wake_at - time.time()))
        try:
            await asyncio.wait_for(self._changed.wait(), longest)
        except TimeoutError:
            return
        # changes come in bursts (a pod's start is five events): handle a burst in one reconcile
        await asyncio.sleep(self._settings.debounce_seconds)

    async def once(self) -> float | None:
        """Reconcile once.

        Return the latest time of the next reconcile (seconds since the epoch), None for any.
        """
        with self._metrics.cycle.labels("plan").time():
            self._agents_spoke.clear()
            world = self._look()
            self._last_words.read(world)
            self._cleanup.begin(world)
            sights = observe(world)
            self._requeue_costs.look(world, sights)
            snapshot = self._snapshot(world, sights)
            decided = self._decide(snapshot)
        with self._metrics.cycle.labels("run_queues").time():
            actions = await self._leveller.admit(world, sights, decided.plan.actions, self._actuator.rests())
            decided = replace(decided, plan=replace(decided.plan, actions=actions))
            await self._actuator.order(world, actions)
        async with self._orders_go_on():
            await self._follow_up(world, sights, snapshot, decided)
        return min((at for at in (decided.plan.wake_at, self._lease_wake) if at is not None), default=None)

    def _look(self) -> World:
        return replace(self._mirror.world(), unread=self._last_words.empty)

    def _snapshot(self, world: World, sights: Mapping[TrialKey, Sight]) -> Snapshot:
        rules, no_room = self._leveller.rules, self._leveller.no_room(world.now)
        return build_snapshot(world, sights, self._requeue_costs.mean, rules, no_room)

    def _decide(self, snapshot: Snapshot) -> Decided:
        decided = decide(snapshot)
        self._metrics.errors.inc(len(decided.left_out))
        return decided

    @asynccontextmanager
    async def _orders_go_on(self) -> AsyncIterator[None]:
        """Answer agents with run queues while the body runs.

        At the end, wait for a run queue that is being written: the next reconcile must know its epoch.
        """
        over = asyncio.Event()
        answering = asyncio.create_task(self._answer_agents(over))
        try:
            yield
        except asyncio.CancelledError:
            answering.cancel()  # no further reconcile follows, and the API server may be unreachable
            raise
        finally:
            over.set()
            self._agents_spoke.set()
            await answering

    async def _answer_agents(self, over: asyncio.Event) -> None:
        pause = self._settings.debounce_seconds
        while True:
            await self._agents_spoke.wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), pause)
            if over.is_set():
                return  # the next reconcile handles it
            self._agents_spoke.clear()
            begun = time.monotonic()
            try:
                world = self._look()
                decided = self._decide(self._snapshot(world, observe(world)))
                # planning for a large cluster takes time, and writing the statuses must make progress as well
                pause = max(self._settings.debounce_seconds, time.monotonic() - begun)
                await self._actuator.order_alone(world, decided.plan.actions)
            except Exception:
                self._metrics.errors.inc()
                log.exception("writing run queues between two reconciles ended in an error; the next reconcile follows")

    async def _follow_up(
        self, world: World, sights: Mapping[TrialKey, Sight], snapshot: Snapshot, decided: Decided
    ) -> None:
        """Create objects, manage reservations and write every status, including those of jobs that were left out."""
        plan = decided.plan
        with self._metrics.cycle.labels("act").time():
            refused = await self._actuator.create(world, plan.actions)
            asked = {action.trial: action for action in plan.actions if isinstance(action, Migrate)}
            crowded_out = promises(snapshot).broken
            carrying = carryings(world, sights, asked, self._actuator.uncarried(), self._actuator.sent(), crowded_out)
            leased, self._lease_wake = await self._leasing.once(world, snapshot)
        with self._metrics.cycle.labels("describe").time():  # the plan builds the sentences of its ranks on first use
            places = {place.trial: place for place in plan.ranks}
            predicted, unpredicted = predict(snapshot)
            self._metrics.errors.inc(unpredicted)
        ends = {action.trial: action for action in plan.actions if isinstance(action, EndTrial)}
        ends |= {end.trial: end for end in refused}
        job_ends = {action.job: action for action in plan.actions if isinstance(action, EndJob)}
        for told in plan.actions:
            if isinstance(told, Requeue) and told.trial in places:
                # written before the pod is gone: the phase Requeued keeps the reason
                places[told.trial] = replace(places[told.trial], reason=told.reason, message=told.message)
        stays = self._actuator.stays()
        for trial, text in stays.items():
            if trial in places:  # with a requeue's reason, a later end of the pod would be attributed to Podium
                text = f"{places[trial].message} The API server did not delete its pod: {text}"
                places[trial] = replace(places[trial], reason="PodDeletionRefused", message=text)
        for trial, text in self._actuator.refused().items():
            if trial in places:
                places[trial] = replace(places[trial], reason="PodRefused", message=text)
        with self._metrics.cycle.labels("report").time():
            levelled = self._leveller.levelled(world, stays)
            await self._statuses.write(
                world, sights, snapshot, places, ends, job_ends, predicted, leased, carrying, levelled, decided.left_out
            )
