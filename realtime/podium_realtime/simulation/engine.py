"""Runs a dispatcher on the simulated GPU in virtual time, and keeps what happened.

Events: releases, a thread that is free to launch, the device's begin, the lock's release, ends of executions.
Executions share the SMs (`SimulatedGpu.rates`), so whenever the set of running stages changes all rates do.
Deterministic for a seed.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from podium_realtime.model.profile import Profiles
from podium_realtime.model.task import PeriodicTask
from podium_realtime.record.run import Run, Span
from podium_realtime.scheduling.base import Policy
from podium_realtime.scheduling.dispatcher import Dispatcher
from podium_realtime.scheduling.pool import ContextSpec
from podium_realtime.scheduling.work import Work
from podium_realtime.simulation.gpu import Share, SimulatedGpu

_RELEASE, _ASK, _LAUNCHED, _UNLOCK = 0, 1, 2, 3
_DONE = 1e-12  # of a reference network: what is left after rounding


@dataclass(slots=True)
class _Running:
    work: Work
    share: Share
    left: float
    began: float
    rate: float = 0.0


@dataclass(slots=True)
class _Lock:
    """One process: is its launch lock held, who waits for it."""

    held: bool = False
    waiting: deque[Work] = field(default_factory=deque)


def simulate(
    gpu: SimulatedGpu,
    tasks: Sequence[PeriodicTask],
    pool: Sequence[ContextSpec],
    profiles: Profiles,
    policy: Policy,
    seconds: float,
    *,
    seed: int = 0,
    patience: float = 0.0,
    keep_spans: bool = False,
) -> Run:
    """`seconds` of virtual time. Raises RealtimeError on tasks or pools that cannot be."""
    engine = _Engine(gpu, pool, Dispatcher(tasks, pool, profiles, policy, patience), seed, keep_spans)
    return engine.run(tasks, seconds)


class _Engine:
    def __init__(
        self, gpu: SimulatedGpu, pool: Sequence[ContextSpec], dispatcher: Dispatcher, seed: int, keep_spans: bool
    ) -> None:
        self._gpu = gpu
        self._dispatcher = dispatcher
        self._random = np.random.default_rng(seed)
        self._noise: list[float] = []
        self._now = 0.0
        self._order = 0
        self._events: list[tuple[float, int, int, object]] = []
        self._locks = [_Lock() for _ in (pool[:1] if gpu.shared_process else pool)]
        self._launched: set[int] = set()  # works that may run once their stream is free
        self._threads: dict[tuple[int, int], float] = {}  # until when each stream's thread is busy launching
        self._running: list[_Running] = []
        self._spans: list[Span] | None = [] if keep_spans else None

    def run(self, tasks: Sequence[PeriodicTask], seconds: float) -> Run:
        for task in tasks:
            self._at(task.offset, _RELEASE, (task, 0))
        while True:
            ending = self._next_end()
            upcoming = self._events[0][0] if self._events else float("inf")
            moment = min(ending, upcoming)
            if moment > seconds:
                break
            self._advance(moment)
            if ending <= upcoming:
                self._end_executions()
            while self._events and self._events[0][0] <= self._now:
                _, kind, _, what = heapq.heappop(self._events)
                self._handle(kind, what)
            for work in self._dispatcher.dispatch(self._now):
                self._launch(work)
            self._start_executions()
        self._dispatcher.close()
        return Run(seconds, tuple(self._dispatcher.ends), tuple(self._spans or ()))

    def _at(self, moment: float, kind: int, what: object) -> None:
        heapq.heappush(self._events, (moment, kind, self._order, what))
        self._order += 1

    def _handle(self, kind: int, what: object) -> None:
        if kind == _RELEASE:
            assert isinstance(what, tuple)
            task, number = what
            self._dispatcher.release(task.name, self._now)
            self._at(task.offset + (number + 1) * task.period, _RELEASE, (task, number + 1))
            return
        assert isinstance(what, Work)
        if kind == _ASK:
            self._ask(what)
        elif kind == _LAUNCHED:
            self._launched.add(what.number)
        else:
            lock = self._lock(what)
            lock.held = False
            if lock.waiting:
                self._take(lock, lock.waiting.popleft())

    def _launch(self, work: Work) -> None:
        """The stream's own thread launches, once it is done with what it launched before."""
        free = self._threads.get((work.context, work.stream), 0.0)
        if free > self._now:
            self._at(free, _ASK, work)
        else:
            self._ask(work)

    def _ask(self, work: Work) -> None:
        lock = self._lock(work)
        if lock.held:
            lock.waiting.append(work)
        else:
            self._take(lock, work)

    def _take(self, lock: _Lock, work: Work) -> None:
        lock.held = True
        threads = sum(
            context.heads
            for context in self._dispatcher.contexts
            if self._gpu.shared_process or context.spec.number == work.context
        )
        # a batch is launched once
        scale = work.stages[0].stage.launches * self._gpu.slowdown(threads) * self._jitter()
        self._at(self._now + scale * self._gpu.exposed, _LAUNCHED, work)
        self._at(self._now + scale * self._gpu.locked, _UNLOCK, work)
        self._threads[(work.context, work.stream)] = self._now + scale * self._gpu.launch

    def _lock(self, work: Work) -> _Lock:
        return self._locks[0 if self._gpu.shared_process else work.context]

    def _start_executions(self) -> None:
        """Launched works at the head of their streams get SMs."""
        if not self._launched:
            return
        changed = False
        for context in self._dispatcher.contexts:
            for stream in context.streams:
                if stream and stream[0].number in self._launched:
                    work = stream[0]
                    self._launched.remove(work.number)
                    share = Share(work.context, context.spec.sms, work.priority, work.batch)
                    left = work.stages[0].stage.work * self._jitter()
                    self._running.append(_Running(work, share, left, self._now))
                    changed = True
        if changed:
            self._set_rates()

    def _end_executions(self) -> None:
        ended = [one for one in self._running if one.left <= _DONE]
        self._running = [one for one in self._running if one.left > _DONE]
        for one in ended:
            if self._spans is not None:
                self._spans.append(Span(one.work, one.began, self._now))
            self._dispatcher.finish(one.work.number, self._now)
        self._set_rates()

    def _set_rates(self) -> None:
        rates = self._gpu.rates([one.share for one in self._running])
        for one, rate in zip(self._running, rates, strict=True):
            one.rate = rate

    def _next_end(self) -> float:
        return self._now + min((one.left / one.rate for one in self._running), default=float("inf"))

    def _advance(self, moment: float) -> None:
        passed = moment - self._now
        for one in self._running:
            one.left -= passed * one.rate
            # what would end within rounding of this instant ends now: time must move on
            if one.left < 1e-9 * one.rate:
                one.left = 0.0
        self._now = moment

    def _jitter(self) -> float:
        """A factor with median 1, cut at three standard deviations so that a worst case exists."""
        width = self._gpu.interference.jitter
        if width == 0.0:
            return 1.0
        if not self._noise:
            draws = np.clip(self._random.standard_normal(4096), -3.0, 3.0)
            self._noise = np.exp(width * draws).tolist()
        return self._noise.pop()
