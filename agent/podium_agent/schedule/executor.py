"""Execution of the local scheduler's actions: open gates, send reasons, suspend and resume.

Each act is a task of its own. The node reconciler calls the executor. While an act on a trial is under way its pod
record says so, and the local scheduler decides nothing else for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass

from podium_agent.log_fields import about_pod
from podium_agent.metrics import Metrics
from podium_agent.observe.cgroups import Freezer
from podium_agent.observe.observer import Observer
from podium_agent.observe.pod_records import PodRecord
from podium_agent.report.trial_record import TrialRecord
from podium_agent.schedule.admissions import Admissions
from podium_agent.schedule.gate import Gates
from podium_agent.schedule.memory_admission import MemoryAdmission
from podium_cluster import clock
from podium_core.attempts.local_scheduler import Action, Admit, Resume, Suspend, Wait
from podium_core.attempts.local_trial import Acting
from podium_core.attempts.usage_ledger import SuspensionCost
from podium_core.schema.gpunode import INSUFFICIENT_GPU_MEMORY
from podium_suspension.base import SuspensionOutcome
from podium_suspension.methods import SuspensionMethods

log = logging.getLogger(__name__)
MEMORY_SECONDS = 1.0  # between two checks of the memory that a trial waits for
HURRY_SECONDS = 0.5  # between two attempts if the pod is about to be killed


@dataclass(frozen=True, slots=True)
class TrialStart:
    """The parts that let a trial start: gates, notes of admissions, and the memory of the GPUs."""

    gates: Gates
    admissions: Admissions
    memory: MemoryAdmission


@dataclass(frozen=True, slots=True)
class ExecutorHooks:
    """Functions that the executor calls.

    `trial_record_of` returns the record that costs are noted in; `changed` wakes the node reconciler when an act has
    ended.
    """

    trial_record_of: Callable[[str], TrialRecord | None]
    changed: Callable[[], None]


class Executor:
    """Start the local scheduler's actions as tasks, and record how each of them ended."""

    def __init__(
        self,
        observer: Observer,
        methods: SuspensionMethods,
        start: TrialStart,
        metrics: Metrics,
        retry_seconds: float,
        hooks: ExecutorHooks,
    ) -> None:
        self._observer = observer
        self._methods = methods
        self._gates = start.gates
        self._admissions = start.admissions
        self._memory = start.memory
        self._metrics = metrics
        self._retry_seconds = retry_seconds
        self._trial_record_of = hooks.trial_record_of
        self._changed = hooks.changed
        self._tasks: set[asyncio.Task[None]] = set()

    def execute(self, actions: Iterable[Action]) -> bool:
        """Start all actions; return True if one of them changes something."""
        acted = False
        for action in actions:
            record = self._observer.record(action.trial.pod.uid)
            if record is None or record.act.current is not Acting.NOTHING:
                continue
            with about_pod(record.pod, record.gpus):  # the tasks that it starts inherit the fields
                acted = self._execute(record, action) or acted
        return acted

    def _execute(self, record: PodRecord, action: Action) -> bool:
        """Start one action; return whether it changes something."""
        if isinstance(action, Wait):
            why = f"{action.reason}: {action.message}"
            self._gates.tell(action.trial.pod.uid, why)
            if action.trial.termination.deleting and record.act.trouble != why:
                record.act.trouble = why
                log.warning("%s is being deleted and remains suspended: %s", action.trial.pod.name, why)
            if action.reason == INSUFFICIENT_GPU_MEMORY and clock.now() >= record.act.retry_at:
                record.act.retry_at = clock.now() + MEMORY_SECONDS
                self._start(self._check_memory_again(record))
            return False
        log.info("%s: %s (%s)", action.trial.pod.name, type(action).__name__.lower(), action.reason)
        if isinstance(action, Admit):
            if self._memory.concerns(record):
                record.act.current = Acting.ADMITTING
                self._start(self._admit(record))
            else:
                self._open_gate(record)
        elif isinstance(action, Suspend):
            record.act.current = Acting.SUSPENDING
            self._start(self._suspend(record, action))
        else:
            record.act.current = Acting.RESUMING
            if action.reason == "FinalCheckpoint":
                self._metrics.last_calls.inc()
            self._start(self._resume(record, action))
        return True

    def _start(self, act: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _open_gate(self, record: PodRecord) -> None:
        self._admissions.note(record.pod, record.gpus)
        self._gates.open(record.pod.uid)
        self._metrics.grants.inc()

    async def _admit(self, record: PodRecord) -> None:
        memory_shortage = await self._memory.admit(record)
        record.act.current = Acting.NOTHING
        if memory_shortage:
            self._wait_for_memory(record, memory_shortage)
        else:
            record.memory.shortage = ""
            self._open_gate(record)
        self._changed()

    async def _check_memory_again(self, record: PodRecord) -> None:
        """Check whether a trial that waits for GPU memory could have it now."""
        record.memory.shortage = await self._memory.could(record)
        if not record.memory.shortage:
            record.act.retry_at = 0.0
            self._changed()

    def _wait_for_memory(self, record: PodRecord, memory_shortage: str) -> None:
        record.memory.shortage = memory_shortage
        record.act.retry_at = clock.now() + MEMORY_SECONDS
        self._metrics.failures.labels("admission", INSUFFICIENT_GPU_MEMORY).inc()
        log.warning("%s waits for GPU memory: %s", record.pod.name, memory_shortage)

    async def _suspend(self, record: PodRecord, action: Suspend) -> None:
        at = clock.now()
        method = action.trial.suspension.method
        outcome = await self._try(lambda targets: self._methods.suspend(method, targets), record)
        self._finish(record, "suspend", outcome)
        if not outcome.ok:
            if not outcome.is_shortage:
                record.suspension.failed.add(method)
        else:
            record.suspension.method = method
            record.memory.admitted = False
            self._metrics.suspend.labels(method).observe(outcome.seconds)
            trial_record = self._trial_record_of(action.trial.pod.uid)
            if trial_record is not None:
                trial_record.suspended(SuspensionCost(method, at, outcome.seconds, freed=outcome.freed))

    async def _resume(self, record: PodRecord, action: Resume) -> None:
        # for a final checkpoint it is resumed if the driver can, whatever is promised to others
        if action.reason != "FinalCheckpoint" and self._memory.concerns(record):
            memory_shortage = await self._memory.admit(record)
            if memory_shortage:
                record.act.current = Acting.NOTHING
                self._wait_for_memory(record, memory_shortage)
                self._changed()
                return
        record.memory.admitted = True
        outcome = await self._try(self._methods.resume, record)
        record.memory.admitted = outcome.ok
        self._finish(record, "resume", outcome)
        if outcome.code == INSUFFICIENT_GPU_MEMORY:  # another pod took the memory first
            self._wait_for_memory(record, outcome.message)
        if outcome.ok:
            method = record.suspension.method or action.trial.suspension.method or "unknown"
            self._metrics.resume.labels(method).observe(outcome.seconds)
            trial_record = self._trial_record_of(action.trial.pod.uid)
            if trial_record is not None:
                trial_record.resumed(outcome.seconds)

    async def _try(
        self, act: Callable[[tuple[Freezer, ...]], Awaitable[SuspensionOutcome]], record: PodRecord
    ) -> SuspensionOutcome:
        begin = time.monotonic()
        try:
            outcome = await act(record.processes.freezers)
        except Exception as error:  # any error: otherwise the record would show the act as under way permanently
            log.exception("%s: the suspension method failed unexpectedly", record.pod.name)
            return SuspensionOutcome(False, time.monotonic() - begin, "Crashed", repr(error))
        trial_record = self._trial_record_of(record.pod.uid)
        if outcome.ended and trial_record is not None:
            message = f"The GPU driver ended process {outcome.ended[0]} while it moved the memory of the trial."
            trial_record.note_driver_error(message, time.monotonic())
        return outcome

    def _finish(self, record: PodRecord, what: str, outcome: SuspensionOutcome) -> None:
        act = record.act
        act.current, act.done = Acting.NOTHING, act.current if outcome.ok else Acting.NOTHING
        if outcome.ok:
            act.retry_at, act.trouble, record.memory.shortage = 0.0, "", ""
        else:
            ending = record.kill_at(clock.now()) is not None
            pause = min(HURRY_SECONDS, self._retry_seconds) if ending else self._retry_seconds
            act.retry_at = clock.now() + pause
            act.trouble = f"{outcome.code}: {outcome.message}"
            self._metrics.failures.labels(what, outcome.code).inc()
            log.error("%s: %s failed, trying again in %.1f s: %s", record.pod.name, what, pause, act.trouble)
        log.info("%s: %s took %.1f ms (%s)", record.pod.name, what, outcome.seconds * 1000, outcome.code)
        self._changed()
