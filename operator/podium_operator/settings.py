"""Settings of the operator, from the environment (`PODIUM_*`). `main` reads them."""

from __future__ import annotations

import socket
from typing import Literal

from pydantic import Field

from podium_cluster.settings import ClusterSettings
from podium_core.domain.observe import AGENT_STALE_SECONDS


class OperatorSettings(ClusterSettings):
    """Settings of the operator."""

    scheduler_name: str = Field("podium", min_length=1, description="schedulerName of the trials' pods")
    resource: str = Field("podium.dev/gpu", description="the extended resource that a slot is counted as")
    gpu_mode: Literal["dedicated", "reservations"] = Field(
        "dedicated", description="reservations: GPUs are held by reservation pods that request nvidia.com/gpu"
    )
    reservation_priority_class: str = Field(
        "podium-reservation", min_length=1, description="PriorityClass of reservation pods, below that of all others"
    )
    reservation_max: int = Field(
        8, ge=1, description="GPUs that are reserved at most for a namespace and a set of products"
    )
    reservation_queue: str = Field(
        "",
        max_length=63,
        pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
        description="LocalQueue of Kueue for the reservation pods of jobs without spec.queue; empty: none",
    )
    reservation_priority_boost: bool = Field(
        False, description="write on Kueue's Workloads which reservation costs least; Kueue's gate PriorityBoost is on"
    )
    reservation_node_selector: dict[str, str] = Field(
        default_factory=dict, description="labels of nodes on which GPUs may be reserved: those that have an agent"
    )
    reservation_grace_seconds: int = Field(
        60, ge=1, le=3600, description="seconds for trials to release a preempted GPU; at least the job's grace period"
    )
    image: str | None = Field(
        None,
        min_length=1,
        description="Podium's image, for reservation pods and to remove folders of deleted jobs (else they remain)",
    )
    checkpoint_registry: str = Field(
        "", description="host[:port] of the registry for checkpoint images of live migrations; empty: none is accepted"
    )
    trial_priority_class: str | None = Field(
        None, min_length=1, description="PriorityClass of the trials' pods, unless their template names one"
    )
    trial_runtime_class: str | None = Field(
        None, min_length=1, description="RuntimeClass of the pods with GPUs, unless their template names one"
    )
    limit_gpu_memory: bool = Field(
        False,
        description="NVIDIA's container toolkit (1.20 or later, cgroup v2) limits trials to gpus.memory",
    )
    rebalancing: bool = Field(False, description="move trials from crowded GPUs to those with fewer trials")
    rebalancing_min_stay_seconds: float = Field(
        120.0,
        gt=0,
        le=86400,
        description="a trial stays in its pod for at least this long; twice as long after each move",
    )
    identity: str = Field(
        default_factory=socket.gethostname, description="name of this replica in leader election; default: the host's"
    )
    watch_namespace: str | None = Field(None, description="serve jobs of this namespace only; default: of all")
    reconcile_seconds: float = Field(2.0, gt=0, le=60, description="a reconcile runs at least this often")
    debounce_seconds: float = Field(
        0.05, ge=0, le=5, description="changes that come within this time share a reconcile"
    )
    status_seconds: float = Field(2.0, ge=0, le=60, description="between two status patches that only change figures")
    agent_stale_seconds: float = Field(
        AGENT_STALE_SECONDS, gt=0, le=600, description="an agent silent for longer is not believed"
    )
