"""Controller of GPU reservations: request reservation pods, mark and release unneeded ones, report to the jobs.

The reconciler calls it after the plan. `planning.slots.gpu_reservations` decides, and `yielding` finds the reservations
to give up for pods that the scheduler does not help. Such an end counts as a preemption. Names are deterministic and
deletions name a uid, so everything may be done twice. Only the number of consecutive preemptions and the pods that were
helped are remembered: a new operator starts with the shortest pause.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS, PODS, PRIORITY_CLASSES
from podium_core.domain.gpu_reservation import ReservationState
from podium_core.domain.keys import JobKey
from podium_core.domain.observe import retry_delay
from podium_core.domain.snapshot import Snapshot
from podium_core.planning.slots.gpu_reservations import (
    MarkUnneeded,
    Pool,
    PoolPreemptions,
    ReleaseReservation,
    RequestReservation,
    Reservation,
    plan_reservations,
)
from podium_core.planning.slots.gpu_yields import YieldPlan
from podium_operator.jobs.events import emit
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.reservation_state import ReservationPodState
from podium_operator.reservations.condition import ReservationCondition, reservation_condition
from podium_operator.reservations.demand import (
    PoolDemand,
    needs_gpus,
    pool_demands,
    pool_of,
    reservations_from,
)
from podium_operator.reservations.kueue_workloads import KueueWorkloads
from podium_operator.reservations.preemption_cost import (
    checkpoint_differs,
    cost_differs,
    last_checkpoints,
    preemption_costs,
)
from podium_operator.reservations.reservation_pod import (
    CHECKPOINT_ANNOTATION,
    COST_ANNOTATION,
    UNNEEDED_ANNOTATION,
    ReservationRules,
    make_reservation_pod,
)
from podium_operator.reservations.yielding import Yielding
from podium_operator.settings import OperatorSettings

MANAGER = "podium-operator"
GRACE_MARGIN = 10  # seconds beyond the longest grace period: the trials end after the reservation pod
NAMES_SHOWN = 3  # of pods in a message
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Refusal of a pool's reservation pod by the API server (a quota, a webhook); retries become less frequent."""

    message: str
    times: int
    retry_at: float


@dataclass(frozen=True, slots=True)
class _Preemption:
    """Last preempted reservation of a pool. `steps`: all steps that the namespace's trials had done by then."""

    preemptions: PoolPreemptions
    steps: float
    cause: str

    @property
    def retry_at(self) -> float:
        """Time before which no reservation is requested."""
        return self.preemptions.last + retry_delay(self.preemptions.consecutive)


