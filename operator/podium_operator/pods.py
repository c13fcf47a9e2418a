"""The pod of one attempt of a trial: a pure function from job, trial and attempt to a manifest.

The user's template stays as it is, plus: the gate (an init container in the trial's own image), the share of the GPUs,
what the script needs to know (environment, placeholders), the checkpoint volume with a folder of the trial's own, and
labels, owner, readiness gate and the reading by which the agent finds the metric in the log.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podium.schema.job import Checkpoint, HyperParamJob
from podium.schema.quantity import to_bytes
from podium.schema.reading import READING_ANNOTATION, MetricsReading
from podium.schema.space import env_name
from podium.schema.template import GATE_CONTAINER
from podium.schema.trial import HyperParamTrial
from podium_operator.substitution import Substitution, text

Manifest = dict[str, Any]

JOB_LABEL = "podium.dev/job"
TRIAL_LABEL = "podium.dev/trial"
ATTEMPT_LABEL = "podium.dev/attempt"
JOB_UID_LABEL = "podium.dev/job-uid"
MEMORY_ANNOTATION = "podium.dev/gpu-memory"
PRODUCTS_ANNOTATION = "podium.dev/gpu-products"
HOLDS_GPU = "podium.dev/holds-gpu"
GATE_COMMAND = ["/podium/podium-gate", "gate"]
CHECKPOINT_VOLUME = "podium-checkpoint"


@dataclass(frozen=True, slots=True)
class PodRules:
    """What the operator's settings say about all pods."""

    scheduler_name: str
    resource: str


def pod_name(trial: str, attempt: int) -> str:
    return f"{trial}-{attempt}"


def make_pod(job: HyperParamJob, trial: HyperParamTrial, attempt: int, rules: PodRules) -> Manifest:
    spec = job.spec
    template = copy.deepcopy(spec.template)
    pod: Manifest = template["spec"]
    checkpoint = spec.checkpoint.path if spec.checkpoint else None
    words = Substitution(trial.spec.parameters, checkpoint)
    for container in pod["containers"]:
        _fill(container, words, _environment(job, trial))
    main = pod["containers"][0]
    pod["restartPolicy"] = "Never"
    pod.setdefault("terminationGracePeriodSeconds", spec.suspension.grace_period_seconds)
    if spec.checkpoint:
        _add_checkpoint(pod, main, spec.checkpoint, _folder(job, trial))
    if spec.gpus.per_trial:
        pod["schedulerName"] = rules.scheduler_name
        pod["readinessGates"] = [*pod.get("readinessGates", []), {"conditionType": HOLDS_GPU}]
        _add_share(main, rules.resource, spec.gpus.per_trial)
        # last, so that the user's own preparation (downloads, say) is done before the trial waits for its turn
        pod["initContainers"] = [*pod.get("initContainers", []), _gate(main)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(job, trial, attempt, template.get("metadata") or {}),
        "spec": pod,
    }


def reading_of(job: HyperParamJob) -> MetricsReading:
    """How a trial's log is to be read; the log is that of the template's first container."""
    spec = job.spec
    return MetricsReading(
        metric=spec.objective.metric,
        direction=spec.objective.direction,
        step_key=spec.metrics.step_key,
        format=spec.metrics.format,
        filter=spec.metrics.filter,
        container=spec.template["spec"]["containers"][0]["name"],
    )


def _metadata(job: HyperParamJob, trial: HyperParamTrial, attempt: int, given: Manifest) -> Manifest:
    spec = job.spec
    reading = reading_of(job)
    annotations = {**(given.get("annotations") or {}), READING_ANNOTATION: reading.model_dump_json(by_alias=True)}
    if spec.gpus.memory is not None:
        annotations[MEMORY_ANNOTATION] = str(to_bytes(spec.gpus.memory))
    if spec.gpus.products:
        annotations[PRODUCTS_ANNOTATION] = ",".join(spec.gpus.products)
    labels = {
        **(given.get("labels") or {}),
        JOB_LABEL: job.metadata.name,
        TRIAL_LABEL: trial.metadata.name,
        ATTEMPT_LABEL: str(attempt),
    }
    return {
        "name": pod_name(trial.metadata.name, attempt),
        "namespace": trial.metadata.namespace,
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [owner("HyperParamTrial", trial.metadata.name, trial.metadata.uid)],
    }


