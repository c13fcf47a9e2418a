"""The operator's one loop: mirror, plan, apply. Woken by every change, and at the latest when the plan asked to be.

A GPU waits for nobody's status: while a cycle makes pods and writes statuses, which takes a third of a second when
eight trials start on a busy machine, what agents say goes on to be answered with orders (`_orders_go_on`).

Level-based: a cycle looks at everything as it is and needs no memory of the one before, so it may fail at any point and
the next one goes on from what is there.
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
        await self._mirror.wait_synced()
        settle_memory()
        while True:
            self._changed.clear()
            wake_at: float | None = None
            try:
                wake_at = await self.once()
            except Exception:
                # the next cycle starts from the objects again; a cycle that ended for good would stop every search
                self._metrics.errors.inc()
                log.exception("cycle ended in an error; the next one follows")
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
        # changes come in bursts (a pod's start is five events): let a burst be one cycle
        await asyncio.sleep(self._settings.debounce_seconds)

    async def once(self) -> float | None:
        """One cycle; returns when the plan wants to be made again at the latest (seconds since the epoch)."""
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
        """Meanwhile, agents are answered. An order that is on its way is waited for at the end: the next cycle must
        know its epoch.
        """
        over = asyncio.Event()
        answering = asyncio.create_task(self._answer_agents(over))
        try:
            yield
        except asyncio.CancelledError:
            answering.cancel()  # there is no next cycle, and the API server may be away
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
                return  # the next cycle looks at it
            self._agents_spoke.clear()
            begun = time.monotonic()
            try:
                world = self._look()
                decided = self._decide(self._snapshot(world, observe(world)))
                # what is planned for a large cluster takes its time, and the statuses are to get on as well
                pause = max(self._settings.debounce_seconds, time.monotonic() - begun)
                await self._actuator.order_alone(world, decided.plan.actions)
            except Exception:
                self._metrics.errors.inc()
                log.exception("orders between two cycles ended in an error; the next cycle follows")

    async def _follow_up(
        self, world: World, sights: Mapping[TrialKey, Sight], snapshot: Snapshot, decided: Decided
    ) -> None:
        """What no GPU waits for: what is new, leases, and every status, those of jobs that were left out as well."""
        plan = decided.plan
        with self._metrics.cycle.labels("act").time():
            refused = await self._actuator.create(world, plan.actions)
            asked = {action.trial: action for action in plan.actions if isinstance(action, Migrate)}
            crowded_out = promises(snapshot).broken
            carrying = carryings(world, sights, asked, self._actuator.uncarried(), self._actuator.sent(), crowded_out)
            leased, self._lease_wake = await self._leasing.once(world, snapshot)
        with self._metrics.cycle.labels("describe").time():  # ranks are sentences once they are read
            places = {place.trial: place for place in plan.ranks}
            predicted, unpredicted = predict(snapshot)
            self._metrics.errors.inc(unpredicted)
        ends = {action.trial: action for action in plan.actions if isinstance(action, EndTrial)}
        ends |= {end.trial: end for end in refused}
        job_ends = {action.job: action for action in plan.actions if isinstance(action, EndJob)}
        for told in plan.actions:
            if isinstance(told, Requeue) and told.trial in places:
                # written before the pod is gone: its phase Requeued keeps the reason
                places[told.trial] = replace(places[told.trial], reason=told.reason, message=told.message)
        stays = self._actuator.stays()
        for trial, text in stays.items():
            if trial in places:  # with a requeue's reason, the end of its pod some day would be called Podium's own
                text = f"{places[trial].message} The API server keeps its pod: {text}"
                places[trial] = replace(places[trial], reason="PodDeletionRefused", message=text)
        for trial, text in self._actuator.refused().items():
            if trial in places:
                places[trial] = replace(places[trial], reason="PodRefused", message=text)
        with self._metrics.cycle.labels("report").time():
            levelled = self._leveller.levelled(world, stays)
            await self._statuses.write(
                world, sights, snapshot, places, ends, job_ends, predicted, leased, carrying, levelled, decided.left_out
            )
