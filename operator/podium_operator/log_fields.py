"""Which job, trial, pod, node and GPU the records of the operator's log are about (`podium_cluster.component.logs`)."""

from __future__ import annotations

from contextlib import AbstractContextManager

from podium_cluster.component.logs import about
from podium_core.domain.actions import Action, CreateTrial, EndJob, WriteRunQueues
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.trial_state import TrialState


def about_item(item: TrialState | HyperParamTrial | HyperParamJob) -> AbstractContextManager[None]:
    """Name a job, or a trial with its pod, node and GPUs, in all records of the block."""
    meta = item.metadata
    if isinstance(item, HyperParamJob):
        return about(namespace=meta.namespace, job=meta.name)
    status = item.status
    return about(
        namespace=meta.namespace,
        job=item.spec.job,
        trial=meta.name,
        pod=status.pod or "",
        node=status.node or "",
        gpu=",".join(status.gpus),
    )


def about_action(cluster: ClusterState, action: Action) -> AbstractContextManager[None]:
    """Name what an action of the planner changes in all records of the block."""
    if isinstance(action, WriteRunQueues):
        return about(node=action.node, gpu=",".join(uuid for uuid, _ in action.gpus))
    if isinstance(action, CreateTrial | EndJob):
        return about(namespace=action.job.namespace, job=action.job.name)
    trial = cluster.trial_by_key.get(action.trial)
    return about(namespace=action.trial.namespace, trial=action.trial.name) if trial is None else about_item(trial)
