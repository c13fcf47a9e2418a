"""One task per trial: reads its log, and writes curve, cursor, holds, suspensions and saves to its status in one patch.

It looks every half second by the clock, and at once when something happens. At most one patch in two seconds, at once
when the trial has ended. With the API away it goes on reading what fits in
memory (a curve has at most 256 points) and writes the newest state when the API is back.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from podium_agent.metrics import Metrics
from podium_agent.observe.logs.tail import Tail
from podium_agent.observe.pods import GATE_CONTAINER
from podium_agent.report.checkpoint_watch import SaveWatch
from podium_agent.report.checkpoints import said_in_log
from podium_agent.report.pod_conditions import patch as condition_patch
from podium_agent.report.trial_record import Book
from podium_agent.report.trial_status import account_from, curve_from, position_from, reached, to_status
from podium_agent.report.usage_ledger import taken_over
from podium_agent.settings import AgentSettings
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS, TRIALS
from podium_core.curves.line_readers import Reader, line_reader
from podium_core.curves.thinning import Grid
from podium_core.schema.trial import HyperParamTrial

log = logging.getLogger(__name__)
MANAGER = "podium-agent"
LONGEST_PAUSE = 30.0
ROUNDING = 1e-9  # of sums of seconds: the fourth look after a patch is not before its two seconds
MOST_CONFLICTS = 5


class TrialWriter:
    def __init__(self, settings: AgentSettings, api: Api, metrics: Metrics, book: Book) -> None:
        self._settings = settings
        self._api = api
        self._metrics = metrics
        self._book = book
        self._tail: Tail | None = None
        self._saves = SaveWatch(book, settings.proc, settings.volume_timeout)
        self._read: Reader | None = None
        self._grid = Grid(maximize=True)
        self._resource_version = ""
        self._written = 0  # the book's version that the API has
        self._looked = 0.0  # when this look was due, by the loop's clock
        self._last = -math.inf  # look that wrote
        self._open = False  # the hold is open in what was written last
        self._pause = 0.0
        self._shown: dict[str, tuple[str, str]] = {}
        self._gone = False
        self._said_of = ""  # the container that the stored cursor is of, where the pod is not known any more
        self._load_at = 0.0
        self._load_pause = 0.0
        self._flush_at: float | None = None

    @property
    def container(self) -> str:
        reading = self._book.pod.reading
        if reading is not None:
            return reading.container
        return next((name for name in self._book.pod.containers if name != GATE_CONTAINER), self._said_of)

    async def run(self) -> None:
        """Until the trial's end is written (or the trial is gone). Raises nothing but its cancellation."""
        book = self._book
        self._looked = asyncio.get_running_loop().time()
        try:
            while not self._gone:
                book.urgent.clear()
                closed, ended, flushed = book.closed, book.ended, self._flushed()
                await self._saves.look()
                if book.begun and book.account is None:
                    await self._load()
                book.hear()
                more = self._read_log()
                await self._show()
                if flushed and not (ended and more):  # the end of a hold says that the curve is whole
                    await self._write(ended)
                nothing_begun = book.account is None and not book.begun
                if closed and (nothing_begun or (not more and self._written == book.version)):
                    return
                await self._next_look()
        except Exception:
            # what a trial prints is anything: it must not end the agent, which holds all trials of the node, nor the
            # next agent that reads the same line
            self._metrics.failures.labels("trial-status", "Crashed").inc()
            log.exception("%s: its log is followed no more, and its status not written", book.pod.name)
        finally:
            self._saves.close()
            if self._tail is not None:
                self._tail.close()

    async def _next_look(self) -> None:
        """By the clock, whatever the last one took: the busier the machine, the older would be what the operator plans
        by. One that is late by a whole look begins the clock anew, so that there is rest between them.
        """
        loop, every = asyncio.get_running_loop(), self._settings.log_seconds
        due = self._looked + every
        try:
            async with asyncio.timeout_at(due):
                await self._book.urgent.wait()
            self._looked = loop.time()
        except TimeoutError:
            now = loop.time()
            # what came in the same turn of the loop came now: its time for the last lines does not begin in the past
            self._looked = due if now < due + every and not self._book.urgent.is_set() else now

    def _flushed(self) -> bool:
        """containerd may still be copying what a process printed last when the kernel says that it has ended."""
        if not self._book.ended:
            self._flush_at = None
            return True
        if self._flush_at is None:
            self._flush_at = self._looked + self._settings.log_seconds
        return self._looked >= self._flush_at

    async def _load(self) -> None:
        """Until it is there nothing is read: the curve must go on, not begin anew."""
        if time.monotonic() < self._load_at:
            return
        try:
            await self._begin()
        except ApiError as error:
            self._load_pause = min(max(0.2, self._load_pause * 2), LONGEST_PAUSE)
            self._load_at = time.monotonic() + self._load_pause
            log.warning("%s: status not loaded, again in %.1f s: %s", self._book.pod.name, self._load_pause, error)

    async def _begin(self) -> None:
        """Take the status as it is now; again whenever somebody else wrote it before this pod's record is in it."""
        trial = await self._get()
        if trial is None:
            return
        book, pod, status = self._book, self._book.pod, trial.status
        mine = status.log_cursor is not None and status.log_cursor.pod_uid == pod.uid
        if mine and book.account is not None:
            book.own()  # the operator wrote its part, or our answer was lost: what is in memory is newer
            return
        if book.owned or (not mine and status.attempt > pod.attempt):
            self._gone = True  # a later pod's writer owns the status now, here or on another node
            return
        account, begins_at = account_from(status), None
        if book.left:
            if (
                not mine
                or status.log_cursor is None
                or not status.allocations
                or status.allocations[-1].end is not None
            ):
                self._gone = True  # it wrote nothing, all was written, or another pod has begun since
                return
            # how long it worked after its last report nobody knows
            spent, self._said_of = status.gpu_seconds, status.log_cursor.container
            account = taken_over(account, None, book.node, pod.attempt, None, spent, time.time(), carried=True)
            book.touch()
        elif not mine:
            said = book.said if book.said is not None else said_in_log(self._logs(GATE_CONTAINER))
            spent = status.gpu_seconds
            at, carried = reached(status), pod.carried or pod.arrival is not None
            account = taken_over(account, said, book.node, pod.attempt, at, spent, time.time(), carried=carried)
            save = at if carried else account.saved.step if account.saved is not None else None
            begins_at = save or 0.0
            book.touch()
            log.info("%s: its record begins", pod.name)
        position = position_from(status, pod.uid, self.container)
        book.load(account, curve_from(status, position, begins_at), position)
        if mine:
            book.own()
            if status.container_checkpoint is not None and status.container_checkpoint.pod_uid == pod.uid:
                book.departure = book.told = status.container_checkpoint
        self._prepare()

    async def _get(self) -> HyperParamTrial | None:
        """The trial; None if it is gone. Raises ApiError."""
        key = self._book.pod.key
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
            log.error("%s: its status cannot be read, beginning a new one: %s", key.name, error)
            trial = HyperParamTrial.model_validate(payload | {"status": {}})
        if trial.metadata.uid != key.uid:
            self._gone = True  # another trial of the same name: this pod is an orphan
            return None
        self._resource_version = trial.metadata.resource_version
        return trial

    def _prepare(self) -> None:
        pod = self._book.pod
        if self._tail is not None:
            self._tail.close()
            self._tail = None
        if pod.reading is None:
            if pod.reading_trouble:
                log.error("%s: its log is not read: %s", pod.name, pod.reading_trouble)
            return
        try:
            self._read = line_reader(pod.reading)
        except ValueError as error:
            log.error("%s: its log is not read: %s", pod.name, error)
            return
        self._grid = Grid(maximize=pod.reading.direction == "maximize")
        self._tail = Tail(self._logs(self.container), self._book.position)

    def _logs(self, container: str) -> Path:
        pod = self._book.pod
        return self._settings.pod_logs / f"{pod.key.namespace}_{pod.name}_{pod.uid}" / container

    def _read_log(self) -> bool:
        """All there is; a long log in several turns of the loop: True if there is more."""
        if self._tail is None or self._read is None:
            return False
        book, metrics = self._book, self._metrics
        for _ in range(16):
            lost = self._tail.lost
            batch = self._tail.read()
            before = book.curve
            book.take(batch, self._read, self._grid)
            after = book.curve
            metrics.points.inc(after.taken - before.taken)
            metrics.repeated.inc(after.repeated - before.repeated)
            metrics.diverged.inc(after.diverged - before.diverged)
            metrics.lost_logs.inc(self._tail.lost - lost)
            if not batch.more:
                return False
        book.urgent.set()
        return True

    async def _write(self, ended: bool) -> None:
        """`ended`: whether it had, before its log was read: the end of a hold says that the curve is whole."""
        book = self._book
        if book.account is None or book.ended is not ended:
            return
        since = self._looked - self._last + ROUNDING
        held = book.held_since() is not None
        if book.version == self._written and not (held and since >= self._settings.holder_report_seconds):
            return
        due = max(self._settings.trial_report_seconds, self._pause)
        # a hold that opens for the last time is told before its pod is gone: a closed one says that nothing is to come
        hurry = book.ended or (book.ending and held and not self._open)
        if since < due and not (hurry and self._pause == 0.0):
            return
        self._last = self._looked
        try:
            await self._apply(ended)
            self._pause = 0.0
        except ApiError as error:
            self._pause = min(max(1.0, self._pause * 2), LONGEST_PAUSE)
            self._metrics.failures.labels("trial-status", error.reason).inc()
            log.warning("%s: status not written, again in %.0f s: %s", book.pod.key.name, self._pause, error)

    async def _apply(self, ended: bool) -> None:
        """Write the record onto the very version that was looked at, or look again: a later object of the same name, or
        a later pod of the trial, must not get this pod's. (A uid is ignored by the server in an apply.)
        """
        book, key = self._book, self._book.pod.key
        for _ in range(MOST_CONFLICTS):
            if self._gone or book.account is None or book.ended is not ended:
                return
            version, holds = book.version, book.held_since() is not None
            about = {"name": key.name, "namespace": key.namespace, "resourceVersion": self._resource_version}
            status = to_status(book, book.account, self.container, time.time())
            try:
                answer = await self._api.apply_status(TRIALS, {"metadata": about, "status": status}, manager=MANAGER)
            except ApiError as error:
                if error.not_found:
                    self._gone = True
                    return
                if not error.conflict:
                    raise
                await self._begin()
                if not book.owned:
                    # begun anew: first its log is to be read again
                    self._last = -math.inf
                    book.urgent.set()
                    return
                continue
            self._resource_version = answer["metadata"]["resourceVersion"]
            self._written, self._open = version, holds
            book.own()
            return
        raise ApiError(409, "Conflict", f"somebody else wrote it {MOST_CONFLICTS} times in a row")

    async def _show(self) -> None:
        """The pod's conditions."""
        book = self._book
        if book.state is None or book.ended or book.closed or self._pause:
            return
        shown: Mapping[str, tuple[str, str]] = self._shown or (book.pod.conditions or {})
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        patch = condition_patch(book.state, shown, now, book.short, book.pod.arrival_trouble)
        if patch is None:
            return
        pod = book.pod
        patch["metadata"] = {"uid": pod.uid}
        try:
            await self._api.patch(
                PODS, pod.name, pod.key.namespace, patch, manager=MANAGER, subresource="status", strategic=True
            )
        except ApiError as error:
            if not error.not_found:
                self._metrics.failures.labels("pod-condition", error.reason).inc()
                log.warning("%s: condition not written: %s", pod.name, error)
            return
        self._shown = dict(shown) | {
            entry["type"]: (entry["status"], entry["reason"]) for entry in patch["status"]["conditions"]
        }
