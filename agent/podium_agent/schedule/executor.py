"""Carries out the arbiter's steps: opens gates, tells reasons, suspends and resumes. Each act is a task of its own.

Called by the conductor. While a trial is being acted on its record says so, and the arbiter leaves it alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable

from podium_agent.metrics import Metrics
from podium_agent.observe.cgroups import Freezer
from podium_agent.observe.observer import Observer
from podium_agent.observe.pod_records import Record
from podium_agent.observe.trials import Acting
from podium_agent.report.trial_record import Book
from podium_agent.report.usage_ledger import Cost
from podium_agent.schedule.admissions import Passages
from podium_agent.schedule.gate import Gates
from podium_agent.schedule.local_scheduler import Grant, Resume, Step, Suspend, Wait
from podium_agent.schedule.memory_admission import Admission
from podium_agent.suspension.base import Outcome
from podium_agent.suspension.choice import Methods
from podium_core.schema.gpunode import INSUFFICIENT_GPU_MEMORY

log = logging.getLogger(__name__)
MEMORY_SECONDS = 1.0  # between two looks at the memory that a trial waits for
HURRY_SECONDS = 0.5  # between two tries where the pod is about to be killed


class Carrier:
    """`book_of` finds the record that costs are noted in; `changed` wakes the conductor when an act is over."""

    def __init__(
        self,
        observer: Observer,
        gates: Gates,
        passages: Passages,
        methods: Methods,
        admission: Admission,
        metrics: Metrics,
        retry_seconds: float,
        book_of: Callable[[str], Book | None],
        changed: Callable[[], None],
    ) -> None:
        self._observer = observer
        self._gates = gates
        self._passages = passages
        self._methods = methods
        self._admission = admission
        self._metrics = metrics
        self._retry_seconds = retry_seconds
        self._book_of = book_of
        self._changed = changed
        self._tasks: set[asyncio.Task[None]] = set()

    def carry(self, steps: Iterable[Step]) -> bool:
        """Begin all steps; True if any of them does something."""
        acted = False
        for step in steps:
            record = self._observer.record(step.trial.pod_uid)
            if record is None or record.acting is not Acting.NOTHING:
                continue
            if isinstance(step, Wait):
                why = f"{step.reason}: {step.message}"
                self._gates.tell(step.trial.pod_uid, why)
                if step.trial.deleting and record.trouble != why:
                    record.trouble = why
                    log.warning("%s was told to end and stays suspended: %s", step.trial.pod, why)
                if step.reason == INSUFFICIENT_GPU_MEMORY and time.time() >= record.retry_at:
                    record.retry_at = time.time() + MEMORY_SECONDS
                    self._start(self._look_again(record))
                continue
            acted = True
            log.info("%s: %s (%s)", step.trial.pod, type(step).__name__.lower(), step.reason)
            if isinstance(step, Grant):
                if self._admission.concerns(record):
                    record.acting = Acting.ADMITTING
                    self._start(self._grant(record))
                else:
                    self._let_in(record)
            elif isinstance(step, Suspend):
                record.acting = Acting.SUSPENDING
                self._start(self._suspend(record, step))
            else:
                record.acting = Acting.RESUMING
                if step.reason == "FinalCheckpoint":
                    self._metrics.last_calls.inc()
                self._start(self._resume(record, step))
        return acted

    def _start(self, act: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _let_in(self, record: Record) -> None:
        self._passages.note(record.pod, record.gpus)
        self._gates.open(record.pod.uid)
        self._metrics.grants.inc()

    async def _grant(self, record: Record) -> None:
        short = await self._admission.admit(record)
        record.acting = Acting.NOTHING
        if short:
            self._wait_for_memory(record, short)
        else:
            record.short = ""
            self._let_in(record)
        self._changed()

    async def _look_again(self, record: Record) -> None:
        """Whether a trial that waits for memory could have it now."""
        record.short = await self._admission.could(record)
        if not record.short:
            record.retry_at = 0.0
            self._changed()

    def _wait_for_memory(self, record: Record, short: str) -> None:
        record.short = short
        record.retry_at = time.time() + MEMORY_SECONDS
        self._metrics.failures.labels("admission", INSUFFICIENT_GPU_MEMORY).inc()
        log.warning("%s waits for GPU memory: %s", record.pod.name, short)

    async def _suspend(self, record: Record, step: Suspend) -> None:
        at = time.time()
        method = step.trial.method
        outcome = await self._try(lambda targets: self._methods.suspend(method, targets), record)
        self._finish(record, "suspend", outcome)
        if not outcome.ok:
            record.failed.add(method)
        else:
            record.method = method
            record.admitted = False
            self._metrics.suspend.labels(method).observe(outcome.seconds)
            book = self._book_of(step.trial.pod_uid)
            if book is not None:
                book.suspended(Cost(method, at, outcome.seconds, freed=outcome.freed))

    async def _resume(self, record: Record, step: Resume) -> None:
        # in its last moments it is brought back if the driver can, whatever is promised to others
        if step.reason != "FinalCheckpoint" and self._admission.concerns(record):
            short = await self._admission.admit(record)
            if short:
                record.acting = Acting.NOTHING
                self._wait_for_memory(record, short)
                self._changed()
                return
        record.admitted = True
        outcome = await self._try(self._methods.resume, record)
        record.admitted = outcome.ok
        self._finish(record, "resume", outcome)
        if outcome.code == INSUFFICIENT_GPU_MEMORY:  # a stranger was quicker
            self._wait_for_memory(record, outcome.message)
        if outcome.ok:
            self._metrics.resume.labels(record.method or step.trial.method or "unknown").observe(outcome.seconds)
            book = self._book_of(step.trial.pod_uid)
            if book is not None:
                book.resumed(outcome.seconds)

    async def _try(self, act: Callable[[tuple[Freezer, ...]], Awaitable[Outcome]], record: Record) -> Outcome:
        begin = time.monotonic()
        try:
            return await act(record.freezers)
        except Exception as error:  # whatever it is: the record must not say for ever that something is under way
            log.exception("%s: the suspension method failed unexpectedly", record.pod.name)
            return Outcome(False, time.monotonic() - begin, "Crashed", repr(error))

    def _finish(self, record: Record, what: str, outcome: Outcome) -> None:
        record.acting, record.done = Acting.NOTHING, record.acting if outcome.ok else Acting.NOTHING
        if outcome.ok:
            record.retry_at, record.trouble, record.short = 0.0, "", ""
        else:
            ending = record.kill_at(time.time()) is not None
            pause = min(HURRY_SECONDS, self._retry_seconds) if ending else self._retry_seconds
            record.retry_at = time.time() + pause
            record.trouble = f"{outcome.code}: {outcome.message}"
            self._metrics.failures.labels(what, outcome.code).inc()
            log.error("%s: %s failed, again in %.1f s: %s", record.pod.name, what, pause, record.trouble)
        log.info("%s: %s took %.1f ms (%s)", record.pod.name, what, outcome.seconds * 1000, outcome.code)
        self._changed()
