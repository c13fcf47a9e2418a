"""When a trial's agent writes its status: the rules of `podium_agent.report.trial_writer` on virtual time. Called by
`pods`.

A writer looks at its log every `Timing.log` seconds, and at once when the trial's state changes. A look that finds
something new writes it, but not within `Timing.report` of the write before; the first write is made when the pod's
containers begin, the last one a look after its process has ended, whatever was written before. So each trial has a
rhythm of its own. What is written is in the API `Timing.notice` later, and is all that the operator knows of curve, GPU
seconds and costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from podium_simulator.system.event_queue import Queue
from podium_simulator.system.scenario import Timing
from podium_simulator.system.state import Node, Trial, Written

_ROUNDING = 1e-9  # of sums of seconds: the fourth look after a write is not before its 2 s


@dataclass(slots=True, eq=False)
class _Desk:
    """Of one pod's writer. `looked`: any one of its looks, the others are whole `Timing.log` away; `act` counts plans:
    an older one is void.
    """

    act: int = 0
    looked: float = 0.0
    last: float = -math.inf  # write
    news: bool = True  # that it has begun
    ended: bool = False


class Writer:
    """`progress`: called when the operator sees what was written."""

    def __init__(self, queue: Queue, timing: Timing, progress: Callable[[Collection[Trial]], None]) -> None:
        self._queue = queue
        self._timing = timing
        self._progress = progress
        self._desks: dict[Trial, _Desk] = {}  # of pods that have begun
        self._owed: dict[Trial, tuple[Node, Written]] = {}  # of pods that ended where the agent was silent
        self.measured = 0  # another number whenever more is known of what suspensions take

    def begin(self, trial: Trial) -> None:
        """The agent has seen that the pod's containers begin."""
        self._desks[trial] = _Desk()
        self.wake(trial)

    def line(self, trial: Trial) -> None:
        """Its log has a new value, which is read at the next look."""
        desk = self._desks.get(trial)
        if desk is None or desk.news:
            return  # a write is to come already
        desk.news = True
        self._plan(trial, desk, self._queue.now)

    def wake(self, trial: Trial, *, news: bool = False) -> None:
        """Its state has changed: a look at once. `news`: and its record, by a hold or a cost."""
        desk = self._desks.get(trial)
        if desk is None or desk.ended:
            return
        desk.looked = self._queue.now
        desk.news |= news
        if desk.news:
            self._plan(trial, desk, self._queue.now)

    def end(self, trial: Trial) -> None:
        """Its process has: what it printed last is in its log by the next look."""
        desk = self._desks.get(trial)
        if desk is None:
            return
        desk.ended, desk.last, desk.looked = True, -math.inf, self._queue.now
        self._plan(trial, desk, self._queue.now + self._timing.log)

    def close(self, trial: Trial, node: Node | None) -> None:
        """Its pod says that it is over, which counts only once its record is whole, if its agent is there."""
        desk = self._desks.pop(trial, None)
        if desk is not None:
            desk.act += 1
        record = trial.record(self._queue.now)
        if node is not None and node.silent:
            self._owed[trial] = node, record
        else:
            self._set(trial, record)

    def back(self, node: Node) -> None:
        """Its agent is heard again, and writes all that it could not."""
        for trial in node.trials:
            desk = self._desks.get(trial)
            if desk is not None:
                desk.looked, desk.news = self._queue.now, True
                self._plan(trial, desk, self._queue.now)
        for trial in [trial for trial, (where, _) in self._owed.items() if where is node]:
            _, record = self._owed.pop(trial)
            self._queue.after(self._timing.notice, self._shown, trial, record)

    def _plan(self, trial: Trial, desk: _Desk, earliest: float) -> None:
        """The next write, at the first look that may make one."""
        self._at(desk, max(earliest, desk.last + self._timing.report), trial)

    def _at(self, desk: _Desk, time: float, trial: Trial) -> None:
        """To write at the first look from this time on, instead of what was planned before."""
        desk.act += 1
        every = self._timing.log
        if every > 0.0:
            time = desk.looked + math.ceil((time - desk.looked) / every - _ROUNDING) * every
        self._queue.at(time, self._write, trial, desk, guard=desk)

    def _write(self, trial: Trial, desk: _Desk) -> None:
        if trial.node is None or not trial.node.up or trial.node.silent:
            return  # nobody is left to tell, or there will be (`back`)
        now = self._queue.now
        desk.last, desk.looked, desk.news = now, now, False
        self._queue.after(self._timing.notice, self._shown, trial, trial.record(now))
        if trial.held_since is not None and self._timing.turn_report < math.inf:
            self._at(desk, now + self._timing.turn_report, trial)

    def _shown(self, trial: Trial, written: Written) -> None:
        if written.at >= trial.written.at:
            self._set(trial, written)
            trial.see(trial.view.phase)
            self._progress((trial,))

    def _set(self, trial: Trial, written: Written) -> None:
        old, trial.written = trial.written, written
        if old.ways != written.ways:
            self.measured += 1
