"""Objects of one attempt of a trial that is a JobSet or a Kubeflow TrainJob. Pure; `workloads` uses it.

The user's object is kept, and what ends or replaces pods is taken out: Podium itself ends the workers of a trial that
has lost one, and starts the trial again as the next attempt. A TrainJob gets its pods from a runtime. The attempt has a
runtime of its own, a copy of the one that the user names, with Podium's parts in the pod template of the trainer.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from podium_cluster.resources import CLUSTER_RUNTIMES, JOBSETS, RUNTIMES, TRAIN_JOBS, Resource
from podium_core.schema.template.workload import (
    TRAIN_JOB,
    TRAINER,
    VERSIONS,
    TrialWorkload,
    number_of_job,
    part,
    trainer_container,
    training_template,
)

Manifest = dict[str, Any]
_ENDS = ("backoffLimit", "podFailurePolicy", "maxFailedIndexes", "ttlSecondsAfterFinished", "activeDeadlineSeconds")
# JobSet 0.11 writes the priority of each pod into a label. That of trials is negative, and no label is. JobSet leaves
# pods with the second annotation alone. With the first one it has to place them, so they do not get the second.
_EXCLUSIVE, _PLACED = "alpha.jobset.sigs.k8s.io/exclusive-topology", "alpha.jobset.sigs.k8s.io/node-selector"
_MOVED = ("image", "command", "args", "env", "resourcesPerNode")  # from the trainer to the pod template of the runtime


class RuntimeNotUsableError(ValueError):
    """The runtime of a TrainJob is not one whose pods can be trials."""


def main_resource(workload: TrialWorkload) -> Resource:
    """Return the resource of the user's object."""
    return TRAIN_JOBS if workload.kind == TRAIN_JOB else JOBSETS


def all_resources(workload: TrialWorkload) -> tuple[Resource, ...]:
    """Return the resources of an attempt's objects."""
    return (TRAIN_JOBS, RUNTIMES) if workload.kind == TRAIN_JOB else (JOBSETS,)


def runtime_of(workload: TrialWorkload) -> tuple[Resource, str] | None:
    """Return resource and name of the runtime that a TrainJob names; None for a JobSet."""
    if workload.kind != TRAIN_JOB:
        return None
    reference = part(workload.fields, "runtimeRef")
    return RUNTIMES if reference.get("kind") == RUNTIMES.kind else CLUSTER_RUNTIMES, str(reference["name"])


def merged_template(workload: TrialWorkload, runtime: Mapping[str, Any]) -> Manifest:
    """Return the pod template of a runtime's trainer, with the fields of the TrainJob's trainer.

    The container that trains comes first. Raises RuntimeNotUsableError.
    """
    name = part(runtime, "metadata").get("name")
    jobs = part(part(part(runtime, "spec"), "template"), "spec").get("replicatedJobs")
    number = number_of_job({"replicatedJobs": jobs}, TRAINER)
    if number is None or not isinstance(jobs, list):
        raise RuntimeNotUsableError(f"runtime {name} has no replicated job {TRAINER}")
    template = copy.deepcopy(dict(training_template(jobs[number])))
    containers = part(template, "spec").get("containers") or []
    trains = [one for one in containers if one.get("name") == TRAINER]
    if not trains:
        raise RuntimeNotUsableError(f"runtime {name} has no container {TRAINER} in its replicated job {TRAINER}")
    own = trainer_container(workload)
    names = {variable.get("name") for variable in own.get("env") or []}
    kept = [variable for variable in trains[0].get("env") or [] if variable.get("name") not in names]
    first = {**trains[0], **own, "env": [*kept, *(own.get("env") or [])]}
    template["spec"]["containers"] = [first, *(one for one in containers if one.get("name") != TRAINER)]
    return template


def make_objects(workload: TrialWorkload, pod: Manifest, runtime: Mapping[str, Any] | None) -> tuple[Manifest, ...]:
    """Return the objects of an attempt, in the order of their creation.

    `pod`: the attempt's pod; the objects have its name and owner. `runtime`: that of a TrainJob, as it is stored.
    """
    spec = copy.deepcopy(dict(workload.fields))
    if runtime is None:
        number = number_of_job(spec, workload.replicated_job)
        _put_pod(spec, spec["replicatedJobs"][number or 0], pod, [_written(workload)])
        return (_object(workload.api_version, workload.kind, pod, spec, _written(workload)),)
    stored = copy.deepcopy(dict(runtime["spec"]))
    inner = stored["template"]["spec"]
    trains = next(one for one in inner["replicatedJobs"] if one.get("name") == TRAINER)
    _put_pod(inner, trains, pod, [stored, spec, part(runtime, "metadata"), _written(workload)])
    about = {"labels": part(runtime, "metadata").get("labels") or {}}
    name = pod["metadata"]["name"]
    spec["runtimeRef"] = {"apiGroup": RUNTIMES.group, "kind": RUNTIMES.kind, "name": name}
    spec["trainer"] = {field: value for field, value in spec["trainer"].items() if field not in _MOVED}
    return (
        _object(VERSIONS[TRAIN_JOB], RUNTIMES.kind, pod, stored, about),
        _object(workload.api_version, workload.kind, pod, spec, _written(workload)),
    )


def _put_pod(jobset: Manifest, job: Manifest, pod: Manifest, given: Sequence[Mapping[str, Any]]) -> None:
    """Put the pod into a replicated job of a JobSet's spec, and take out what would end or replace its pods.

    `given`: what else may have annotations for the JobSet.
    The Job controller replaces no pod of an index that may not fail, and leaves the pods of the other indexes alone.
    The Job is complete when worker 0 is, as the trial is.
    """
    inner = job["template"]["spec"]
    parallelism = inner.get("parallelism", 1)
    for field in _ENDS:
        inner.pop(field, None)
    inner |= {"completionMode": "Indexed", "parallelism": parallelism, "completions": parallelism}
    inner |= {"backoffLimitPerIndex": 0, "podReplacementPolicy": "Failed"}
    inner["successPolicy"] = {"rules": [{"succeededIndexes": "0"}]}
    metadata = {kind: dict(pod["metadata"][kind]) for kind in ("labels", "annotations")}
    if _EXCLUSIVE not in json.dumps([jobset, given]):
        metadata["annotations"].setdefault(_PLACED, "")
    inner["template"] = {"metadata": metadata, "spec": pod["spec"]}
    jobset.pop("ttlSecondsAfterFinished", None)
    jobset["failurePolicy"] = {"maxRestarts": 0}
    # each attempt has its own names, which resolve also while the workers are suspended
    jobset["network"] = {"enableDNSHostnames": True, "publishNotReadyAddresses": True}


def _written(workload: TrialWorkload) -> Manifest:
    given = workload.metadata
    return {} if given is None else {"labels": dict(given.labels or {}), "annotations": dict(given.annotations or {})}


def _object(version: str, kind: str, pod: Manifest, spec: Manifest, written: Manifest) -> Manifest:
    about = {field: pod["metadata"][field] for field in ("name", "namespace", "ownerReferences")}
    own = {key: value for key, value in pod["metadata"]["labels"].items() if key.startswith("podium.dev/")}
    metadata = {**written, **about, "labels": {**(written.get("labels") or {}), **own}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
