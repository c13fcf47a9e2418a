"""GPUNode: the run queue of each GPU of a node (spec, by the operator) and what the agent reports (status).

Programs of different versions write and read it, so unknown fields are ignored.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field, computed_field

from podium_core.schema.base import Condition, ObjectMeta, StatusModel, TrialRef

USABLE = "Usable"  # condition: whether Podium uses the GPUs of the node
INSUFFICIENT_GPU_MEMORY = "InsufficientGPUMemory"  # reason of a pod's conditions
# Code: the node, or the agent's container, had no free thread, file descriptor or memory.
INSUFFICIENT_NODE_RESOURCES = "InsufficientNodeResources"


class RunQueueEntry(StatusModel):
    """One entry of the run queue of a GPU.

    The first trial that is present holds the GPU; the others wait in this order.
    """

    namespace: str = Field(description="Namespace of the trial.")
    trial: str = Field(description="Name of the trial.")
    uid: str = Field(
        description="UID of the trial. A trial that was created again under the same name has another UID."
    )
    reason: str = Field("", description="Reason for this position in the run queue, in CamelCase.")
    message: str = Field("", description="Reason for this position in the run queue, as a sentence.")
    gain: float | None = Field(
        None,
        description="Set if the trial takes the GPU from another trial of its job because of its score: the difference "
        "of their scores.",
    )
    preempts: bool | None = Field(
        None,
        description="Set on the first entry only. True: this trial takes the GPU from the trial that held it at the "
        "time of "
        "the decision. Missing: a trial that was admitted because the entries before it could not run keeps its "
        "time slice.",
    )
    on_hold: bool | None = Field(
        None,
        description="True: the agent must not start or resume this trial, even if the GPU is free, and suspends it if "
        "it runs. The trial has several workers, and the GPUs of the others are not its own yet.",
    )


class GpuRunQueue(StatusModel):
    """The run queue of one GPU."""

    uuid: str = Field(description="UUID of the GPU.")
    run_queue: list[RunQueueEntry] = Field(
        default_factory=list, max_length=64, description="Trials that share the GPU; the first one is to hold it."
    )

    @property
    def preempts(self) -> bool | None:
        """Return whether the first entry takes the GPU from its holder; None if the operator did not state it."""
        return self.run_queue[0].preempts if self.run_queue else None


class GpuNodeSpec(StatusModel):
    """Decisions of the operator for this node."""

    epoch: int = Field(
        0, ge=0, description="Number of the decision. It grows with every change; agents ignore a lower number."
    )
    gpus: list[GpuRunQueue] = Field(
        default_factory=list, max_length=64, description="Run queues, one entry for each GPU that trials share."
    )
    released: bool = Field(
        False, description="If true, the agent thaws all trials and suspends none (set by `podium thaw`)."
    )
    draining: bool = Field(
        False,
        description="If true, trials that can checkpoint move to other nodes and none is placed here (set by `podium "
        "drain`).",
    )


class Holder(TrialRef):
    """The trial whose processes may use the GPU now."""

    since: datetime = Field(description="Time at which the trial became the holder.")


class SlotState(StrEnum):
    """State of a trial on a GPU as its agent reports it."""

    GATED = "Gated"
    STARTING = "Starting"
    RUNNING = "Running"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    RESUMING = "Resuming"


class TrialOnGpu(TrialRef):
    """A trial that has a slot on the GPU."""

    pod: str = Field(description="Name of the trial's pod.")
    pod_uid: str = Field(alias="podUID", description="UID of the trial's pod.")
    state: SlotState = Field(description="State of the trial on the GPU.")
    since: datetime = Field(description="Time at which the trial entered this state.")


class OtherPod(StatusModel):
    """A pod that has a slot on the GPU and is not a trial: it is never suspended."""

    namespace: str = Field(description="Namespace of the pod.")
    pod: str = Field(description="Name of the pod.")
    pod_uid: str = Field(alias="podUID", description="UID of the pod.")
    memory: int = Field(0, description="Bytes that the pod declared on each of its GPUs.")


class GpuStatus(StatusModel):
    """State of one GPU as the agent observes it."""

    uuid: str = Field(description="UUID of the GPU.")
    index: int = Field(description="Index of the GPU in the driver.")
    product: str = Field("", description="Product name of the GPU.")
    memory_total: int = Field(0, description="Total memory of the GPU, in bytes; 0 if the driver does not report it.")
    memory_used: int = Field(0, description="Used memory of the GPU, in bytes.")
    memory_reserved: int = Field(
        0,
        description="Bytes that the trials on this GPU declared. Of the trials that are moved off the GPU when "
        "suspended "
        "(cuda-checkpoint without freeze), only the largest counts.",
    )
    memory_movable: int = Field(
        0, description="Bytes of memoryReserved that the largest trial that is moved off the GPU declared."
    )
    sm_utilization: float = Field(0.0, description="Utilization of the streaming multiprocessors in percent, smoothed.")
    temperature: float | None = Field(None, description="Temperature of the GPU, in degrees Celsius.")
    sm_clock: int | None = Field(None, description="Clock rate of the streaming multiprocessors, in MHz.")
    throttle: list[str] = Field(
        default_factory=list, description="Reasons for which the GPU runs below its full clock rate."
    )
    ecc_uncorrected: int = Field(0, description="Number of uncorrected memory errors.")
    xid: int | None = Field(
        None,
        description="Error code of the driver (Xid): one that makes the GPU unhealthy, otherwise the last one. It "
        "remains after the GPU has come back.",
    )
    health: Literal["Healthy", "Unhealthy", "Unknown"] = Field(
        "Unknown", description="Health of the GPU. No trial is placed on an unhealthy GPU."
    )
    health_reason: str = Field("", description="Reason for which the GPU is not healthy.")
    slots: int = Field(0, description="Number of trials that can have a slot on this GPU at once; 0 in MIG mode.")
    epoch: int = Field(0, description="Epoch of the run queue that is in effect on this GPU.")
    exclusive_pod: str | None = Field(
        None,
        description="Pod that has the whole GPU (`podium.dev/gpu-exclusive`), as namespace/name. An empty string: "
        "the pod is "
        "being admitted.",
    )
    reservation: str | None = Field(
        None,
        description="Reservation pod that holds the GPU for Podium, as namespace/name, if `mode` is reservations. "
        "Missing: the "
        "GPU is not reserved, and no trial runs on it.",
    )
    holder: Holder | None = Field(None, description="Trial that uses the GPU now; missing if there is none.")
    trials: list[TrialOnGpu] = Field(default_factory=list, description="Trials that have a slot on the GPU.")
    other_pods: list[OtherPod] = Field(
        default_factory=list,
        description="Pods that have a slot on the GPU and are not trials. Their memory is not part of memoryReserved.",
    )

    @property
    def memory_claimed(self) -> int:
        """Return the bytes that all pods on the GPU declared; the memory of other pods is never moved off."""
        return self.memory_reserved + sum(pod.memory for pod in self.other_pods)


def _memory(gpu: GpuStatus) -> str:
    return f"{gpu.memory_used / 2**30:.0f}/{gpu.memory_total / 2**30:.0f}Gi" if gpu.memory_total > 0 else "unknown"


class GpuNodeSummary(StatusModel):
    """The GPUs of the node as one line for `kubectl get gpunodes`, whose columns cannot count or join."""

    gpus: int = Field(description="Number of GPUs.")
    holders: str = Field(description="Holder of each GPU; `-` for none.")
    utilization: str = Field(description="Utilization of each GPU, in percent.")
    memory: str = Field(description="Used and total memory of each GPU, in GiB.")
    health: str = Field(description="Healthy, or the unhealthy GPUs with their reasons.")


class GpuNodeStatus(StatusModel):
    """What the agent reports."""

    observed_epoch: int = Field(0, description="Newest epoch that the agent has observed.")
    driver: str = Field("", description="Version of the NVIDIA driver.")
    driver_library: str = Field(
        "",
        description="Folder of the driver's libraries and what put them there, or the folders that the agent searched "
        "without finding them.",
    )
    agent: str = Field("", description="Version of the agent.")
    gate_volume: bool = Field(
        False,
        description="Whether the agent puts the files of a gate into the gate's own volume. While an agent of an "
        "earlier release does not, the gates of new pods request slots, too.",
    )
    methods: list[str] = Field(default_factory=list, description="Suspension methods that work on this node.")
    mode: Literal["dedicated", "reservations"] = Field(
        "dedicated",
        description="Source of the GPUs. dedicated: Podium uses all GPUs of the node; reservations: Podium uses the "
        "GPUs that "
        "reservation pods hold.",
    )
    updated_at: datetime | None = Field(None, description="Time at which the agent wrote this status.")
    gpus: list[GpuStatus] = Field(
        default_factory=list, description="GPUs of the node, ordered by the index in the driver."
    )

    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=32,
        description="Usable: whether Podium uses the GPUs of the node. False if another device plugin gives them out.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )

    @computed_field(description="Summary of the GPUs for `kubectl get gpunodes`.")  # type: ignore[prop-decorator]
    @property
    def summary(self) -> GpuNodeSummary:
        """Return the summary. It is written with every status and never read back.

        It repeats what `gpus` holds.
        """
        sick = [f"{gpu.index}: {gpu.health_reason or gpu.health}" for gpu in self.gpus if gpu.health != "Healthy"]
        return GpuNodeSummary(
            gpus=len(self.gpus),
            holders=",".join(gpu.holder.trial if gpu.holder else "-" for gpu in self.gpus),
            utilization=",".join(f"{gpu.sm_utilization:.0f}%" for gpu in self.gpus),
            memory=",".join(_memory(gpu) for gpu in self.gpus),
            health="; ".join(sick) or ("Healthy" if self.gpus else ""),
        )


class GPUNode(StatusModel):
    """A node whose GPUs Podium shares: the run queue of each GPU and the state that the agent observes."""

    metadata: ObjectMeta
    spec: GpuNodeSpec = Field(
        default_factory=GpuNodeSpec, description="Decisions of the operator; written by the operator only."
    )
    status: GpuNodeStatus = Field(
        default_factory=GpuNodeStatus, description="Observed state; written by the agent of the node only."
    )
