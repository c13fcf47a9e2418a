"""One task per trial: reads its log, and writes curve, cursor, holds and suspensions to its status in one patch.

At most one patch in two seconds, at once when the trial has ended. With the API away it goes on reading what fits in
memory (a curve has at most 256 points) and writes the newest state when the API is back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from podium.curves.growing import extend
from podium.curves.readings import Reader, reader
from podium.curves.thinning import Grid
from podium.schema.trial import HyperParamTrial
from podium_agent.book import Book
from podium_agent.conditions import patch as condition_patch
from podium_agent.logs.tail import Tail
from podium_agent.metrics import Metrics
from podium_agent.pods import GATE_CONTAINER
from podium_agent.settings import AgentSettings
from podium_agent.trialstatus import account_from, curve_from, position_from, to_status
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS, TRIALS

log = logging.getLogger(__name__)
MANAGER = "podium-agent"
LONGEST_PAUSE = 30.0


class TrialWriter:
    def __init__(self, settings: AgentSettings, api: Api, metrics: Metrics, book: Book) -> None:
        self._settings = settings
        self._api = api
        self._metrics = metrics
        self._book = book
        self._tail: Tail | None = None
        self._read: Reader | None = None
        self._grid = Grid(maximize=True)
        self._written = 0  # the book's version that the API has
        self._last = 0.0
        self._pause = 0.0
        self._shown: dict[str, tuple[str, str]] = {}
        self._gone = False

    @property
    def container(self) -> str:
        reading = self._book.pod.reading
        if reading is not None:
            return reading.container
        return next((name for name in self._book.pod.containers if name != GATE_CONTAINER), "")

    async def run(self) -> None:
        """Until the trial's end is written (or the trial is gone)."""
        try:
            await self._load()
            while not self._gone:
                self._book.urgent.clear()
                closed = self._book.closed
                more = self._read_log()
                await self._show()
                await self._write()
                if closed and not more and self._written == self._book.version:
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._book.urgent.wait(), self._settings.log_seconds)
        finally:
            if self._tail is not None:
                self._tail.close()

    async def _load(self) -> None:
        """What an earlier agent wrote. Without it nothing is read: the curve must go on, not begin anew."""
        key, pause = self._book.pod.key, 0.2
        while True:
            try:
                payload = await self._api.get(TRIALS, key.name, key.namespace)
                trial = HyperParamTrial.model_validate(payload)
                break
            except ApiError as error:
                if error.not_found:
                    self._gone = True
                    return
                log.warning("%s: status not loaded, again in %.1f s: %s", key.name, pause, error)
            except ValueError as error:
                log.error("%s: its status cannot be read, beginning a new one: %s", key.name, error)
                payload["status"] = {}
                trial = HyperParamTrial.model_validate(payload)
                break
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        if trial.metadata.uid != key.uid:
            self._gone = True  # another trial of the same name: this pod is an orphan
            return
        pod = self._book.pod
        if trial.status.attempt > pod.attempt:
            self._gone = True  # a later pod's writer owns the status now, here or on another node
            return
        position = position_from(trial.status, pod.uid, self.container)
        self._book.load(account_from(trial.status), curve_from(trial.status), position)
        self._prepare()

    def _prepare(self) -> None:
        pod = self._book.pod
        if pod.reading is None:
            if pod.reading_trouble:
                log.error("%s: its log is not read: %s", pod.name, pod.reading_trouble)
            return
        try:
            self._read = reader(pod.reading)
        except ValueError as error:
            log.error("%s: its log is not read: %s", pod.name, error)
            return
        self._grid = Grid(maximize=pod.reading.direction == "maximize")
        folder = self._settings.pod_logs / f"{pod.key.namespace}_{pod.name}_{pod.uid}" / self.container
        self._tail = Tail(folder, self._book.position)

    def _read_log(self) -> bool:
        """All there is; a long log in several turns of the loop: True if there is more."""
        if self._tail is None or self._read is None:
            return False
        book, metrics = self._book, self._metrics
        for _ in range(16):
            lost = self._tail.lost
            batch = self._tail.read()
            before = book.curve
            book.curve = extend(before, batch.lines, self._read, self._grid)
            book.position = batch.position
            after = book.curve
            if after.taken != before.taken:
                book.touch()
            metrics.points.inc(after.taken - before.taken)
            metrics.repeated.inc(after.repeated - before.repeated)
            metrics.diverged.inc(after.diverged - before.diverged)
            metrics.lost_logs.inc(self._tail.lost - lost)
            if not batch.more:
                return False
        book.urgent.set()
        return True

    async def _write(self) -> None:
        book, now = self._book, time.time()
        if book.account is None:
            return
        since = now - self._last
        held = book.held_since() is not None
        if book.version == self._written and not (held and since >= self._settings.turn_report_seconds):
            return
        due = max(self._settings.trial_report_seconds, self._pause)
        if since < due and not (book.ended and self._pause == 0.0):
            return
        version = book.version
        key = book.pod.key
        manifest = {
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": key.uid},
            "status": to_status(book, book.account, self.container, now),
        }
        self._last = now
        try:
            await self._api.apply_status(TRIALS, manifest, manager=MANAGER)
            self._written, self._pause = version, 0.0
        except ApiError as error:
            if error.not_found or error.conflict:
                self._gone = True  # the trial was deleted (a conflict: and made anew under its name)
                return
            self._pause = min(max(1.0, self._pause * 2), LONGEST_PAUSE)
            self._metrics.failures.labels("trial-status", error.reason).inc()
            log.warning("%s: status not written, again in %.0f s: %s", key.name, self._pause, error)

    async def _show(self) -> None:
        """The pod's conditions."""
        book = self._book
        if book.state is None or book.ended or book.closed or self._pause:
            return
        shown: Mapping[str, tuple[str, str]] = self._shown or (book.pod.conditions or {})
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        patch = condition_patch(book.state, shown, now)
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
