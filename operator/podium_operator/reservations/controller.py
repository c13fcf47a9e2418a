"""Controller of GPU reservations: request reservation pods, mark and release unneeded ones, report to the jobs.

The reconciler calls it after the plan. `planning.gpu_reservations` decides. Names are deterministic and deletions name
a uid, so everything may be done twice. Only the number of consecutive preemptions is remembered: a new operator starts
with the shortest pause.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS, PODS, PRIORITY_CLASSES
from podium_core.domain.gpu_reservation import ReservationState
from podium_core.domain.observe import retry_delay
from podium_core.domain.snapshot import JobKey, Snapshot
from podium_core.planning.gpu_reservations import (
    MarkUnneeded,
    Pool,
    PoolPreemptions,
    ReleaseReservation,
    RequestReservation,
    Reservation,
    plan_reservations,
)
from podium_operator.jobs.events import emit
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import World
from podium_operator.observe.reservation_state import SeenLease
from podium_operator.reservations.condition import Leased, leased
from podium_operator.reservations.demand import Wish, asks_for_gpus, leases_of, pool_of, wishes
from podium_operator.reservations.reservation_pod import UNNEEDED_ANNOTATION, make_lease_pod
from podium_operator.settings import OperatorSettings

MANAGER = "podium-operator"
GRACE_MARGIN = 10  # seconds beyond the longest grace period: the trials end after the reservation pod
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Refused:
    """Refusal of a pool's reservation pod by the API server (a quota, a webhook); retries become less frequent."""

    message: str
    times: int
    again_at: float


@dataclass(frozen=True, slots=True)
class _Taken:
    """Last preempted reservation of a pool. `steps`: all steps that the namespace's trials had done by then."""

    evicted: PoolPreemptions
    steps: float
    by: str

    @property
    def again_at(self) -> float:
        """Time before which no reservation is requested."""
        return self.evicted.last + retry_delay(self.evicted.consecutive)


