"""GPUNode: the operator's order for each GPU of a node (spec) and the agent's telemetry and holders (status).

Programs write both, and read what those of another version have written: a field that is not known here is left out.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field, computed_field

from podium_core.schema.base import ObjectMeta, StatusModel, TrialRef

INSUFFICIENT_GPU_MEMORY = "InsufficientGPUMemory"  # reason of a pod's conditions


class RunQueueEntry(StatusModel):
    """An entry of the run queue of one GPU: the first trial that is there holds the GPU, the others follow."""

    namespace: str = Field(description="of the trial")
    trial: str = Field(description="its name")
    uid: str = Field(description="its uid: a trial created again under the same name is another trial")
    reason: str = Field("", description="CamelCase word: why it has this position")
    message: str = Field("", description="the same as a sentence")
    preempts: bool | None = Field(
        None,
        description="of the first entry only. true: it takes the GPU from the trial that held it when this was "
        "decided; missing: a trial that was admitted because those before it could not run keeps its time slice",
    )


class GpuRunQueue(StatusModel):
    """The run queue of one GPU."""

    uuid: str = Field(description="of the GPU")
    run_queue: list[RunQueueEntry] = Field(default_factory=list, max_length=64, description="first = holder")

    @property
    def preempts(self) -> bool | None:
        """Return whether the first entry takes the GPU from the trial that held it; None where that is not stated."""
        return self.run_queue[0].preempts if self.run_queue else None


class GpuNodeSpec(StatusModel):
    """What the operator decided for this node."""

    epoch: int = Field(0, ge=0, description="grows with every order; an older one is ignored")
    gpus: list[GpuRunQueue] = Field(
        default_factory=list, max_length=64, description="one entry a GPU that trials share"
    )
    released: bool = Field(False, description="thaw everything and suspend nothing (set by `podium thaw`)")
    draining: bool = Field(False, description="trials that can save leave, and none comes (set by `podium drain`)")


class Holder(TrialRef):
    """The trial whose processes may work on the GPU now."""

    since: datetime = Field(description="when it got the GPU")


class TrialState(StrEnum):
    """Where a trial on a GPU stands, as the agent carries it out."""

    GATED = "Gated"
    STARTING = "Starting"
    RUNNING = "Running"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    RESUMING = "Resuming"


class TrialOnGpu(TrialRef):
    """A trial that has a share of the GPU."""

    pod: str = Field(description="name of its pod")
    pod_uid: str = Field(alias="podUID", description="uid of its pod")
    state: TrialState = Field(description="where it stands")
    since: datetime = Field(description="since when it stands there")


class OtherPod(StatusModel):
    """A pod that has a share of the GPU and is no trial: it takes no turns."""

    namespace: str = Field(description="of the pod")
    pod: str = Field(description="its name")
    pod_uid: str = Field(alias="podUID", description="its uid")
    memory: int = Field(0, description="bytes that it declared on each of its GPUs")


class GpuStatus(StatusModel):
    """One GPU as the agent sees it."""

    uuid: str = Field(description="of the GPU")
    index: int = Field(description="the driver's number")
    product: str = Field("", description="name of the product")
    memory_total: int = Field(0, description="bytes")
    memory_used: int = Field(0, description="bytes")
    memory_reserved: int = Field(
        0,
        description="bytes declared by the trials that are on this GPU; of those that are moved off it when their turn "
        "is over (cuda-checkpoint without freeze) the largest only",
    )
    memory_movable: int = Field(0, description="bytes of memoryReserved that were declared by that largest one")
    sm_utilization: float = Field(0.0, description="percent, smoothed")
    temperature: float | None = Field(None, description="degrees Celsius")
    sm_clock: int | None = Field(None, description="MHz")
    throttle: list[str] = Field(default_factory=list, description="why the GPU runs slower than it could")
    ecc_uncorrected: int = Field(0, description="uncorrected memory errors so far")
    xid: int | None = Field(None, description="the driver's last error code")
    health: Literal["Healthy", "Unhealthy", "Unknown"] = Field(
        "Unknown", description="no trial is placed on a GPU that is Unhealthy"
    )
    health_reason: str = Field("", description="why it is not Healthy")
    slots: int = Field(0, description="how many trials may sit on this GPU at once")
    epoch: int = Field(0, description="of the order that this GPU follows now")
    exclusive_pod: str | None = Field(
        None,
        description="pod that has it for itself (`podium.dev/gpu-exclusive`), as namespace/name; empty: being admitted",
    )
    reservation: str | None = Field(
        None,
        description="reservation pod that holds it for Podium, as namespace/name, where `mode` is reservations; "
        "missing: none does, and no trial works on it",
    )
    holder: Holder | None = Field(None, description="who works on it now; missing: nobody")
    trials: list[TrialOnGpu] = Field(default_factory=list, description="all trials that have a share of it")
    other_pods: list[OtherPod] = Field(
        default_factory=list, description="pods that have a share of it and are no trials; not in memoryReserved"
    )

    @property
    def memory_claimed(self) -> int:
        """Bytes declared by all that is on it: what a guest has never leaves."""
        return self.memory_reserved + sum(guest.memory for guest in self.other_pods)


class GpuNodeSummary(StatusModel):
    """The GPUs as one line for `kubectl get gpunodes`, whose columns cannot count or join."""

    gpus: int = Field(description="number of GPUs")
    holders: str = Field(description="trial on each GPU; `-` where there is none")
    utilization: str = Field(description="SM use of each GPU, in percent")
    memory: str = Field(description="memory used / total of each GPU, in GiB")
    health: str = Field(description="Healthy, or each GPU that is not, with its reason")


class GpuNodeStatus(StatusModel):
    """What the agent reports."""

    observed_epoch: int = Field(0, description="the newest order that the agent has seen")
    driver: str = Field("", description="version of the driver")
    agent: str = Field("", description="version of the agent")
    methods: list[str] = Field(default_factory=list, description="suspension methods that work on this node")
    mode: Literal["dedicated", "reservations"] = Field(
        "dedicated",
        description="dedicated: all GPUs are Podium's; reservations: those that reservation pods hold (docs/leases.md)",
    )
    updated_at: datetime | None = Field(None, description="when this was written")
    gpus: list[GpuStatus] = Field(default_factory=list, description="one entry a GPU, by the driver's number")

    @computed_field(description="the GPUs as one line, for `kubectl get gpunodes`")  # type: ignore[prop-decorator]
    @property
    def summary(self) -> GpuNodeSummary:
        """Written with every dump of the status, never read back: it says nothing that `gpus` does not."""
        sick = [f"{gpu.index}: {gpu.health_reason or gpu.health}" for gpu in self.gpus if gpu.health != "Healthy"]
        return GpuNodeSummary(
            gpus=len(self.gpus),
            holders=",".join(gpu.holder.trial if gpu.holder else "-" for gpu in self.gpus),
            utilization=",".join(f"{gpu.sm_utilization:.0f}%" for gpu in self.gpus),
            memory=",".join(f"{gpu.memory_used / 2**30:.0f}/{gpu.memory_total / 2**30:.0f}Gi" for gpu in self.gpus),
            health="; ".join(sick) or ("Healthy" if self.gpus else ""),
        )


class GPUNode(StatusModel):
    """A node whose GPUs Podium shares: who gets each GPU, as the operator decided, and what the agent sees there."""

    metadata: ObjectMeta
    spec: GpuNodeSpec = Field(default_factory=GpuNodeSpec, description="written by the operator only")
    status: GpuNodeStatus = Field(default_factory=GpuNodeStatus, description="written by the node's agent only")
