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

from podium_simulator.system.event_queue import EventQueue
from podium_simulator.system.inputs.scenario import Timing
from podium_simulator.system.state import Node, Trial
from podium_simulator.system.trial_state import WrittenStatus

_ROUNDING = 1e-9  # rounding of sums of seconds: the fourth read after a write must not be before its 2 s


@dataclass(slots=True, eq=False)
class _PodWriter:
    """Writer of one pod.

    `read_at`: time of any one of its reads; the others are whole multiples of `Timing.log` away. `version` counts
    plans: an older one is void.
    """

    version: int = 0
    read_at: float = 0.0
    last_write: float = -math.inf  # time of the last write
    news: bool = True  # that it has started
    ended: bool = False


class StatusWriter:
    """All writers. `progress`: called when the operator sees what was written."""

    def __init__(self, queue: EventQueue, timing: Timing, progress: Callable[[Collection[Trial]], None]) -> None:
        self._queue = queue
        self._timing = timing
        self._progress = progress
        self._writers: dict[Trial, _PodWriter] = {}  # of pods that have started
        self._postponed: dict[Trial, tuple[Node, WrittenStatus]] = {}  # of pods that ended while the agent was silent
        self.measured = 0  # changes whenever more is known of what suspensions take

    def start(self, trial: Trial) -> None:
        """Start a writer: the agent has seen the pod's containers start."""
        self._writers[trial] = _PodWriter()
        self.wake(trial)

    def note_value(self, trial: Trial) -> None:
        """Note a new value in the log, which the next read finds."""
        writer = self._writers.get(trial)
        if writer is None or writer.news:
            return  # a write is scheduled already
        writer.news = True
        self._schedule_next(trial, writer, self._queue.now)

    def wake(self, trial: Trial, *, news: bool = False) -> None:
        """Read at once, because the trial's state changed. `news`: its record changed too."""
        writer = self._writers.get(trial)
        if writer is None or writer.ended:
            return
        writer.read_at = self._queue.now
        writer.news |= news
        if writer.news:
            self._schedule_next(trial, writer, self._queue.now)

    def process_ended(self, trial: Trial) -> None:
        """Note the end of the process: the next read finds what it printed last."""
        writer = self._writers.get(trial)
        if writer is None:
            return
        writer.ended, writer.last_write, writer.read_at = True, -math.inf, self._queue.now
        self._schedule_next(trial, writer, self._queue.now + self._timing.log)

    def close(self, trial: Trial, node: Node | None) -> None:
        """Close the writer of an ended pod.

        The end counts only once its record is complete, if its agent is present.
        """
        writer = self._writers.pop(trial, None)
        if writer is not None:
            writer.version += 1
        record = trial.record(self._queue.now)
        if node is not None and node.silent:
            self._postponed[trial] = node, record
        else:
            self._set(trial, record)

    def catch_up(self, node: Node) -> None:
        """Write everything that waited for a silent agent that is heard again."""
        for trial in node.trials:
            writer = self._writers.get(trial)
            if writer is not None:
                writer.read_at, writer.news = self._queue.now, True
                self._schedule_next(trial, writer, self._queue.now)
        for trial in [trial for trial, (where, _) in self._postponed.items() if where is node]:
            _, record = self._postponed.pop(trial)
            self._queue.after(self._timing.notice, self._publish, trial, record)

    def _schedule_next(self, trial: Trial, writer: _PodWriter, earliest: float) -> None:
        """Schedule the next write at the first read that may cause one."""
        self._schedule(writer, max(earliest, writer.last_write + self._timing.report), trial)

    def _schedule(self, writer: _PodWriter, time: float, trial: Trial) -> None:
        """Schedule a write at the first read from this time on, instead of the previous schedule."""
        writer.version += 1
        every = self._timing.log
        if every > 0.0:
            time = writer.read_at + math.ceil((time - writer.read_at) / every - _ROUNDING) * every
        self._queue.at(time, self._write, trial, writer, guard=writer)

    def _write(self, trial: Trial, writer: _PodWriter) -> None:
        node = trial.pod.node
        if node is None or not node.up or node.silent:
            return  # no agent is left to write, or it will catch up (`catch_up`)
        now = self._queue.now
        writer.last_write, writer.read_at, writer.news = now, now, False
        self._queue.after(self._timing.notice, self._publish, trial, trial.record(now))
        if trial.gpu_time.held_since is not None and self._timing.holder_report < math.inf:
            self._schedule(writer, now + self._timing.holder_report, trial)

    def _publish(self, trial: Trial, written_status: WrittenStatus) -> None:
        if written_status.at >= trial.written_status.at:
            self._set(trial, written_status)
            trial.publish(trial.view.phase)
            self._progress((trial,))

    def _set(self, trial: Trial, written_status: WrittenStatus) -> None:
        old, trial.written_status = trial.written_status, written_status
        if old.totals != written_status.totals:
            self.measured += 1
