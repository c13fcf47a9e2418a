"""What a job's spec says about the saves of its trials. Used by the operator and by `podium drain`."""

from __future__ import annotations

from podium_core.domain.migration import CONTAINER_CHECKPOINT
from podium_core.domain.snapshot import CheckpointScope
from podium_core.schema.job import JobSpec

APP_CHECKPOINT = "app-checkpoint"


def checkpoint_scope(spec: JobSpec) -> CheckpointScope:
    """Where another pod finds the saves of this one: not in a scratch folder, which goes with its pod."""
    if spec.checkpoint is None or spec.checkpoint.volume.empty_dir is not None:
        return "nowhere"
    return "node" if spec.checkpoint.volume.host_path is not None else "anywhere"


def checkpoint_outlives_pod(spec: JobSpec) -> bool:
    return checkpoint_scope(spec) != "nowhere"


def can_checkpoint(spec: JobSpec) -> bool:
    """Whether its trials save when asked, so that a pod may be taken away and another goes on."""
    return checkpoint_outlives_pod(spec) and APP_CHECKPOINT in spec.suspension.methods


def can_migrate(spec: JobSpec) -> bool:
    """Whether its trials may be carried to another node alive. The job's rules ask for `cuda-checkpoint` beside it."""
    return spec.gpus.per_trial > 0 and CONTAINER_CHECKPOINT in spec.suspension.methods
