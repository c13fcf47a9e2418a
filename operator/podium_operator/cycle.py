"""The operator's one loop: mirror, plan, apply. Woken by every change, and at the latest when the plan asked to be.

Level-based: a cycle looks at everything as it is and needs no memory of the one before, so it may fail at any point and
the next one goes on from what is there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

from podium.domain.actions import Carry, EndJob, EndTrial, Requeue
from podium.planning.planner import plan
from podium.planning.predicting import predictions
from podium.planning.promises import promises
from podium_operator.actuator import Actuator
from podium_operator.carrying import carryings
from podium_operator.cleanup import Cleanup
from podium_operator.last_words import LastWords
from podium_operator.leasing import Leasing
from podium_operator.leveller import Leveller
from podium_operator.metrics import Metrics
from podium_operator.mirror import Mirror
from podium_operator.observed import observe
from podium_operator.requeue_costs import RequeueCosts
from podium_operator.settings import OperatorSettings
from podium_operator.snapshot import build_snapshot
from podium_operator.statuses import Statuses

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
        self._changed = asyncio.Event()
        self.last = time.monotonic()
        mirror.subscribe(self._changed.set)

    async def run(self) -> None:
        await self._mirror.wait_synced()
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
        longest = self._settings.cycle_seconds
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
            world = replace(self._mirror.world(), unread=self._last_words.empty)
            self._last_words.read(world)
            self._cleanup.begin(world)
            sights = observe(world)
            self._requeue_costs.look(world, sights)
            rules, no_room = self._leveller.rules, self._leveller.no_room(world.now)
            snapshot = build_snapshot(world, sights, self._requeue_costs.mean, rules, no_room)
            decided = plan(snapshot)
        with self._metrics.cycle.labels("act").time():
            decided = replace(decided, actions=await self._leveller.admit(world, sights, decided.actions))
            refused = await self._actuator.carry_out(world, decided.actions)
            asked = {action.trial: action for action in decided.actions if isinstance(action, Carry)}
            crowded_out = promises(snapshot).broken
            carrying = carryings(world, sights, asked, self._actuator.uncarried(), self._actuator.sent(), crowded_out)
            leased, lease_wake = await self._leasing.once(world, snapshot)
        with self._metrics.cycle.labels("tell").time():  # ranks are sentences once they are read
            places = {place.trial: place for place in decided.ranks}
            predicted = predictions(snapshot)
        ends = {action.trial: action for action in decided.actions if isinstance(action, EndTrial)}
        ends |= {end.trial: end for end in refused}
        job_ends = {action.job: action for action in decided.actions if isinstance(action, EndJob)}
        for told in decided.actions:
            if isinstance(told, Requeue) and told.trial in places:
                # written before the pod is gone: its phase Requeued keeps the reason
                places[told.trial] = replace(places[told.trial], reason=told.reason, message=told.message)
        for trial, text in self._actuator.refused().items():
            if trial in places:
                places[trial] = replace(places[trial], reason="PodRefused", message=text)
        with self._metrics.cycle.labels("report").time():
            levelled = self._leveller.levelled(world)
            await self._statuses.write(
                world, sights, snapshot, places, ends, job_ends, predicted, leased, carrying, levelled
            )
        return min((at for at in (decided.wake_at, lease_wake) if at is not None), default=None)
