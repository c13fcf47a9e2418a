"""What a job's spec says about the saves of its trials. Used by the operator and by `podium drain`."""

from __future__ import annotations

from podium_core.domain.migration import METHOD as CARRIES
from podium_core.domain.snapshot import SavesAt
from podium_core.schema.job import JobSpec

SAVES_ITSELF = "app-checkpoint"


def saves_at(spec: JobSpec) -> SavesAt:
    """Where another pod finds the saves of this one: not in a scratch folder, which goes with its pod."""
    if spec.checkpoint is None or spec.checkpoint.volume.empty_dir is not None:
        return "nowhere"
    return "node" if spec.checkpoint.volume.host_path is not None else "anywhere"


def outlives_pod(spec: JobSpec) -> bool:
    return saves_at(spec) != "nowhere"


def can_save(spec: JobSpec) -> bool:
    """Whether its trials save when asked, so that a pod may be taken away and another goes on."""
    return outlives_pod(spec) and SAVES_ITSELF in spec.suspension.methods


def carries(spec: JobSpec) -> bool:
    """Whether its trials may be carried to another node alive. The job's rules ask for `cuda-checkpoint` beside it."""
    return spec.gpus.per_trial > 0 and CARRIES in spec.suspension.methods
