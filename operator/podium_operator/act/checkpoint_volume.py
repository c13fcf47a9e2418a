"""Parts of a trial's pod that concern checkpoints. Pure; `pod_manifest` and `cleanup_pod` use it.

These are the volume with its folder, and the hook that asks for a checkpoint before a pod ends. A new attempt also gets
the checkpoint that it continues from.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from podium_core.attempts.substitution import Substitution
from podium_core.schema.base import ObjectMeta
from podium_core.schema.checkpointing import checkpoint_outlives_pod
from podium_core.schema.job import CheckpointSpec, CheckpointVolume, HyperParamJob
from podium_core.schema.trial import HyperParamTrial

Manifest = dict[str, Any]

VOLUME = "podium-checkpoint"
PATH_ANNOTATION = "podium.dev/checkpoint"
HOOK_COMMAND = ["/podium/podium-gate", "hook"]


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Checkpoint that an attempt continues from. `node`: where it can be read; None: anywhere."""

    path: str
    node: str | None


def resume_point(
    job: HyperParamJob, trial: HyperParamTrial, attempt: int, nodes: Collection[str]
) -> ResumePoint | None:
    """Return the checkpoint that this attempt continues from, or None if it starts from scratch.

    `nodes` holds the nodes that have a GPUNode. A checkpoint in a `hostPath` folder is lost with its node.
    """
    checkpoint_status, checkpoint = trial.status.checkpoint, job.spec.checkpoint
    if attempt == 0 or checkpoint_status is None or checkpoint is None or not checkpoint_outlives_pod(job.spec):
        return None
    pinned = checkpoint.volume.host_path is not None
    if pinned and checkpoint_status.node not in nodes:
        return None
    return ResumePoint(
        str(PurePosixPath(checkpoint.path) / checkpoint_status.path), checkpoint_status.node if pinned else None
    )


def folder_of_job(meta: ObjectMeta) -> str:
    """Return the folder of exactly this job: a later job of the same name must not read its checkpoints."""
    return f"{meta.namespace}-{meta.name}-{meta.uid[:8]}"


def folder_of_trial(job: HyperParamJob, trial: HyperParamTrial) -> str:
    """Return the folder of all attempts of exactly this trial, inside the job's folder.

    A trial that is created again under the same name has the same number, but starts from the beginning.
    """
    return f"{folder_of_job(job.metadata)}/{trial.metadata.name}-{trial.metadata.uid[:8]}"


def source(volume: CheckpointVolume) -> Manifest:
    """Return the source of the volume for a pod."""
    if volume.claim_name is not None:
        return {"persistentVolumeClaim": {"claimName": volume.claim_name}}
    if volume.host_path is not None:
        return {"hostPath": {"path": volume.host_path.path, "type": "DirectoryOrCreate"}}
    return {"emptyDir": dict(volume.empty_dir or {})}


def mount(pod: Manifest, main: Manifest, checkpoint: CheckpointSpec, folder: str) -> None:
    """Add the volume to the pod, and mount its folder `folder` at checkpoint.path in the first container."""
    pod["volumes"] = [*(pod.get("volumes") or []), {"name": VOLUME, **source(checkpoint.volume)}]
    there = {"name": VOLUME, "mountPath": checkpoint.path, "subPath": folder}
    main["volumeMounts"] = [*(main.get("volumeMounts") or []), there]


def add_hook(main: Manifest) -> None:
    """Ask for a checkpoint before SIGTERM, for every deletion of the pod. A hook of the template is kept."""
    lifecycle = main.setdefault("lifecycle", {})
    lifecycle.setdefault("preStop", {"exec": {"command": HOOK_COMMAND}})


def add_arguments(main: Manifest, words: Substitution, resume_args: list[str]) -> None:
    """Append `resume_args` to the command line: Kubernetes runs command + args."""
    field = "args" if main.get("args") or not main.get("command") else "command"
    main[field] = [*(main.get(field) or []), *words.command(resume_args)]


def prefer(pod: Manifest, node: str) -> None:
    """Add a preferred affinity to one node: the scheduler may still choose another node."""
    affinity = pod.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    there = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    preferred = {"weight": 100, "preference": there}
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    affinity[field] = [*(affinity.get(field) or []), preferred]


def stay_on(pod: Manifest, node: str) -> None:
    """Add a required affinity to one node to every alternative that the template requires."""
    affinity = pod.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchFields": [*(term.get("matchFields") or []), here]} for term in terms
    ]
