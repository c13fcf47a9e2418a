"""Parts of a child's pod in population-based training: the copy of its parent's checkpoint. Pure.

An init container with Podium's image copies it before the gate, so no GPU waits for the copy. With a `hostPath` volume
the pod goes to the node that has the parent's folder. Later attempts continue from the child's own checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from podium_core.attempts.inheritance import inherited_path, metrics_in_checkpoint
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_operator.act.checkpoint_volume import VOLUME, ResumePoint, folder_of_trial
from podium_operator.act.trial_user import container_context, is_root

Manifest = dict[str, Any]

CONTAINER = "podium-inherit"
PARENT_MOUNT, CHILD_MOUNT = "/podium-parent", "/podium-child"
_CAPABILITIES = ("DAC_OVERRIDE", "FOWNER", "CHOWN")  # to read files of any user, and to leave them their owner


class ParentLostError(Exception):
    """The parent's checkpoint cannot be read any more, so the child cannot start."""


@dataclass(frozen=True, slots=True)
class Inheritance:
    """Copy that the pod of a child makes.

    `image`: Podium's; `folder`: the parent's; `resume`: where the copy is; `metrics`: what it leaves out.
    """

    image: str
    folder: str
    name: str
    resume: ResumePoint
    metrics: str | None


def is_inheriting(trial: HyperParamTrial) -> bool:
    """Return whether the next attempt begins with the parent's checkpoint: the trial has none of its own."""
    return trial.spec.parent is not None and trial.status.checkpoint is None


def inheritance(
    job: HyperParamJob, parent: HyperParamTrial | None, image: str | None, nodes: Collection[str]
) -> Inheritance:
    """Return the copy that a child's pod makes. `nodes`: those that have a GPUNode.

    Raises ParentLostError.
    """
    checkpoint = job.spec.checkpoint
    if image is None:
        raise ParentLostError("PODIUM_IMAGE is not set, so the operator has no image that can copy a checkpoint")
    found = None if parent is None else parent.status.checkpoint
    if parent is None or checkpoint is None or found is None:
        raise ParentLostError("the parent was deleted, or has no checkpoint any more")
    pinned = checkpoint.volume.host_path is not None
    if pinned and found.node not in nodes:
        raise ParentLostError(f"the parent's checkpoint is on node {found.node}, which is gone")
    name = inherited_path(found.path)
    resume = ResumePoint(str(PurePosixPath(checkpoint.path) / name), found.node if pinned else None)
    return Inheritance(image, folder_of_trial(job, parent), name, resume, metrics_in_checkpoint(job))


def copy_container(template: Manifest, made: Inheritance, folder: str) -> Manifest:
    """Return the init container. `template`: the spec of the trials' pods; `folder`: the child's own."""
    context = container_context(template, _CAPABILITIES)
    return {
        "name": CONTAINER,
        "image": made.image,
        "command": [
            *("python3", "-m", "podium.inherit", PARENT_MOUNT, CHILD_MOUNT, made.name),
            *(() if made.metrics is None else (made.metrics,)),
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "50m", "memory": "48Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": context if is_root(template) else context | {"runAsNonRoot": True},
        "volumeMounts": [
            {"name": VOLUME, "mountPath": PARENT_MOUNT, "subPath": made.folder, "readOnly": True},
            {"name": VOLUME, "mountPath": CHILD_MOUNT, "subPath": folder},
        ],
    }
