"""Writer of one trial's status: reads its metrics, and writes curve, cursor, allocations, suspensions and checkpoints.

It runs every half second, and at once when something happens. It sends at most one patch in two seconds, and one at
once when the trial has ended. Without the API server it continues to read what fits in memory (a curve has at most 256
points) and writes the newest state when the API server is back.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from pathlib import Path

from podium_agent.log_fields import about_pod
from podium_agent.metrics import Metrics
from podium_agent.observe.sources.push import PushQueues
from podium_agent.report.checkpoint_watch import CheckpointWatch
from podium_agent.report.checkpoints import report_in_log
from podium_agent.report.metrics_reader import MetricsReader
from podium_agent.report.pod_condition_writer import MANAGER, PodConditionWriter
from podium_agent.report.trial_record import CheckpointResult, TrialRecord
from podium_agent.report.trial_status import position_from, to_status
from podium_agent.settings import AgentSettings
from podium_cluster import clock
from podium_cluster.backoff import Backoff
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import TRIALS
from podium_core.attempts.lost_work import AttemptStart
from podium_core.attempts.trial_status import curve_from, ledger_from, reached
from podium_core.attempts.usage_ledger import UsageLedger, begin_attempt
from podium_core.schema.metrics.rules import PATH_SOURCES
from podium_core.schema.template.pod_template import GATE_CONTAINER
from podium_core.schema.trial import HyperParamTrial, TrialStatus
from podium_core.sources.batch import Position

log = logging.getLogger(__name__)
LONGEST_PAUSE = 30.0
ROUNDING = 1e-9  # of sums of seconds: the fourth pass after a patch is not before its two seconds
MAX_CONFLICTS = 5
CRASHES_AFTER_END = 6  # consecutive passes that fail, about a minute, until the writer of an ended trial gives up
LISTED_SECONDS = 60.0  # for the operator to add this node to status.nodes; a failover takes it up to 20 s
UNREADABLE_SECONDS = 30.0  # after the end of a trial whose metrics cannot be read; the operator waits longer


class TrialWriter:
    """Task that writes the status of one trial."""

    def __init__(
        self,
        settings: AgentSettings,
        api: Api,
        metrics: Metrics,
        trial_record: TrialRecord,
        queues: PushQueues | None = None,
    ) -> None:
        self._settings = settings
        self._api = api
        self._metrics = metrics
        self._record = trial_record
        self._reader = MetricsReader(settings, metrics, trial_record, queues or PushQueues())
        self._checkpoints = CheckpointWatch(trial_record, settings.proc, settings.volume_timeout)
        self._resource_version = ""
        self._written = 0  # the record's version that the API has
        self._looked = 0.0  # when this pass was due, by the loop's clock
        self._last = -math.inf  # pass that wrote
        self._open = False  # the allocation is open in the last patch
        self._pause = 0.0
        self._conditions = PodConditionWriter(api, metrics, trial_record)
        self._backoff = Backoff(longest=LONGEST_PAUSE)
        self._crashes = Backoff(longest=LONGEST_PAUSE)
        self._gone = False
        self._stored_container = ""  # the container that the stored cursor is of, where the pod is not known any more
        self._load_at = 0.0
        self._load_backoff = Backoff(first=0.4, longest=LONGEST_PAUSE)
        self._listed_backoff = Backoff(first=0.4, longest=4.0)
        self._listed_by: float | None = None  # when this writer no longer waits for the operator
        self._flush_at: float | None = None

    @property
    def container(self) -> str:
        """The container whose log is read."""
        reading = self._record.pod.settings.metrics
        if reading is not None:
            return reading.container
        names = self._record.pod.containers.names
        return next((name for name in names if name != GATE_CONTAINER), self._stored_container)

    async def run(self) -> None:
        """Write until the trial's end is written or the trial is gone; only a cancellation is raised."""
        self._looked = asyncio.get_running_loop().time()
        try:
            while not self._gone and not await self._pass_or_pause():
                await self._next_look()
        finally:
            self._checkpoints.close()
            self._reader.close()

    async def _pass_or_pause(self) -> bool:
        """Make one pass; return whether it was the last one.

        An unexpected error must stop neither the agent, which serves all trials of the node, nor this writer, which
        counts the trial's GPU-seconds. The writer pauses and tries again.
        """
        with about_pod(self._record.pod, self._record.gpus):
            return await self._guarded_pass()

    async def _guarded_pass(self) -> bool:
        try:
            last = await self._pass()
        except Exception:
            pause, name = self._crashes.pause(), self._record.pod.name
            self._metrics.failures.labels("trial-status", "Crashed").inc()
            if self._record.life.closed and self._crashes.failures > CRASHES_AFTER_END:
                log.exception("%s: its status is not complete: the pass after its end failed repeatedly", name)
                return True
            log.exception("%s: its status is not written, trying again in %.1f s", name, pause)
            await asyncio.sleep(pause)
            return False
        self._crashes.reset()
        return last

    async def _pass(self) -> bool:
        """Look at the checkpoints, read the metrics and write what is due; return whether all is written."""
        trial_record = self._record
        trial_record.urgent.clear()
        life = trial_record.life
        closed, ended, flushed = life.closed, life.ended, self._flushed()
        await self._checkpoints.look()
        if life.started and trial_record.ledger is None:
            await self._load()
        trial_record.publish_container_checkpoint()
        more = await self._reader.read()
        flushed = flushed and self._flushed()  # again: the source may have become unreadable
        if not self._pause:
            await self._conditions.show_state()
        # the end of an allocation means that the curve is complete
        if await self._conditions.show_disruption() and flushed and not (ended and more):
            await self._write(ended)
        if self._written == trial_record.writing.version:
            self._reader.stored()
        nothing_begun = trial_record.ledger is None and not life.started
        written = flushed and not more and self._written == trial_record.writing.version
        return closed and (nothing_begun or written)

    async def _next_look(self) -> None:
        """Wait for the next pass. Passes start at fixed times, so that the operator's data stay fresh.

        A pass that is late by a whole period restarts the clock, so that there is a pause between passes.
        """
        loop, every = asyncio.get_running_loop(), self._settings.log_seconds
        due = self._looked + every
        try:
            async with asyncio.timeout_at(due):
                await self._record.urgent.wait()
            self._looked = loop.time()
        except TimeoutError:
            now = loop.time()
            # an event of this pass came now: its time for the last lines does not start in the past
            self._looked = due if now < due + every and not self._record.urgent.is_set() else now

    def _flushed(self) -> bool:
        """Return whether the log is complete: containerd may still copy the last lines when the process has ended.

        A source that cannot be read is tried again for some time, so that the last values are not missing.
        """
        if not self._record.life.ended:
            self._flush_at = None
            return True
        if self._flush_at is None:
            self._flush_at = self._looked + self._settings.log_seconds
        return self._looked >= self._flush_at + (UNREADABLE_SECONDS if self._reader.unreadable else 0.0)

    async def _load(self) -> None:
        """Load the status; nothing is read before, because the curve must continue and not start again."""
        if time.monotonic() < self._load_at:
            return
        try:
            trial = await self._get()
        except ApiError as error:
            pause = self._load_backoff.pause(error.retry_after)
            self._load_at = time.monotonic() + pause
            log.warning("%s: status not loaded, trying again in %.1f s: %s", self._record.pod.name, pause, error)
            return
        if trial is not None and not self._waits_for_operator(trial.status):
            self._begin(trial)

    def _waits_for_operator(self, status: TrialStatus) -> bool:
        """Return whether the operator has yet to add this node to `status.nodes`; then the status is read again soon.

        Until then the admission policies refuse what this agent writes. An operator that is away must not keep the
        metrics unread, so the wait has an end.
        """
        trial_record, pod = self._record, self._record.pod
        mine = status.log_cursor is not None and status.log_cursor.pod_uid == pod.uid
        if trial_record.node in status.nodes or mine or trial_record.life.orphaned or status.attempt > pod.attempt:
            return False
        now = time.monotonic()
        if self._listed_by is None:
            self._listed_by = now + LISTED_SECONDS
        if now < self._listed_by:
            self._load_at = now + self._listed_backoff.pause()
            return True
        message = "%s: the operator has not listed node %s in its status within %g s, so the report may be refused"
        log.warning(message, pod.name, trial_record.node, LISTED_SECONDS)
        return False

    def _begin(self, trial: HyperParamTrial) -> None:
        """Take over the status as it is now.

        This happens again whenever another writer changed it before this pod's record is in it.
        """
        trial_record, pod, status = self._record, self._record.pod, trial.status
        mine = status.log_cursor is not None and status.log_cursor.pod_uid == pod.uid
        if mine and trial_record.ledger is not None:
            trial_record.own()  # the operator wrote its part, or an answer was lost: the record in memory is newer
            return
        if trial_record.writing.owned or (not mine and status.attempt > pod.attempt):
            self._gone = True  # a later pod's writer owns the status now, here or on another node
            return
        ledger, begins_at = ledger_from(status, pod.worker.count), None
        if trial_record.life.orphaned:
            if (
                not mine
                or status.log_cursor is None
                or not status.allocations
                or status.allocations[-1].end is not None
            ):
                self._gone = True  # it wrote nothing, all was written, or another pod has started since
                return
            # how long it ran after its last report is unknown
            spent, self._stored_container = status.gpu_seconds, status.log_cursor.container
            ledger = begin_attempt(
                ledger, AttemptStart(None, trial_record.node, pod.attempt), None, spent, clock.now(), migrated=True
            )
            trial_record.touch()
        elif not mine:
            gate_report = trial_record.life.gate_report
            if gate_report is None:
                gate_report = report_in_log(self._logs(GATE_CONTAINER))
            spent = status.gpu_seconds
            start = AttemptStart(gate_report, trial_record.node, pod.attempt)
            at, migrated = reached(status), pod.migration.migrated or pod.migration.gpu_state is not None
            ledger = begin_attempt(ledger, start, at, spent, clock.now(), migrated=migrated)
            save = at if migrated else ledger.checkpoint.step if ledger.checkpoint is not None else None
            begins_at = save or 0.0
            trial_record.touch()
            log.info("%s: its record begins", pod.name)
        elif self._rebooted_since_allocation(ledger):
            # it did not run while the node was down
            start = AttemptStart(None, trial_record.node, pod.attempt)
            ledger = begin_attempt(ledger, start, None, status.gpu_seconds, clock.now(), migrated=True)
            trial_record.touch()
        metrics = pod.settings.metrics
        rereads = metrics is not None and metrics.source in PATH_SOURCES
        position = position_from(status, None if rereads else pod.uid, self.container)
        trial_record.load(ledger, curve_from(status, begins_at, continues=position != Position()), position)
        trial_record.metrics.unread_log = status.unread_log if mine else None
        if mine:
            trial_record.own()
            if status.container_checkpoint is not None and status.container_checkpoint.pod_uid == pod.uid:
                stored = status.container_checkpoint
                trial_record.container_checkpoint = CheckpointResult(result=stored, published=stored)
        self._reader.prepare(self._logs(self.container))

    def _rebooted_since_allocation(self, ledger: UsageLedger) -> bool:
        """Return whether the node has booted since the trial's open allocation began there."""
        last = ledger.allocations[-1] if ledger.allocations else None
        if last is None or last.end is not None or last.node != self._record.node:
            return False
        try:
            uptime = float((self._settings.proc / "uptime").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return False
        return last.start < clock.now() - uptime

    async def _get(self) -> HyperParamTrial | None:
        """Return the trial; None if it is gone. Raises ApiError."""
        key = self._record.pod.key
        try:
            payload = await self._api.get(TRIALS, key.name, key.namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            self._gone = True
            return None
        try:
            trial = HyperParamTrial.model_validate(payload)
        except ValueError as error:
            log.error("%s: its status cannot be read, starting a new one: %s", key.name, error)
            trial = HyperParamTrial.model_validate(payload | {"status": {}})
        if trial.metadata.uid != key.uid:
            self._gone = True  # another trial of this name: the pod is an orphan
            return None
        self._resource_version = trial.metadata.resource_version
        return trial

    def _logs(self, container: str) -> Path:
        pod = self._record.pod
        return self._settings.pod_logs / f"{pod.key.namespace}_{pod.name}_{pod.uid}" / container

    async def _write(self, ended: bool) -> None:
        """Write the status if it is due; `ended`: whether the trial had ended before its log was read.

        The end of an allocation tells the operator that the curve is complete.
        """
        trial_record = self._record
        if trial_record.ledger is None or trial_record.life.ended is not ended:
            return
        since = self._looked - self._last + ROUNDING
        held = trial_record.held_since() is not None
        overdue = held and since >= self._settings.holder_report_seconds
        if trial_record.writing.version == self._written and not overdue:
            return
        due = max(self._settings.trial_report_seconds, self._pause)
        # a last allocation is written before its pod is gone: a closed one means that no more will come
        hurry = trial_record.life.ended or self._reader.hurry or (trial_record.life.ending and held and not self._open)
        if since < due and not (hurry and self._pause == 0.0):
            return
        self._last = self._looked
        try:
            await self._apply(ended)
            self._pause = 0.0
            self._backoff.reset()
        except ApiError as error:
            # refused while the operator is away and has not added this node to status.nodes
            self._pause = 1.0 if error.status == 403 else self._backoff.pause(error.retry_after)
            self._metrics.failures.labels("trial-status", error.reason).inc()
            log.warning(
                "%s: status not written, trying again in %.1f s: %s", trial_record.pod.key.name, self._pause, error
            )

    async def _apply(self, ended: bool) -> None:
        """Write the record onto the version of the status that was read, or read it again.

        A later object of the same name, or a later pod of the trial, must not get this pod's record. (The server
        ignores a uid in an apply.)
        """
        trial_record, key = self._record, self._record.pod.key
        for _ in range(MAX_CONFLICTS):
            if self._gone or trial_record.ledger is None or trial_record.life.ended is not ended:
                return
            version, allocations = trial_record.writing.version, trial_record.held_since() is not None
            about = {"name": key.name, "namespace": key.namespace, "resourceVersion": self._resource_version}
            status = to_status(trial_record, trial_record.ledger, self.container, clock.now())
            try:
                answer = await self._api.apply_status(TRIALS, {"metadata": about, "status": status}, manager=MANAGER)
            except ApiError as error:
                if error.not_found:
                    self._gone = True
                    return
                if not error.conflict:
                    raise
                trial = await self._get()
                if trial is not None:
                    self._begin(trial)
                if not trial_record.writing.owned:
                    # started again: first its log must be read again
                    self._last = -math.inf
                    trial_record.urgent.set()
                    return
                continue
            self._resource_version = answer["metadata"]["resourceVersion"]
            self._written, self._open = version, allocations
            trial_record.own()
            return
        raise ApiError(409, "Conflict", f"another writer changed it {MAX_CONFLICTS} times consecutively")
