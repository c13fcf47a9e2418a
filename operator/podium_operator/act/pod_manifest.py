"""Create the pod manifest of one attempt of a trial: a pure function of job, trial and attempt.

The user's template is kept, and these parts are added:

- the GPU slots, and the gate: an init container in the trial's own image, with a volume for its files
- memory for GPU memory that is moved off the GPUs (`pod_resources`)
- the environment and the values of placeholders
- the checkpoint volume and the checkpoint to continue from (`checkpoint_volume`, `inherited_checkpoint`)
- labels, owner, priority, readiness gate, and the configuration by which the agent reads the metric from the log
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from podium_core.attempts.environment import environment, hide_gpus
from podium_core.attempts.substitution import Substitution
from podium_core.schema.checkpointing import CUDA_CHECKPOINT, checkpoint_outlives_pod
from podium_core.schema.job import HyperParamJob
from podium_core.schema.metrics.config import METRICS_ANNOTATION, metrics_config_of
from podium_core.schema.template.cpu_downsizing import CPU_ANNOTATION, to_annotation
from podium_core.schema.template.pod_template import GATE_CONTAINER, GATE_VOLUME
from podium_core.schema.trial import JOB_LABEL, HyperParamTrial, Migration, Parent, pod_name
from podium_operator.act import checkpoint_volume
from podium_operator.act.inherited_checkpoint import Inheritance, copy_container
from podium_operator.act.pod_resources import (
    WholeGpu,
    add_memory,
    add_slots,
    declared_memory,
    downsize_cpu,
    limit_gpu_memory,
    moved_bytes,
    remove_slots,
)
from podium_operator.act.worker_manifests import make_worker, worker_environment, worker_labels
from podium_operator.act.workload_pod import make_member

Manifest = dict[str, Any]

TRIAL_LABEL = "podium.dev/trial"
ATTEMPT_LABEL = "podium.dev/attempt"
JOB_UID_LABEL = "podium.dev/job-uid"
MEMORY_ANNOTATION = "podium.dev/gpu-memory"
PRODUCTS_ANNOTATION = "podium.dev/gpu-products"
METHODS_ANNOTATION = "podium.dev/methods"
REQUEUE_ANNOTATION = "podium.dev/requeue"
WHOLE_GPU_ANNOTATION = "podium.dev/whole-gpu"
MIGRATE_ANNOTATION = "podium.dev/migrate"  # asks the agent to make an image of the trial; the target node
MIGRATED_ANNOTATION = "podium.dev/migrated"  # the trial continues from such an image; the source node
GPU_STATE_ANNOTATION = "podium.dev/gpu-state"
HOLDS_GPU = "podium.dev/holds-gpu"
GATE_FOLDER = "/podium"
GATE_COMMAND = [f"{GATE_FOLDER}/podium-gate", "gate"]


@dataclass(frozen=True, slots=True)
class PodRules:
    """Settings of the operator that apply to all pods."""

    scheduler_name: str
    resource: str
    priority_class: str | None = None
    image: str | None = None  # Podium's own, which copies the checkpoints of parents
    runtime_class: str | None = None  # of pods with GPUs: nodes without GPUs may not have it
    limits_gpu_memory: bool = False  # whether NVIDIA's container toolkit is to limit trials to their declared memory


@dataclass(frozen=True, slots=True)
class PodOrigin:
    """Reason why the pod is created, and the checkpoint that it continues from.

    `nodes`: names of the GPUNodes that exist; a checkpoint in a folder of another node is lost. `whole_gpu`: the whole
    GPU that the trial gets; its memory is not moved then. `migration`: the migration whose image the pod continues
    from. `inheritance`: the copy of a parent's checkpoint that it continues from. `gate_slot`: whether the gate
    requests the trial's slots, too, because an agent of an earlier release gives it its files only with them.
    `grouped`: whether the attempt has a PodGroup.
    """

    nodes: Collection[str] = ()
    whole_gpu: WholeGpu | None = None
    migration: Migration | None = None
    inheritance: Inheritance | None = None
    gate_slot: bool = False
    grouped: bool = False


NO_ORIGIN = PodOrigin()


def make_pod(
    job: HyperParamJob,
    trial: HyperParamTrial,
    attempt: int,
    rules: PodRules,
    origin: PodOrigin = NO_ORIGIN,
    rank: int = 0,
) -> Manifest:
    """Return the manifest of an attempt's pod; `rank`: of its worker."""
    spec, whole_gpu, migration = job.spec, origin.whole_gpu, origin.migration
    template: Manifest = without_nulls(spec.template)
    pod: Manifest = template["spec"]
    main = pod["containers"][0]
    made = origin.inheritance
    resume = checkpoint_volume.resume_point(job, trial, attempt, origin.nodes) if made is None else made.resume
    if rank and resume is not None and resume.node is not None:
        resume = None  # the checkpoint is in a folder of another node
    downsized: dict[str, int] = {}
    pod["restartPolicy"] = "Never"
    grace = pod.setdefault("terminationGracePeriodSeconds", spec.suspension.grace_period_seconds)
    memory = declared_memory(job, whole_gpu)
    path = resume.path if resume else None
    variables = {
        **environment(job, trial, attempt, grace=grace, resume=path, memory=memory),
        **worker_environment(job, trial, rank),
    }
    conditional = {parameter.name for parameter in spec.parameters if parameter.when is not None}
    folder = spec.checkpoint.path if spec.checkpoint else None
    words = Substitution(trial.spec.parameters, folder, conditional, spec.metrics.port)
    for container in pod["containers"]:
        _fill(container, words, variables)
    if spec.checkpoint:
        if resume is not None and spec.checkpoint.resume_args:
            resumed = Substitution(trial.spec.parameters, resume.path, conditional)
            checkpoint_volume.add_arguments(main, resumed, spec.checkpoint.resume_args)
        checkpoint_volume.mount(pod, main, spec.checkpoint, checkpoint_volume.folder_of_trial(job, trial))
    if resume is not None and resume.node is not None:
        checkpoint_volume.stay_on(pod, resume.node)
    rebalanced = trial.status.rebalanced
    if rebalanced is not None and rebalanced.attempt == attempt:
        checkpoint_volume.prefer(pod, rebalanced.target_node)
    if rules.priority_class is not None:
        pod.setdefault("priorityClassName", rules.priority_class)
    if made is not None:
        copies = copy_container(spec.template["spec"], made, checkpoint_volume.folder_of_trial(job, trial))
        pod["initContainers"] = [*pod.get("initContainers", []), copies]
    if spec.gpus.per_trial:
        pod["schedulerName"] = rules.scheduler_name
        if rules.runtime_class is not None:
            pod.setdefault("runtimeClassName", rules.runtime_class)
        pod["readinessGates"] = [*pod.get("readinessGates", []), {"conditionType": HOLDS_GPU}]
        add_slots(main, rules.resource, spec.gpus_per_worker)
        main.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")  # shows whether GPU memory ran out
        if rules.limits_gpu_memory and memory is not None and whole_gpu is None:
            limit_gpu_memory(main, memory)
        moved = 0 if whole_gpu else moved_bytes(spec)
        if moved:
            add_memory(main, moved)
        if spec.suspension.downsize_cpu:
            downsized = downsize_cpu(pod["containers"])
        # last, so that the user's own preparation (downloads, say) is done before the trial waits for its time slice
        pod["initContainers"] = [*pod.get("initContainers", []), _gate(main, rules.resource, slot=origin.gate_slot)]
        if not origin.gate_slot:
            pod["volumes"] = [*(pod.get("volumes") or []), {"name": GATE_VOLUME, "emptyDir": {}}]
        if checkpoint_outlives_pod(spec):
            checkpoint_volume.add_hook(main)
    hide_gpus([*pod.get("initContainers", []), *pod["containers"]])
    metadata = _metadata(job, trial, attempt, template.get("metadata") or {}, whole_gpu)
    if spec.workload is not None:
        make_member(pod, metadata, job, trial, TRIAL_LABEL)
    elif spec.trials.workers > 1:
        make_worker(pod, trial, rank, TRIAL_LABEL)
        metadata["name"] = pod_name(trial.metadata.name, attempt, rank)
        metadata["labels"] |= worker_labels(job, rank)
    if origin.grouped:
        pod["schedulingGroup"] = {"podGroupName": pod_name(trial.metadata.name, attempt)}
    if migration is not None:
        _continue_from_image(pod, main, metadata, migration)
    if downsized:
        metadata["annotations"][CPU_ANNOTATION] = to_annotation(downsized)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


