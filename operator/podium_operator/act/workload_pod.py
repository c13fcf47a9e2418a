"""What the pod template of a JobSet or a TrainJob needs besides what every trial's pod has. Pure.

`pod_manifest` uses it. One template makes all pods, so what differs between the workers comes from their labels: the
Job controller writes a pod's number in its Job, and JobSet that of its Job.
"""

from __future__ import annotations

from typing import Any

from podium_core.schema.job import HyperParamJob
from podium_core.schema.template.workload import (
    JOB_INDEX,
    POD_INDEX,
    TRAIN_JOB,
    TRIAL_UID_LABEL,
    TrialWorkload,
    name_of_job,
    number_of_job,
)
from podium_core.schema.trial import RANK_SOURCE, WORKERS_LABEL, HyperParamTrial
from podium_operator.act.worker_manifests import RANK_VARIABLES, group_environment, keep_apart

Manifest = dict[str, Any]


def make_member(pod: Manifest, metadata: Manifest, job: HyperParamJob, trial: HyperParamTrial, label: str) -> None:
    """Complete the pod of an attempt; `label`: the label with the trial's name.

    `metadata.name` is the name of the attempt's object.
    """
    workload, workers = job.spec.workload, job.spec.trials.workers
    if workload is None:
        raise ValueError(f"job {job.metadata.name} has no workload")
    metadata["labels"][TRIAL_UID_LABEL] = trial.metadata.uid
    if workers == 1:
        return
    source = rank_source(workload)
    metadata["labels"][WORKERS_LABEL] = str(workers)
    metadata["annotations"][RANK_SOURCE] = source
    keep_apart(pod, trial.metadata.name, label)
    name = metadata["name"]
    master = f"{name}-{name_of_job(workload)}-0-0.{name}"
    ranks = {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{source}']"}}}
    variables: list[Manifest] = [
        *({"name": variable, "value": value} for variable, value in group_environment(workers, master).items()),
        *({"name": variable, **ranks} for variable in RANK_VARIABLES),
    ]
    for container in pod["containers"]:
        named = {variable["name"] for variable in container["env"]}
        container["env"] += [variable for variable in variables if variable["name"] not in named]


def rank_source(workload: TrialWorkload) -> str:
    """Return the label that has a worker's rank."""
    number = number_of_job(workload.fields, workload.replicated_job)
    if workload.kind == TRAIN_JOB or number is None:
        return POD_INDEX
    return JOB_INDEX if workload.fields["replicatedJobs"][number].get("replicas", 1) > 1 else POD_INDEX
