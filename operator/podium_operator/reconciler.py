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
from dataclasses import dataclass, replace

from podium_cluster import clock
from podium_cluster.component.garbage_collection import tune_garbage_collector
from podium_cluster.component.logs import about
from podium_core.curves.prediction.final_value import Forecast, predictions
from podium_core.domain.actions import EndJob, EndTrial, Migrate, Plan, Requeue
from podium_core.domain.gpu_queue import QueueShare
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.snapshot import Snapshot
from podium_core.planning.planner import decide
from podium_core.planning.ranking import RankingError
from podium_core.planning.slots.promised_slots import promises
from podium_operator.act.actuator import Actuator
from podium_operator.act.migration import MigrationNews, migrations_to_store
from podium_operator.act.rebalancing import Rebalancer
from podium_operator.cleanup.deleted_jobs import Cleanup
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.final_log_read import FinalLogReader
from podium_operator.observe.observation import Observation, observe
from podium_operator.observe.requeue_costs import RequeueCosts
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.queues.controller import QueueController, job_queues
from podium_operator.report import gauges
from podium_operator.report.status_writer import Report, StatusWriter
from podium_operator.reservations.controller import ReservationController
from podium_operator.settings import OperatorSettings

MIN_SLEEP_SECONDS = 0.05
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GuardedPlan:
    """Plan, and the jobs that were left out of it."""

    plan: Plan
    left_out: Mapping[JobKey, str]  # the reason, for people
    shares: tuple[QueueShare, ...] = ()  # standing of each queue


def plan_guarded(snapshot: Snapshot) -> GuardedPlan:
    """Return the plan.

    A job whose trials cannot be ranked is left out: its pods stay, and the other jobs continue.
    """
    left_out: dict[JobKey, str] = {}
    while True:
        try:
            decision = decide(snapshot)
            return GuardedPlan(decision.plan, left_out, decision.shares)
        except RankingError as error:
            with about(namespace=error.job.namespace, job=error.job.name):
                log.exception("job %s/%s is left unchanged: %s", *error.job, error)
            left_out[error.job] = (
                f"{error} ({type(error.__cause__).__name__}; read the traceback in the operator's log)"
            )
            snapshot = replace(snapshot, jobs=tuple(job for job in snapshot.jobs if job.key != error.job))


def predict(snapshot: Snapshot) -> tuple[Mapping[TrialKey, Forecast], int]:
    """Return the forecast of each trial's final value and the number of jobs whose forecast failed."""
    forecasts: dict[TrialKey, Forecast] = {}
    failed = 0
    for job in snapshot.jobs:
        try:
            forecasts.update(predictions(job, snapshot))
        except Exception:  # a bug in Podium; the other statuses do not suffer from it
            failed += 1
            with about(namespace=job.key.namespace, job=job.key.name):
                log.exception("job %s/%s: the final values of its trials could not be predicted", *job.key)
    return forecasts, failed


@dataclass(frozen=True, slots=True)
class Actors:
    """The parts that change the cluster."""

    actuator: Actuator
    cleanup: Cleanup
    reservation_controller: ReservationController
    rebalancer: Rebalancer
    queue_controller: QueueController