class Leasing:
    """Requests and releases reservations; with dedicated GPUs it releases those that exist."""

    def __init__(self, api: Api, settings: OperatorSettings, metrics: Metrics) -> None:
        self._api = api
        self._settings = settings
        self._metrics = metrics
        self._refused: dict[Pool, _Refused] = {}
        self._taken: dict[Pool, _Taken] = {}
        self._counted: set[str] = set()  # uids whose end was recorded
        self._given_back: set[str] = set()
        self._seen: Mapping[str, SeenLease] | None = None  # by uid, in the last reconcile; None: there was none yet

    async def once(self, world: World, snapshot: Snapshot) -> tuple[Mapping[JobKey, Leased], float | None]:
        """Reconcile. Return each job's condition, and when to reconcile again if nothing happens before."""
        asks = self._settings.gpu_mode == "reservations"
        wished = wishes(snapshot, self._settings.reservation_max) if asks else {}
        demand = {pool: wish.demand for pool, wish in wished.items()}
        leases = leases_of(world.leases, world.nodes, world.now, world.silent)
        await self._look_at_ends(world)
        # a namespace that requests nothing any more is forgotten once its pause is over
        self._taken = {pool: one for pool, one in self._taken.items() if pool in demand or world.now < one.again_at}
        evicted = {pool: taken.evicted for pool, taken in self._taken.items()}
        planned = plan_reservations(demand, leases, evicted, world.now)
        asked = {action.pool for action in planned.actions if isinstance(action, RequestReservation)}
        self._refused = {pool: refused for pool, refused in self._refused.items() if pool in asked}
        by_name = {(one.pool.namespace, one.name): one for one in world.leases}
        for action in planned.actions:
            if isinstance(action, RequestReservation):
                await self._ask(world, action, wished[action.pool])
            else:
                await self._change(by_name[action.lease.pool.namespace, action.lease.name], action)
        wakes = [refused.again_at for refused in self._refused.values()]
        wakes += [planned.wake_at] if planned.wake_at is not None else []
        self._count(leases)
        words = {
            pool: leased(
                wanted,
                [lease for lease in leases if lease.pool == pool],
                self._refused[pool].message if pool in self._refused else "",
                taken.by if (taken := self._taken.get(pool)) is not None and world.now < taken.again_at else "",
                next((one.unscheduled for one in world.leases if one.pool == pool and one.unscheduled), ""),
            )
            for pool, wanted in demand.items()
        }
        told = {job.key: words[pool] for job in snapshot.jobs if asks_for_gpus(job) and (pool := pool_of(job)) in words}
        return told, min(wakes, default=None)

    async def _look_at_ends(self, world: World) -> None:
        """Record each preemption once, and delete reservation pods that ended by themselves."""
        there = {one.uid: one for one in world.leases}
        if self._seen is None:
            # an earlier operator may have released these; the cluster marks preempted pods itself
            self._given_back |= {one.uid for one in world.leases if one.deleting and not one.taken}
        known = self._counted | self._given_back
        between = [one for uid, one in (self._seen or {}).items() if uid not in there and uid not in known]
        self._seen = there
        self._counted &= there.keys()
        self._given_back &= there.keys()
        for one in between:  # ended and gone since the last reconcile
            await self._was_taken(world, one)
        for one in world.leases:
            if one.over and not one.deleting:
                await self._delete(one)
            if one.uid in self._counted or not (one.deleting or one.over):
                continue
            self._counted.add(one.uid)
            if one.uid not in self._given_back:
                await self._was_taken(world, one)

    async def _was_taken(self, world: World, one: SeenLease) -> None:
        steps = sum(t.status.last_step or 0.0 for t in world.trials if t.metadata.namespace == one.pool.namespace)
        before = self._taken.get(one.pool)
        consecutive = 1
        if before is not None and steps <= before.steps:
            # none was requested within the pause: this one was lost together with the last one, not after it
            consecutive = before.evicted.consecutive + (world.now >= before.again_at)
        by = one.taken or ("it has ended" if one.over else "it was deleted")
        self._taken[one.pool] = _Taken(PoolPreemptions(consecutive, world.now), steps, by)
        self._metrics.lease_events.labels("preempted").inc()
        again = retry_delay(consecutive)
        text = (
            f"GPU reservation {one.name} was preempted ({by}). Its trials are suspended or requeued; Podium requests "
            f"another one in {again:g} s."
        )
        log.info("%s: %s", one.pool.namespace, text)
        for job in world.jobs:
            if job.metadata.namespace == one.pool.namespace and job.status.phase in ("Pending", "Running"):
                await emit(self._api, JOBS, job.metadata, "ReservationPreempted", text, "Warning")

    async def _ask(self, world: World, ask: RequestReservation, wish: Wish) -> None:
        refused = self._refused.get(ask.pool)
        if refused is not None and world.now < refused.again_at:
            return
        jobs = [job for job in world.jobs if job.metadata.namespace == ask.pool.namespace]
        longest = max((job.spec.suspension.grace_period_seconds for job in jobs), default=0)
        grace = max(self._settings.reservation_grace_seconds, longest + GRACE_MARGIN)
        try:
            await self._create(ask, grace, wish)
        except ApiError as error:
            if error.conflict:
                return  # the pod exists already, and the cache does not show it yet
            times = 1 if refused is None else refused.times + 1
            self._refused[ask.pool] = _Refused(error.message, times, world.now + retry_delay(times))
            self._metrics.lease_events.labels("refused").inc()
            log.warning("GPU reservation %s/%s is refused: %s", ask.pool.namespace, ask.name, error)
            return
        self._refused.pop(ask.pool, None)
        self._metrics.lease_events.labels("requested").inc()
        log.info("GPU reservation %s/%s is requested: %s", ask.pool.namespace, ask.name, ask.message)

    async def _create(self, ask: RequestReservation, grace: int, wish: Wish) -> None:
        """Create a pod owned by the chart's PriorityClass: `helm uninstall` then removes it without an operator."""
        name = self._settings.reservation_priority_class
        owner = await self._api.get(PRIORITY_CLASSES, name)
        manifest = make_lease_pod(
            ask.name,
            ask.pool,
            image=self._settings.image or "",
            priority_class=name,
            owner_uid=owner["metadata"]["uid"],
            node_selector=self._settings.reservation_node_selector,
            nodes=wish.nodes,
            together=wish.together,
            grace_seconds=grace,
        )
        await self._api.create(PODS, manifest, manager=MANAGER)

    async def _change(self, seen: SeenLease, action: ReleaseReservation | MarkUnneeded) -> None:
        if isinstance(action, ReleaseReservation):
            self._given_back.add(seen.uid)
            self._metrics.lease_events.labels("released").inc()
            log.info("GPU reservation %s is released: %s: %s", seen.path, action.reason, action.message)
            await self._delete(seen)
            return
        since = action.unneeded_since
        text = None if since is None else datetime.fromtimestamp(since, UTC).isoformat()
        about = {"uid": seen.uid, "annotations": {UNNEEDED_ANNOTATION: text}}
        try:
            await self._api.patch(PODS, seen.name, seen.pool.namespace, {"metadata": about}, manager=MANAGER)
        except ApiError as error:
            log.warning("GPU reservation %s was not marked: %s", seen.path, error)

    async def _delete(self, seen: SeenLease) -> None:
        try:
            await self._api.delete(PODS, seen.name, seen.pool.namespace, uid=seen.uid)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                log.warning("GPU reservation %s was not deleted: %s", seen.path, error)

    def _count(self, leases: Iterable[Reservation]) -> None:
        states = Counter(lease.state for lease in leases)
        for state in ReservationState:
            self._metrics.leases.labels(state.value).set(states[state])
