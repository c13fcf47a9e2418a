"""What the operator can be told, from the environment (`PODIUM_*`). Used by main."""

from __future__ import annotations

from pydantic import Field

from podium_cluster.settings import ClusterSettings


class OperatorSettings(ClusterSettings):
    scheduler_name: str = Field("podium", min_length=1, description="schedulerName of the trials' pods")
    resource: str = Field("podium.dev/gpu", description="the extended resource that a share is counted as")
    image: str | None = Field(
        None,
        min_length=1,
        description="Podium's own image, to remove folders of deleted jobs; default: they stay",
    )
    trial_priority_class: str | None = Field(
        None, min_length=1, description="PriorityClass of the trials' pods, unless their template names one"
    )
    watch_namespace: str | None = Field(None, description="serve jobs of this namespace only; default: of all")
    cycle_seconds: float = Field(2.0, gt=0, le=60, description="a cycle runs at least this often")
    debounce_seconds: float = Field(0.05, ge=0, le=5, description="changes that come within this time share a cycle")
    status_seconds: float = Field(2.0, ge=0, le=60, description="between two status patches that only change figures")
    agent_stale_seconds: float = Field(45.0, gt=0, le=600, description="an agent silent for longer is not believed")