class Reconciler:
    """The operator's loop, made of the parts that observe, plan, act and report."""

    def __init__(
        self,
        settings: OperatorSettings,
        caches: WatchCaches,
        final_log_reader: FinalLogReader,
        actors: Actors,
        status_writer: StatusWriter,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._caches = caches
        self._final_log_reader = final_log_reader
        self._actuator = actors.actuator
        self._cleanup = actors.cleanup
        self._reservation_controller = actors.reservation_controller
        self._rebalancer = actors.rebalancer
        self._queue_controller = actors.queue_controller
        self._status_writer = status_writer
        self._metrics = metrics
        self._requeue_costs = RequeueCosts()
        self._reservations_wake_at: float | None = None
        self._changed = asyncio.Event()
        self._agents_reported = asyncio.Event()
        self.last = time.monotonic()
        caches.subscribe(self._changed.set)
        caches.subscribe_nodes(self._agents_reported.set)

    async def run(self) -> None:
        """Reconcile until the task is cancelled."""
        await self._caches.wait_synced()
        tune_garbage_collector()
        while True:
            self._changed.clear()
            wake_at: float | None = None
            try:
                wake_at = await self.reconcile()
            except Exception:
                # the next reconcile starts from the objects again; if the loop ended, every search would stop
                self._metrics.errors.inc()
                log.exception("a reconcile ended in an error; the next one follows")
            self.last = time.monotonic()
            await self._sleep(wake_at)

    async def _sleep(self, wake_at: float | None) -> None:
        longest = self._settings.reconcile_seconds
        if wake_at is not None:
            longest = min(longest, max(MIN_SLEEP_SECONDS, wake_at - clock.now()))
        try:
            await asyncio.wait_for(self._changed.wait(), longest)
        except TimeoutError:
            return
        # changes come in bursts (a pod's start is five events): handle a burst in one reconcile
        await asyncio.sleep(self._settings.debounce_seconds)

    async def reconcile(self) -> float | None:
        """Reconcile once.

        Return the latest time of the next reconcile (seconds since the epoch), None for any.
        """
        with self._metrics.part_seconds.labels("plan").time():
            self._agents_reported.clear()
            cluster = self._read_state()
            self._final_log_reader.read(cluster)
            self._cleanup.start(cluster)
            observations = observe(cluster)
            self._requeue_costs.update(cluster, observations)
            snapshot = self._snapshot(cluster, observations)
            guarded = self._plan(snapshot)
            self._queue_controller.record(cluster, snapshot, guarded.shares)
        with self._metrics.part_seconds.labels("run_queues").time():
            actions = await self._rebalancer.admit(
                cluster, observations, guarded.plan.actions, self._actuator.in_backoff()
            )
            guarded = replace(guarded, plan=replace(guarded.plan, actions=actions))
            await self._actuator.write_run_queues(cluster, actions)
        async with self._answering_agents():
            await self._act_and_report(cluster, observations, snapshot, guarded)
        return min((at for at in (guarded.plan.wake_at, self._reservations_wake_at) if at is not None), default=None)

    def _read_state(self) -> ClusterState:
        return replace(self._caches.cluster_state(), logs_without_value=self._final_log_reader.without_value)

    def _snapshot(self, cluster: ClusterState, observations: Mapping[TrialKey, Observation]) -> Snapshot:
        rules, full_nodes = self._rebalancer.rules, self._rebalancer.full_nodes(cluster.now)
        queues = self._queue_controller.views(cluster)
        snapshot = build_snapshot(cluster, observations, self._requeue_costs.mean, rules, full_nodes, queues)
        return replace(snapshot, reserves_gpus=self._settings.gpu_mode == "reservations")

    def _plan(self, snapshot: Snapshot) -> GuardedPlan:
        guarded = plan_guarded(snapshot)
        self._metrics.errors.inc(len(guarded.left_out))
        return guarded

    @asynccontextmanager
    async def _answering_agents(self) -> AsyncIterator[None]:
        """Answer agents with run queues while the body runs.

        At the end, wait for a run queue that is being written: the next reconcile must know its epoch.
        """
        done = asyncio.Event()
        answers = asyncio.create_task(self._answer_agents(done))
        try:
            yield
        except asyncio.CancelledError:
            answers.cancel()  # no further reconcile follows, and the API server may be unreachable
            raise
        finally:
            done.set()
            self._agents_reported.set()
            await answers

    async def _answer_agents(self, done: asyncio.Event) -> None:
        pause = self._settings.debounce_seconds
        while True:
            await self._agents_reported.wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), pause)
            if done.is_set():
                return  # the next reconcile handles it
            self._agents_reported.clear()
            start = time.monotonic()
            try:
                cluster = self._read_state()
                guarded = self._plan(self._snapshot(cluster, observe(cluster)))
                # planning for a large cluster takes time, and writing the statuses must make progress as well
                pause = max(self._settings.debounce_seconds, time.monotonic() - start)
                await self._actuator.write_run_queues_only(cluster, guarded.plan.actions)
            except Exception:
                self._metrics.errors.inc()
                log.exception("writing run queues between two reconciles ended in an error; the next reconcile follows")

    async def _act_and_report(
        self,
        cluster: ClusterState,
        observations: Mapping[TrialKey, Observation],
        snapshot: Snapshot,
        guarded: GuardedPlan,
    ) -> None:
        """Create objects, manage reservations and write every status, including those of jobs that were left out."""
        actions, ranks = guarded.plan.actions, guarded.plan.ranks
        with self._metrics.part_seconds.labels("act").time():
            refused = await self._actuator.create(cluster, actions)
            requested = {action.trial: action for action in actions if isinstance(action, Migrate)}
            news = MigrationNews(
                requested=requested,
                refused=self._actuator.refused_migrations(),
                sent=self._actuator.sent(),
                slots_taken=promises(snapshot).broken,
            )
            migrations = migrations_to_store(cluster, observations, news)
            reservations, self._reservations_wake_at = await self._reservation_controller.reconcile(cluster, snapshot)
        with self._metrics.part_seconds.labels("describe").time():
            # the plan builds the sentences of its ranks on first use
            rankings = {ranking.trial: ranking for ranking in ranks}
            predicted, unpredicted = predict(snapshot)
            self._metrics.errors.inc(unpredicted)
        ends = {action.trial: action for action in actions if isinstance(action, EndTrial)}
        ends |= {end.trial: end for end in refused}
        job_ends = {action.job: action for action in actions if isinstance(action, EndJob)}
        for requeue in actions:
            if isinstance(requeue, Requeue) and requeue.trial in rankings:
                # written before the pod is gone: the phase Requeued keeps the reason
                rankings[requeue.trial] = replace(
                    rankings[requeue.trial], reason=requeue.reason, message=requeue.message
                )
        undeleted = self._actuator.undeleted()
        for trial, text in undeleted.items():
            if trial in rankings:  # with a requeue's reason, a later end of the pod would be attributed to Podium
                text = f"{rankings[trial].message} The API server did not delete its pod: {text}"
                rankings[trial] = replace(rankings[trial], reason="PodDeletionRefused", message=text)
        refused_pods = self._actuator.refused()
        gauges.export_refused_pods(self._metrics, refused_pods, self._reservation_controller.refused())
        for trial, text in refused_pods.items():
            if trial in rankings:
                rankings[trial] = replace(rankings[trial], reason="PodRefused", message=text)
        for trial, text in self._actuator.waiting().items():
            if trial in rankings:
                rankings[trial] = replace(rankings[trial], reason="WorkloadWaits", message=text)
        with self._metrics.part_seconds.labels("report").time():
            report = Report(
                rankings=rankings,
                ends=ends,
                job_ends=job_ends,
                predicted=predicted,
                reservations=reservations,
                migrations=migrations,
                rebalanced=self._rebalancer.moves_to_store(cluster, undeleted),
                left_out=guarded.left_out,
                queues=job_queues(snapshot),
            )
            await self._status_writer.write(cluster, observations, snapshot, report)
            await self._queue_controller.write(cluster, snapshot, guarded.shares)
        await self._cleanup.delete_expired(cluster)
