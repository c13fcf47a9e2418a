"""Discrete-event simulation: runs the dispatcher on the simulated GPU in virtual time. Deterministic for a seed.

Events are releases, launch requests, completed launches and releases of the launch lock. Concurrent executions share
the SMs, so whenever the set of running batches changes, all rates change (`SimulatedGpu.rates`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from podium_realtime.model.profile import Profiles
from podium_realtime.model.task import PeriodicTask
from podium_realtime.results.trace import BatchExecution, ScheduleTrace
from podium_realtime.scheduling.dispatcher import Dispatcher
from podium_realtime.scheduling.jobs import StageBatch
from podium_realtime.scheduling.policy import SchedulingPolicy
from podium_realtime.scheduling.pool import ContextSpec
from podium_realtime.simulation.gpu import RunningStage, SimulatedGpu

_RELEASE, _REQUEST_LAUNCH, _LAUNCHED, _UNLOCK = 0, 1, 2, 3
_DONE = 1e-12  # remaining work (of a reference network) that counts as none, because of rounding


@dataclass(slots=True)
class _RunningBatch:
    """A batch on the device. `remaining` is its work in reference networks, `rate` its progress a second."""

    batch: StageBatch
    stage: RunningStage
    remaining: float
    started: float
    rate: float = 0.0


@dataclass(slots=True)
class _LaunchLock:
    """The launch lock of one process, and the batches that wait for it."""

    held: bool = False
    waiting: deque[StageBatch] = field(default_factory=deque)


def simulate(
    gpu: SimulatedGpu,
    tasks: Sequence[PeriodicTask],
    pool: Sequence[ContextSpec],
    profiles: Profiles,
    policy: SchedulingPolicy,
    seconds: float,
    *,
    seed: int = 0,
    patience: float = 0.0,
    keep_executions: bool = False,
) -> ScheduleTrace:
    """Simulate `seconds` of virtual time. Raises RealtimeError if tasks, pool or profiles are invalid.

    `patience`: see Dispatcher.
    `keep_executions`: record every executed batch in the trace.
    """
    engine = _Engine(gpu, pool, Dispatcher(tasks, pool, profiles, policy, patience), seed, keep_executions)
    return engine.run(tasks, seconds)


class _Engine:
    def __init__(
        self, gpu: SimulatedGpu, pool: Sequence[ContextSpec], dispatcher: Dispatcher, seed: int, keep_executions: bool
    ) -> None:
        self._gpu = gpu
        self._dispatcher = dispatcher
        self._random = np.random.default_rng(seed)
        self._noise: list[float] = []
        self._now = 0.0
        self._event_number = 0
        self._events: list[tuple[float, int, int, object]] = []
        self._locks = [_LaunchLock() for _ in (pool[:1] if gpu.shared_process else pool)]
        self._launched: set[int] = set()  # batches that may run as soon as they are first on their stream
        self._busy_until: dict[tuple[int, int], float] = {}  # when each stream's thread completes its launch
        self._running: list[_RunningBatch] = []
        self._executions: list[BatchExecution] | None = [] if keep_executions else None

    def run(self, tasks: Sequence[PeriodicTask], seconds: float) -> ScheduleTrace:
        """Simulate until `seconds` and return the trace."""
        for task in tasks:
            self._schedule(task.offset, _RELEASE, (task, 0))
        while True:
            next_end = self._next_end()
            next_event = self._events[0][0] if self._events else float("inf")
            instant = min(next_end, next_event)
            if instant > seconds:
                break
            self._advance(instant)
            if next_end <= next_event:
                self._end_executions()
            while self._events and self._events[0][0] <= self._now:
                _, kind, _, payload = heapq.heappop(self._events)
                self._handle(kind, payload)
            for batch in self._dispatcher.dispatch(self._now):
                self._launch(batch)
            self._start_executions()
        self._dispatcher.close()
        return ScheduleTrace(seconds, tuple(self._dispatcher.results), tuple(self._executions or ()))

    def _schedule(self, instant: float, kind: int, payload: object) -> None:
        heapq.heappush(self._events, (instant, kind, self._event_number, payload))
        self._event_number += 1

    def _handle(self, kind: int, payload: object) -> None:
        if kind == _RELEASE:
            assert isinstance(payload, tuple)
            task, number = payload
            self._dispatcher.release(task.name, self._now)
            self._schedule(task.offset + (number + 1) * task.period, _RELEASE, (task, number + 1))
            return
        assert isinstance(payload, StageBatch)
        if kind == _REQUEST_LAUNCH:
            self._request_launch(payload)
        elif kind == _LAUNCHED:
            self._launched.add(payload.number)
        else:
            lock = self._lock(payload)
            lock.held = False
            if lock.waiting:
                self._acquire(lock, lock.waiting.popleft())

    def _launch(self, batch: StageBatch) -> None:
        """Launch a batch on its stream's thread, once that thread has completed its previous launch."""
        free = self._busy_until.get((batch.context, batch.stream), 0.0)
        if free > self._now:
            self._schedule(free, _REQUEST_LAUNCH, batch)
        else:
            self._request_launch(batch)

    def _request_launch(self, batch: StageBatch) -> None:
        lock = self._lock(batch)
        if lock.held:
            lock.waiting.append(batch)
        else:
            self._acquire(lock, batch)

    def _acquire(self, lock: _LaunchLock, batch: StageBatch) -> None:
        """Acquire the launch lock and schedule the end of the launch."""
        lock.held = True
        threads = sum(
            context.in_flight
            for context in self._dispatcher.contexts
            if self._gpu.shared_process or context.spec.number == batch.context
        )
        # a batch is launched once, whatever its size
        scale = batch.stages[0].stage.launches * self._gpu.launch_slowdown(threads) * self._jitter()
        self._schedule(self._now + scale * self._gpu.exposed_launch_time, _LAUNCHED, batch)
        self._schedule(self._now + scale * self._gpu.locked_launch_time, _UNLOCK, batch)
        self._busy_until[(batch.context, batch.stream)] = self._now + scale * self._gpu.launch_time

    def _lock(self, batch: StageBatch) -> _LaunchLock:
        return self._locks[0 if self._gpu.shared_process else batch.context]

    def _start_executions(self) -> None:
        """Start the launched batches that are first on their streams."""
        if not self._launched:
            return
        changed = False
        for context in self._dispatcher.contexts:
            for stream in context.streams:
                if stream and stream[0].number in self._launched:
                    batch = stream[0]
                    self._launched.remove(batch.number)
                    stage = RunningStage(batch.context, context.spec.sms, batch.priority, batch.size)
                    remaining = batch.stages[0].stage.work * self._jitter()
                    self._running.append(_RunningBatch(batch, stage, remaining, self._now))
                    changed = True
        if changed:
            self._set_rates()

    def _end_executions(self) -> None:
        ended = [running for running in self._running if running.remaining <= _DONE]
        self._running = [running for running in self._running if running.remaining > _DONE]
        for running in ended:
            if self._executions is not None:
                self._executions.append(BatchExecution(running.batch, running.started, self._now))
            self._dispatcher.finish(running.batch.number, self._now)
        self._set_rates()

    def _set_rates(self) -> None:
        rates = self._gpu.rates([running.stage for running in self._running])
        for running, rate in zip(self._running, rates, strict=True):
            running.rate = rate

    def _next_end(self) -> float:
        return self._now + min((running.remaining / running.rate for running in self._running), default=float("inf"))

    def _advance(self, instant: float) -> None:
        elapsed = instant - self._now
        for running in self._running:
            running.remaining -= elapsed * running.rate
            # a batch that would end within rounding of this instant ends now, so that time always advances
            if running.remaining < 1e-9 * running.rate:
                running.remaining = 0.0
        self._now = instant

    def _jitter(self) -> float:
        """Return a random factor with median 1, limited to three standard deviations so that a worst case exists."""
        width = self._gpu.interference.jitter
        if width == 0.0:
            return 1.0
        if not self._noise:
            draws = np.clip(self._random.standard_normal(4096), -3.0, 3.0)
            self._noise = np.exp(width * draws).tolist()
        return self._noise.pop()
