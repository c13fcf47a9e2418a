"""Writing of trial statuses by agents, on virtual time.

The rules are those of `podium_agent.report.trial_writer`.

`pods` calls it. A writer reads its log every `Timing.log` seconds, and at once when the trial's state changes. When a
read finds something new, the status is written, but not within `Timing.report` of the write before. The first write
happens when the pod's containers start. The last one happens one read after its process has ended, whatever was written
before. So each trial has a rhythm of its own.

A write is in the API `Timing.notice` later. It is all that the operator knows of curve, GPU-seconds and costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from podium_simulator.system.event_queue import Queue
from podium_simulator.system.scenario import Timing
from podium_simulator.system.state import Node, Trial, Written

_ROUNDING = 1e-9  # rounding of sums of seconds: the fourth read after a write must not be before its 2 s


@dataclass(slots=True, eq=False)
class _Desk:
    """Writer of one pod.

    `read_at`: time of any one of its reads; the others are whole multiples of `Timing.log` away. `version` counts
    plans: an older one is void.
    """

    act: int = 0
    looked: float = 0.0
    last: float = -math.inf  # time of the last write
    news: bool = True  # that it has started
    ended: bool = False


class Writer:
    """All writers. `progress`: called when the operator sees what was written."""

    def __init__(self, queue: Queue, timing: Timing, progress: Callable[[Collection[Trial]], None]) -> None:
        self._queue = queue
        self._timing = timing
        self._progress = progress
        self._desks: dict[Trial, _Desk] = {}  # of pods that have started
        self._owed: dict[Trial, tuple[Node, Written]] = {}  # of pods that ended while the agent was silent
        self.measured = 0  # changes whenever more is known of what suspensions take

    def begin(self, trial: Trial) -> None:
        """Start a writer: the agent has seen the pod's containers start."""
        self._desks[trial] = _Desk()
        self.wake(trial)

    def line(self, trial: Trial) -> None:
        """Note a new value in the log, which the next read finds."""
        desk = self._desks.get(trial)
        if desk is None or desk.news:
            return  # a write is scheduled already
        desk.news = True
        self._plan(trial, desk, self._queue.now)

    def wake(self, trial: Trial, *, news: bool = False) -> None:
        """Read at once, because the trial's state changed. `news`: its record changed too."""
        desk = self._desks.get(trial)
        if desk is None or desk.ended:
            return
        desk.looked = self._queue.now
        desk.news |= news
        if desk.news:
            self._plan(trial, desk, self._queue.now)

    def end(self, trial: Trial) -> None:
        """Note the end of the process: the next read finds what it printed last."""
        desk = self._desks.get(trial)
        if desk is None:
            return
        desk.ended, desk.last, desk.looked = True, -math.inf, self._queue.now
        self._plan(trial, desk, self._queue.now + self._timing.log)

    def close(self, trial: Trial, node: Node | None) -> None:
        """Close the writer of an ended pod.

        The end counts only once its record is complete, if its agent is present.
        """
        desk = self._desks.pop(trial, None)
        if desk is not None:
            desk.act += 1
        record = trial.record(self._queue.now)
        if node is not None and node.silent:
            self._owed[trial] = node, record
        else:
            self._set(trial, record)

    def back(self, node: Node) -> None:
        """Write everything that waited for a silent agent that is heard again."""
        for trial in node.trials:
            desk = self._desks.get(trial)
            if desk is not None:
                desk.looked, desk.news = self._queue.now, True
                self._plan(trial, desk, self._queue.now)
        for trial in [trial for trial, (where, _) in self._owed.items() if where is node]:
            _, record = self._owed.pop(trial)
            self._queue.after(self._timing.notice, self._shown, trial, record)

    def _plan(self, trial: Trial, desk: _Desk, earliest: float) -> None:
        """Schedule the next write at the first read that may cause one."""
        self._at(desk, max(earliest, desk.last + self._timing.report), trial)

    def _at(self, desk: _Desk, time: float, trial: Trial) -> None:
        """Schedule a write at the first read from this time on, instead of the previous schedule."""
        desk.act += 1
        every = self._timing.log
        if every > 0.0:
            time = desk.looked + math.ceil((time - desk.looked) / every - _ROUNDING) * every
        self._queue.at(time, self._write, trial, desk, guard=desk)

    def _write(self, trial: Trial, desk: _Desk) -> None:
        if trial.node is None or not trial.node.up or trial.node.silent:
            return  # no agent is left to write, or it will catch up (`catch_up`)
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