def without_nulls(value: Any) -> Any:
    """Return a copy without fields whose value is null: Kubernetes takes them for missing."""
    if isinstance(value, Mapping):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


def _continue_from_image(pod: Manifest, main: Manifest, metadata: Manifest, migration: Migration) -> None:
    """Let the pod continue from a migrated image, on the node that the image was made for.

    Only the first container's image changes: the gate uses the trial's own.
    """
    main["image"], main["imagePullPolicy"] = migration.image, "IfNotPresent"
    checkpoint_volume.stay_on(pod, migration.target_node)
    metadata["annotations"][MIGRATED_ANNOTATION] = migration.source_node
    if migration.gpu_state:
        metadata["annotations"][GPU_STATE_ANNOTATION] = migration.gpu_state


def _metadata(
    job: HyperParamJob, trial: HyperParamTrial, attempt: int, given: Manifest, whole_gpu: WholeGpu | None
) -> Manifest:
    spec = job.spec
    config = metrics_config_of(job)
    annotations = {**(given.get("annotations") or {}), METRICS_ANNOTATION: config.model_dump_json(by_alias=True)}
    memory = declared_memory(job, whole_gpu)
    if memory is not None:
        annotations[MEMORY_ANNOTATION] = str(memory)
    if whole_gpu is not None:
        annotations[WHOLE_GPU_ANNOTATION] = "true"
    if spec.gpus.per_trial:
        methods = [one for one in spec.suspension.methods if whole_gpu is None or one != CUDA_CHECKPOINT]
        annotations[METHODS_ANNOTATION] = ",".join(methods)
    if spec.checkpoint:
        annotations[checkpoint_volume.PATH_ANNOTATION] = spec.checkpoint.path
    products = spec.gpus.products if whole_gpu is None or not whole_gpu.products else whole_gpu.products
    if products:
        annotations[PRODUCTS_ANNOTATION] = ",".join(products)
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
    """Return an owner reference to an object of Podium."""
    return {
        "apiVersion": "podium.dev/v1alpha1",
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _fill(container: Manifest, words: Substitution, variables: Mapping[str, str]) -> None:
    for field in ("command", "args"):
        if container.get(field):
            container[field] = words.command(container[field])
    own = words.environment(container.get("env") or [])
    named = {variable["name"] for variable in own}
    missing = [{"name": name, "value": value} for name, value in variables.items() if name not in named]
    container["env"] = own + missing


def _gate(main: Manifest, resource: str, *, slot: bool) -> Manifest:
    """Return the gate's container: same image, user and resources as the trial's, and the slots only with `slot`.

    The resources cost nothing, because a pod counts the larger of the two. Environment and mounts are the same, too.
    So the kubelet refuses a container that it cannot start (a missing Secret, for example) before the gate. Behind the
    gate the trial would hold a GPU without ever starting.

    A gate with slots would end its trial when the kubelet restarts before the device plugin is registered again. That
    kubelet spares containers that run, but it allocates the devices of a gate that has ended.
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
    if not slot:
        remove_slots(gate, resource)
        files = {"name": GATE_VOLUME, "mountPath": GATE_FOLDER, "readOnly": True}
        gate["volumeMounts"] = [*(gate.get("volumeMounts") or []), files]
    return gate


def make_trial(
    job: HyperParamJob, number: int, parameters: Mapping[str, Any], parent: Parent | None = None
) -> Manifest:
    """Return the manifest of trial `number`. `parent`: the trial from whose checkpoint it continues."""
    origin = {} if parent is None else {"parent": parent.model_dump(by_alias=True)}
    return {
        "apiVersion": "podium.dev/v1alpha1",
        "kind": "HyperParamTrial",
        "metadata": {
            "name": f"{job.metadata.name}-{number}",
            "namespace": job.metadata.namespace,
            "labels": {JOB_LABEL: job.metadata.name, JOB_UID_LABEL: job.metadata.uid},
            "ownerReferences": [owner("HyperParamJob", job.metadata.name, job.metadata.uid)],
        },
        "spec": {"job": job.metadata.name, "number": number, "parameters": dict(parameters), **origin},
    }
