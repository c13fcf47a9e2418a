"""A trial's own saves, as far as the pod is concerned: volume and folder, the hook that asks for a save before a pod
ends, and how a new attempt goes on from one. Pure; used by `pods` and `cleanup_pod`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from podium_core.schema.base import ObjectMeta
from podium_core.schema.checkpointing import checkpoint_outlives_pod
from podium_core.schema.job import Checkpoint, CheckpointVolume, HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_operator.act.substitution import Substitution

Manifest = dict[str, Any]

VOLUME = "podium-checkpoint"
PATH_ANNOTATION = "podium.dev/checkpoint"
HOOK_COMMAND = ["/podium/podium-gate", "hook"]


@dataclass(frozen=True, slots=True)
class Resume:
    """The save that an attempt goes on from. `node`: where it must run to find it; None = anywhere."""

    path: str
    node: str | None


def resume_of(job: HyperParamJob, trial: HyperParamTrial, attempt: int, nodes: Collection[str]) -> Resume | None:
    """What attempt `attempt` goes on from; None: it begins afresh. `nodes`: those that have a GPUNode.

    A save in a folder of a node that is gone is lost with it.
    """
    saved, checkpoint = trial.status.checkpoint, job.spec.checkpoint
    if attempt == 0 or saved is None or checkpoint is None or not checkpoint_outlives_pod(job.spec):
        return None
    pinned = checkpoint.volume.host_path is not None
    if pinned and saved.node not in nodes:
        return None
    return Resume(str(PurePosixPath(checkpoint.path) / saved.path), saved.node if pinned else None)


def folder_of_job(meta: ObjectMeta) -> str:
    """A folder of this very job: a later job of the same name must not go on from old states."""
    return f"{meta.namespace}-{meta.name}-{meta.uid[:8]}"


def folder_of_trial(job: HyperParamJob, trial: HyperParamTrial) -> str:
    """The same for all attempts of this very trial; one made anew under its name has the same number, but begins anew.

    Under the job's folder, so it goes with it.
    """
    return f"{folder_of_job(job.metadata)}/{trial.metadata.name}-{trial.metadata.uid[:8]}"


def source(volume: CheckpointVolume) -> Manifest:
    if volume.claim_name is not None:
        return {"persistentVolumeClaim": {"claimName": volume.claim_name}}
    if volume.host_path is not None:
        return {"hostPath": {"path": volume.host_path.path, "type": "DirectoryOrCreate"}}
    return {"emptyDir": dict(volume.empty_dir or {})}


def mount(pod: Manifest, main: Manifest, checkpoint: Checkpoint, folder: str) -> None:
    """The volume of the pod, and in its first container `folder` of it at checkpoint.path."""
    pod["volumes"] = [*(pod.get("volumes") or []), {"name": VOLUME, **source(checkpoint.volume)}]
    there = {"name": VOLUME, "mountPath": checkpoint.path, "subPath": folder}
    main["volumeMounts"] = [*(main.get("volumeMounts") or []), there]


def add_hook(main: Manifest) -> None:
    """Ask for a save before SIGTERM, whoever deletes the pod. A hook of the template's own stays."""
    lifecycle = main.setdefault("lifecycle", {})
    lifecycle.setdefault("preStop", {"exec": {"command": HOOK_COMMAND}})


def add_arguments(main: Manifest, words: Substitution, resume_args: list[str]) -> None:
    """To the end of the command line: Kubernetes runs command + args."""
    field = "args" if main.get("args") or not main.get("command") else "command"
    main[field] = [*(main.get(field) or []), *words.command(resume_args)]


def prefer(pod: Manifest, node: str) -> None:
    """Preferred affinity to one node, by name: the scheduler weighs it more than all else, and may do otherwise."""
    affinity = pod.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    there = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    ours = {"weight": 100, "preference": there}
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    affinity[field] = [*(affinity.get(field) or []), ours]


def stay_on(pod: Manifest, node: str) -> None:
    """Required affinity to one node, by name, on top of what the template requires (terms are alternatives)."""
    affinity = pod.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchFields": [*(term.get("matchFields") or []), here]} for term in terms
    ]
