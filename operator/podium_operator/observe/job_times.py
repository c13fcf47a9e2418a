"""When the tenure of each GPU's job began, by the operator's clock (`podium_core.domain.tenure`).

A new operator knows only the present holder. Time slices between jobs are then longer once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.tenure import Tenure, continued
from podium_core.schema.gpunode import GPUNode

NodeGpu = tuple[str, str]  # node, GPU


@dataclass(slots=True)
class JobTimes:
    """Tenure of each GPU, kept while the GPU has no holder for a moment."""

    _known: dict[NodeGpu, Tenure] = field(default_factory=dict)

    def update(
        self,
        nodes: Iterable[GPUNode],
        holder_since: Mapping[NodeGpu, float],
        job_of: Callable[[TrialKey], JobKey | None],
    ) -> Mapping[NodeGpu, float]:
        """Return, by node and GPU, when the tenure of the holder's job began.

        `holder_since`: when each holder got its GPU. `job_of`: returns the job of a trial, None if it is not known.
        """
        current: dict[NodeGpu, Tenure] = {}
        found: dict[NodeGpu, float] = {}
        for node in nodes:
            for gpu in node.status.gpus:
                at = node.metadata.name, gpu.uuid
                tenure = self._known.get(at)
                if (holder := gpu.holder) is not None and at in holder_since:
                    key = TrialKey(holder.namespace, holder.trial, holder.uid)
                    if (job := job_of(key)) is not None:
                        present = {TrialKey(one.namespace, one.trial, one.uid) for one in gpu.trials}
                        tenure = continued(tenure, job, key, holder_since[at], present)
                        found[at] = tenure.start(present)
                if tenure is not None:
                    current[at] = tenure
        self._known = current
        return found
