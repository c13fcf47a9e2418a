"""What placement may know of how much each GPU works and holds: as of the last report of its node's agent. Called by
`pods`, which changes it and places by it, and by `nodes` where an agent falls silent.

An agent reports at whole `Timing.telemetry` seconds. Nobody looks in between, so no report is an event: what a GPU did
at the last one is noted when it changes. Trials and shares are always as they are, for the extender watches pods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from podium_simulator.system.event_queue import Queue
from podium_simulator.system.state import Node, Trial, Use


class Telemetry:
    def __init__(self, queue: Queue, period: float, nodes: Sequence[Node]) -> None:
        self._queue = queue
        self._period = period
        self._nodes = nodes
        self.lags = period > 0.0
        if self.lags:
            for gpu in (gpu for node in nodes for gpu in node.gpus):
                gpu.shown = Use()

    def changes(self, node: Node) -> None:
        """To be called before a trial comes, goes, or begins or ceases to work there; need not be unless it `lags`."""
        if self.lags:
            self._report(node)
            for gpu in node.gpus:
                gpu.changed = self._queue.now

    def refresh(self) -> None:
        """To be called before somebody is placed: `Gpu.shown` is as of the last report then."""
        if self.lags:
            for node in self._nodes:
                self._report(node)

    def silent(self, node: Node) -> None:
        """To be called before its agent is: what it said last stays."""
        self._report(node)
        if not self.lags:
            for gpu in node.gpus:
                gpu.shown = use(gpu.trials)

    def speaks(self, node: Node) -> None:
        """To be called when it is heard again, and reports at once."""
        for gpu in node.gpus:
            gpu.shown = use(gpu.trials) if self.lags else None
            gpu.changed = self._queue.now

    def _report(self, node: Node) -> None:
        if node.silent or not self.lags:
            return
        last = math.floor(self._queue.now / self._period) * self._period
        for gpu in node.gpus:
            if gpu.changed <= last:
                gpu.shown = use(gpu.trials)


def use(here: Sequence[Trial]) -> Use:
    """Of a GPU with these trials, now."""
    return Use(work(here), kept(here))


def work(here: Sequence[Trial]) -> float:
    """Percent."""
    return 100.0 if any(trial.occupies for trial in here) else 0.0


def kept(here: Sequence[Trial]) -> int:
    """Bytes, by the ledger: what stays on the GPU whoever works."""
    return sum([trial.job.view.memory or 0 for trial in here if trial.job.spec.method.keeps_memory])
