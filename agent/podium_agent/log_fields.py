"""Which job, trial, pod and GPUs the records of the agent's log are about (`podium_cluster.component.logs`).

The node is in every record of an agent.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager

from podium_agent.observe.pods import TrialPod
from podium_cluster.component.logs import about


def about_pod(pod: TrialPod, gpus: Collection[str] = ()) -> AbstractContextManager[None]:
    """Name a trial's pod and its GPUs in all records of the block, and of the tasks that it starts."""
    key = pod.key
    return about(namespace=key.namespace, job=pod.job, trial=key.name, pod=pod.name, gpu=",".join(gpus))
