"""Since when each GPU has its holder, and the tenure of its job, by the operator's clock.

A new operator knows only the present holder, so a time slice between jobs may be longer once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.tenure import Tenure, held, idle
from podium_core.schema.gpunode import GPUNode

NodeGpu = tuple[str, str]  # node, GPU


@dataclass(slots=True)
class HolderTimes:
    """Time at which the holder of each GPU got it, by the operator's clock.

    The operator measures minimum time slices by its own clock, and the clocks of nodes differ. So it uses only a
    difference of two of the agent's times: how long the holder had held the GPU when the report was written
    (`updatedAt` minus `since`). A report is observed after it was written. The time slice therefore started at least
    that long before the observation, and the earliest start that any report implies is kept. A new operator first
    reads an old report, so it underestimates the time slice by the age of that report until the agent's next one. The
    offset between the clocks never matters.

    Each entry holds the trial's uid, the start by the agent's clock and the start by the operator's.
    """

    _known: dict[NodeGpu, tuple[str, datetime, float]] = field(default_factory=dict)

    def update(self, nodes: Iterable[GPUNode], now: float) -> Mapping[NodeGpu, float]:
        """Return, by node and GPU, when the holder's time slice started (the operator's clock)."""
        current: dict[NodeGpu, tuple[str, datetime, float]] = {}
        for node in nodes:
            written = node.status.updated_at
            for gpu in node.status.gpus:
                if gpu.holder is None:
                    continue
                node_gpu, uid, since = (node.metadata.name, gpu.uuid), gpu.holder.uid, gpu.holder.since
                began = now - (max(0.0, (written - since).total_seconds()) if written else 0.0)
                before = self._known.get(node_gpu)
                if before is not None and before[:2] == (uid, since):
                    began = min(began, before[2])
                current[node_gpu] = uid, since, began
        self._known = current
        return {node_gpu: began for node_gpu, (_, _, began) in current.items()}


@dataclass(slots=True)
class Tenures:
    """Tenure of each GPU."""

    _known: dict[NodeGpu, Tenure] = field(default_factory=dict)

    def update(
        self,
        nodes: Iterable[GPUNode],
        holder_since: Mapping[NodeGpu, float],
        job_of: Callable[[TrialKey], JobKey | None],
        now: float,
    ) -> Mapping[NodeGpu, Tenure]:
        """Return the tenures, by node and GPU; none for a GPU without a holder, or one whose job is not known.

        `holder_since`: when each holder got its GPU. `job_of`: returns the job of a trial, None if it is not known.
        """
        current: dict[NodeGpu, Tenure] = {}
        found: dict[NodeGpu, Tenure] = {}
        for node in nodes:
            for gpu in node.status.gpus:
                at = node.metadata.name, gpu.uuid
                tenure = self._known.get(at)
                if (holder := gpu.holder) is None:
                    tenure = idle(tenure, now)
                else:
                    key = TrialKey(holder.namespace, holder.trial, holder.uid)
                    if (job := job_of(key)) is not None:
                        tenure = found[at] = held(tenure, job, key, holder_since[at])
                if tenure is not None:
                    current[at] = tenure
        self._known = current
        return found