def owner(kind: str, name: str, uid: str) -> Manifest:
    return {
        "apiVersion": "podium.dev/v1alpha1",
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _environment(job: HyperParamJob, trial: HyperParamTrial) -> dict[str, str]:
    """Variables of every main container; what the template sets itself wins, except for the parameters."""
    spec = job.spec
    given = {
        "PODIUM_JOB": job.metadata.name,
        "PODIUM_TRIAL": trial.metadata.name,
        # a script that prints without flushing would be silent for minutes, and its curve empty
        "PYTHONUNBUFFERED": "1",
    }
    given |= {env_name(name): text(value) for name, value in trial.spec.parameters.items()}
    if spec.checkpoint:
        given["PODIUM_CHECKPOINT"] = spec.checkpoint.path
    if spec.gpus.memory is not None:
        given["PODIUM_GPU_MEMORY_BYTES"] = str(to_bytes(spec.gpus.memory))
    return given


def _fill(container: Manifest, words: Substitution, environment: Mapping[str, str]) -> None:
    for field in ("command", "args"):
        if container.get(field):
            container[field] = words.command(container[field])
    own = words.environment(container.get("env") or [])
    named = {variable["name"] for variable in own}
    ours = [{"name": name, "value": value} for name, value in environment.items() if name not in named]
    container["env"] = own + ours


def _add_share(container: Manifest, resource: str, count: int) -> None:
    resources = container.setdefault("resources", {})
    for kind in ("requests", "limits"):
        resources[kind] = {**(resources.get(kind) or {}), resource: str(count)}


def _gate(main: Manifest) -> Manifest:
    """Same image and user as the trial; same resources, which cost nothing: a pod counts the larger of the two.

    Same environment and mounts too: what the kubelet cannot make of them (a Secret that is not there, say) it refuses
    here, not behind the gate, where the trial would hold a GPU without ever starting.
    """
    gate: Manifest = {
        "name": GATE_CONTAINER,
        "image": main["image"],
        "command": GATE_COMMAND,
        "resources": copy.deepcopy(main["resources"]),
    }
    for field in ("imagePullPolicy", "securityContext", "env", "envFrom", "volumeMounts"):
        if field in main:
            gate[field] = copy.deepcopy(main[field])
    return gate


def _folder(job: HyperParamJob, trial: HyperParamTrial) -> str:
    """A folder of this trial of this very job: a later job of the same name must not go on from old states."""
    return f"{job.metadata.namespace}-{job.metadata.name}-{job.metadata.uid[:8]}/{trial.metadata.name}"


def _add_checkpoint(pod: Manifest, main: Manifest, checkpoint: Checkpoint, folder: str) -> None:
    volume = checkpoint.volume
    source: Manifest
    if volume.claim_name is not None:
        source = {"persistentVolumeClaim": {"claimName": volume.claim_name}}
    elif volume.host_path is not None:
        source = {"hostPath": {"path": volume.host_path.path, "type": "DirectoryOrCreate"}}
    else:
        source = {"emptyDir": dict(volume.empty_dir or {})}
    pod["volumes"] = [*(pod.get("volumes") or []), {"name": CHECKPOINT_VOLUME, **source}]
    mount = {"name": CHECKPOINT_VOLUME, "mountPath": checkpoint.path, "subPath": folder}
    main["volumeMounts"] = [*(main.get("volumeMounts") or []), mount]


def make_trial(job: HyperParamJob, number: int, parameters: Mapping[str, Any]) -> Manifest:
    return {
        "apiVersion": "podium.dev/v1alpha1",
        "kind": "HyperParamTrial",
        "metadata": {
            "name": f"{job.metadata.name}-{number}",
            "namespace": job.metadata.namespace,
            "labels": {JOB_LABEL: job.metadata.name, JOB_UID_LABEL: job.metadata.uid},
            "ownerReferences": [owner("HyperParamJob", job.metadata.name, job.metadata.uid)],
        },
        "spec": {"job": job.metadata.name, "number": number, "parameters": dict(parameters)},
    }
