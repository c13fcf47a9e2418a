"""Consequences of a job's spec for the checkpoints of its trials, for the operator and for `podium drain`."""

from __future__ import annotations

from podium_core.domain.migration import CONTAINER_CHECKPOINT
from podium_core.domain.snapshot import CheckpointScope
from podium_core.schema.job import JobSpec

APP_CHECKPOINT = "app-checkpoint"
CUDA_CHECKPOINT = "cuda-checkpoint"


def checkpoint_scope(spec: JobSpec) -> CheckpointScope:
    """Return where another pod of the trial can read the checkpoints of this one.

    An `emptyDir` is deleted together with its pod.
    """
    if spec.checkpoint is None or spec.checkpoint.volume.empty_dir is not None:
        return "nowhere"
    return "node" if spec.checkpoint.volume.host_path is not None else "anywhere"


def checkpoint_outlives_pod(spec: JobSpec) -> bool:
    """Return whether a checkpoint remains after its pod is deleted."""
    return checkpoint_scope(spec) != "nowhere"


def can_checkpoint(spec: JobSpec) -> bool:
    """Return whether the trials checkpoint on request.

    So a pod can be deleted and another one continues.
    """
    return checkpoint_outlives_pod(spec) and APP_CHECKPOINT in spec.suspension.methods


def can_migrate(spec: JobSpec) -> bool:
    """Return whether the trials can move to another node while they run.

    The rules of the job require `cuda-checkpoint` beside `container-checkpoint`.
    """
    return spec.gpus.per_trial > 0 and CONTAINER_CHECKPOINT in spec.suspension.methods