class ReservationController:
    """Requests and releases reservations; with dedicated GPUs it releases those that exist."""

    def __init__(self, api: Api, settings: OperatorSettings, metrics: Metrics) -> None:
        self._api = api
        self._settings = settings
        self._metrics = metrics
        self._workloads = KueueWorkloads(api) if settings.reservation_priority_boost else None
        self._refused: dict[Pool, _Refusal] = {}
        self._preemptions: dict[Pool, _Preemption] = {}
        self._counted: set[str] = set()  # uids whose end was recorded
        self._released: set[str] = set()
        self._yielding = Yielding(api)
        self._yielded: dict[str, str] = {}  # the pod for which each reservation was given up, by uid
        self._seen: Mapping[str, ReservationPodState] | None = (
            None  # by uid, in the last reconcile; None: there was none yet
        )

    async def reconcile(
        self, cluster: ClusterState, snapshot: Snapshot
    ) -> tuple[Mapping[JobKey, ReservationCondition], float | None]:
        """Reconcile. Return each job's condition, and when to reconcile again if nothing happens before."""
        requests = self._settings.gpu_mode == "reservations"
        queue = self._settings.reservation_queue
        demand_by_pool = pool_demands(snapshot, self._settings.reservation_max, queue) if requests else {}
        demand = {pool: pool_demand.demand for pool, pool_demand in demand_by_pool.items()}
        reservations = reservations_from(cluster.reservations, cluster.nodes, cluster.now, cluster.unresponsive)
        await self._record_ends(cluster)
        yields = await self._yielding.plan(cluster, reservations) if requests else YieldPlan()
        reservations = await self._yield(cluster, reservations, yields)
        # a namespace that requests nothing any more is forgotten once its pause is over
        self._preemptions = {
            pool: one for pool, one in self._preemptions.items() if pool in demand or cluster.now < one.retry_at
        }
        preemptions = {pool: preemption.preemptions for pool, preemption in self._preemptions.items()}
        waits_for = _some_of(yields.waits_for)
        planned = plan_reservations(demand, reservations, preemptions, cluster.now, waits_for)
        requested = {action.pool for action in planned.actions if isinstance(action, RequestReservation)}
        self._refused = {pool: refused for pool, refused in self._refused.items() if pool in requested}
        by_name = {(one.pool.namespace, one.name): one for one in cluster.reservations}
        for action in planned.actions:
            if isinstance(action, RequestReservation):
                await self._request(cluster, action, demand_by_pool[action.pool])
            else:
                await self._change(by_name[action.reservation.pool.namespace, action.reservation.name], action)
        await self._mark_costs(cluster, snapshot)
        wake_times = [refused.retry_at for refused in self._refused.values()]
        wake_times += [at for at in (planned.wake_at, yields.wake_at) if at is not None]
        self._count(reservations)
        conditions = {
            pool: reservation_condition(
                wanted,
                [reservation for reservation in reservations if reservation.pool == pool],
                self._refused[pool].message if pool in self._refused else "",
                preemption.cause
                if (preemption := self._preemptions.get(pool)) is not None and cluster.now < preemption.retry_at
                else "",
                next((one.unscheduled for one in cluster.reservations if one.pool == pool and one.unscheduled), ""),
                waits_for,
            )
            for pool, wanted in demand.items()
        }
        by_job = {
            job.key: conditions[pool]
            for job in snapshot.jobs
            if needs_gpus(job) and (pool := pool_of(job, queue)) in conditions
        }
        return by_job, min(wake_times, default=None)

    def refused(self) -> Mapping[Pool, str]:
        """Return the pools whose reservation pod cannot be created for now, with the server's message."""
        return {pool: refusal.message for pool, refusal in self._refused.items()}

    async def _yield(
        self, cluster: ClusterState, reservations: tuple[Reservation, ...], yields: YieldPlan
    ) -> tuple[Reservation, ...]:
        """Delete the reservation pods that are given up; return the reservations with their new states."""
        pod_of = {uid: record.pod for record in yields.records.values() for uid in record.given}
        ends: set[tuple[str, str]] = set()
        for one in cluster.reservations:
            if one.uid not in pod_of or one.deleting or one.ended:
                continue
            if one.uid not in self._yielded:
                self._metrics.reservation_events.labels("yielded").inc()
                log.info("GPU reservation %s is given up: pod %s waits for a GPU", one.path, pod_of[one.uid])
            self._yielded[one.uid] = pod_of[one.uid]
            ends.add((one.pool.namespace, one.name))
            await self._delete(one)
        return tuple(
            replace(one, state=ReservationState.TERMINATING) if (one.pool.namespace, one.name) in ends else one
            for one in reservations
        )

    async def _record_ends(self, cluster: ClusterState) -> None:
        """Record each preemption once, and delete reservation pods that ended by themselves."""
        there = {one.uid: one for one in cluster.reservations}
        if self._seen is None:
            # an earlier operator may have released these; the cluster marks preempted pods itself
            self._released |= {one.uid for one in cluster.reservations if one.deleting and not one.preempted_by}
        known = self._counted | self._released
        vanished = [one for uid, one in (self._seen or {}).items() if uid not in there and uid not in known]
        self._seen = there
        self._counted &= there.keys()
        self._released &= there.keys()
        for one in vanished:  # ended and gone since the last reconcile
            await self._record_preemption(cluster, one)
        self._yielded = {uid: pod for uid, pod in self._yielded.items() if uid in there}
        for one in cluster.reservations:
            if one.ended and not one.deleting:
                await self._delete(one)
            if one.uid in self._counted or not (one.deleting or one.ended):
                continue
            self._counted.add(one.uid)
            if one.uid not in self._released:
                await self._record_preemption(cluster, one)

    async def _record_preemption(self, cluster: ClusterState, one: ReservationPodState) -> None:
        steps = sum(t.status.last_step or 0.0 for t in cluster.trials if t.metadata.namespace == one.pool.namespace)
        before = self._preemptions.get(one.pool)
        consecutive = 1
        if before is not None and steps <= before.steps:
            # none was requested within the pause: this one was lost together with the last one, not after it
            consecutive = before.preemptions.consecutive + (cluster.now >= before.retry_at)
        pod = self._yielded.get(one.uid)
        cause = one.preempted_by or ("it has ended" if one.ended else "it was deleted")
        if pod is not None:
            cause = f"Podium gave it up for pod {pod}, which waits for a GPU"
        self._preemptions[one.pool] = _Preemption(PoolPreemptions(consecutive, cluster.now), steps, cause)
        self._metrics.reservation_events.labels("preempted").inc()
        pause = retry_delay(consecutive)
        text = (
            f"GPU reservation {one.name} was preempted ({cause}). Its trials are suspended or requeued; Podium "
            f"requests another one in {pause:g} s{'' if pod is None else ', once that pod has a node'}."
        )
        log.info("%s: %s", one.pool.namespace, text)
        for job in cluster.jobs:
            if job.metadata.namespace == one.pool.namespace and job.status.phase in ("Pending", "Running"):
                reason = "ReservationPreempted" if pod is None else "ReservationYielded"
                await emit(self._api, JOBS, job.metadata, reason, text, "Warning")

    async def _request(self, cluster: ClusterState, request: RequestReservation, pool_demand: PoolDemand) -> None:
        refused = self._refused.get(request.pool)
        if refused is not None and cluster.now < refused.retry_at:
            return
        jobs = [job for job in cluster.jobs if job.metadata.namespace == request.pool.namespace]
        longest = max((job.spec.suspension.grace_period_seconds for job in jobs), default=0)
        grace = max(self._settings.reservation_grace_seconds, longest + GRACE_MARGIN)
        try:
            await self._create(request, grace, pool_demand)
        except ApiError as error:
            if error.conflict:
                return  # the pod exists already, and the cache does not show it yet
            times = 1 if refused is None else refused.times + 1
            self._refused[request.pool] = _Refusal(error.message, times, cluster.now + retry_delay(times))
            self._metrics.reservation_events.labels("refused").inc()
            log.warning("GPU reservation %s/%s is refused: %s", request.pool.namespace, request.name, error)
            return
        self._refused.pop(request.pool, None)
        self._metrics.reservation_events.labels("requested").inc()
        log.info("GPU reservation %s/%s is requested: %s", request.pool.namespace, request.name, request.message)

    async def _create(self, request: RequestReservation, grace: int, pool_demand: PoolDemand) -> None:
        """Create a pod owned by the chart's PriorityClass: `helm uninstall` then removes it without an operator."""
        name = self._settings.reservation_priority_class
        owner = await self._api.get(PRIORITY_CLASSES, name)
        rules = ReservationRules(
            image=self._settings.image or "",
            priority_class=name,
            priority_class_uid=owner["metadata"]["uid"],
            node_selector=self._settings.reservation_node_selector,
        )
        manifest = make_reservation_pod(
            request.name,
            request.pool,
            rules,
            nodes=pool_demand.nodes,
            spread="together" if pool_demand.together else "apart" if pool_demand.apart else None,
            grace_seconds=grace,
        )
        await self._api.create(PODS, manifest, manager=MANAGER)

    async def _change(self, pod: ReservationPodState, action: ReleaseReservation | MarkUnneeded) -> None:
        if isinstance(action, ReleaseReservation):
            self._released.add(pod.uid)
            self._metrics.reservation_events.labels("released").inc()
            log.info("GPU reservation %s is released: %s: %s", pod.path, action.reason, action.message)
            await self._delete(pod)
            return
        await self._annotate(pod, {UNNEEDED_ANNOTATION: _moment(action.unneeded_since)})

    async def _mark_costs(self, cluster: ClusterState, snapshot: Snapshot) -> None:
        """Write on each reservation pod when its trials last checkpointed, and what its preemption would cost."""
        pods = cluster.reservations
        if not pods:  # in the mode `dedicated` there are none, but ten thousand trials
            return
        suspendable = {job.key for job in snapshot.jobs if job.abilities.suspendable}
        times = last_checkpoints(pods, cluster.nodes, cluster.trials)
        costs = preemption_costs(pods, cluster.nodes, cluster.trials, suspendable)
        for pod in pods:
            saved, cost = times.get(pod.uid), costs.get(pod.uid)
            if not pod.over and (
                checkpoint_differs(pod.last_checkpoint, saved) or cost_differs(pod.preemption_cost, cost)
            ):
                text = None if cost is None else f"{cost:.0f}"
                await self._annotate(pod, {CHECKPOINT_ANNOTATION: _moment(saved), COST_ANNOTATION: text})
        if self._workloads is not None:
            await self._workloads.update(pods, costs, cluster.now)

    async def _annotate(self, pod: ReservationPodState, annotations: Mapping[str, str | None]) -> None:
        """Write annotations, or remove those without a value."""
        about = {"uid": pod.uid, "annotations": annotations}
        try:
            await self._api.patch(PODS, pod.name, pod.pool.namespace, {"metadata": about}, manager=MANAGER)
        except ApiError as error:
            log.warning("GPU reservation %s was not marked: %s", pod.path, error)

    async def _delete(self, pod: ReservationPodState) -> None:
        try:
            await self._api.delete(PODS, pod.name, pod.pool.namespace, uid=pod.uid)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                log.warning("GPU reservation %s was not deleted: %s", pod.path, error)

    def _count(self, reservations: Iterable[Reservation]) -> None:
        states = Counter(reservation.state for reservation in reservations)
        for state in ReservationState:
            self._metrics.reservations.labels(state.value).set(states[state])


def _moment(at: float | None) -> str | None:
    """Return a time as the text of an annotation."""
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()


def _some_of(names: Sequence[str]) -> str:
    """Return the first names as text."""
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
