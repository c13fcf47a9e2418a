"""Load and memory of each GPU as placement knows them: as of the last report of its node's agent.

`pods` changes it and places by it; `nodes` calls it where an agent falls silent. An agent reports at whole multiples of
`Timing.telemetry` seconds. Nothing reads it in between, so a report is not an event: the use at the last report is
recorded when it changes. Trials and slots are always current, because the extender watches pods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from podium_simulator.system.event_queue import EventQueue
from podium_simulator.system.state import GpuUse, Node, Trial


class Telemetry:
    def __init__(self, queue: EventQueue, period: float, nodes: Sequence[Node]) -> None:
        self._queue = queue
        self._period = period
        self._nodes = nodes
        self.lags = period > 0.0
        if self.lags:
            for gpu in (gpu for node in nodes for gpu in node.gpus):
                gpu.reported = GpuUse()

    def record_change(self, node: Node) -> None:
        """Record the use before a trial is placed, removed, starts or stops there; needed only if it `lags`."""
        if self.lags:
            self._report(node)
            for gpu in node.gpus:
                gpu.changed = self._queue.now

    def refresh(self) -> None:
        """Bring `Gpu.reported` up to date before a pod is placed."""
        if self.lags:
            for node in self._nodes:
                self._report(node)

    def falls_silent(self, node: Node) -> None:
        """Keep the last report before the node's agent falls silent."""
        self._report(node)
        if not self.lags:
            for gpu in node.gpus:
                gpu.reported = gpu_use(gpu.trials)

    def heard_again(self, node: Node) -> None:
        """Report at once when the agent is heard again."""
        for gpu in node.gpus:
            gpu.reported = gpu_use(gpu.trials) if self.lags else None
            gpu.changed = self._queue.now

    def _report(self, node: Node) -> None:
        if node.silent or not self.lags:
            return
        last = math.floor(self._queue.now / self._period) * self._period
        for gpu in node.gpus:
            if gpu.changed <= last:
                gpu.reported = gpu_use(gpu.trials)


def gpu_use(here: Sequence[Trial]) -> GpuUse:
    """Return the use of a GPU with these trials now."""
    return GpuUse(load_percent(here), reserved_bytes(here))


def load_percent(here: Sequence[Trial]) -> float:
    """Return the load in percent."""
    return 100.0 if any(trial.pod.occupies for trial in here) else 0.0


def reserved_bytes(here: Sequence[Trial]) -> int:
    """Return the bytes of the trials whose memory remains on the GPU while they are suspended."""
    return sum([trial.job.view.gpus.memory or 0 for trial in here if trial.job.spec.method.keeps_memory])
