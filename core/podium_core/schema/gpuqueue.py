"""GPUQueue: how a team shares the GPUs (spec, by an admin), and what it has now (status, by the operator)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from podium_core.domain.gpu_queue import QueueUsage, QueueView
from podium_core.schema.base import Condition, ObjectMeta, SpecModel, StatusModel
from podium_core.schema.rules import Rule

MAX_GPUS = 100_000
MIN_WEIGHT = 0.001
SECONDS_PER_HOUR = 3600.0
NamespaceName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        json_schema_extra={"x-says": "write the name of a namespace, such as research"},
    ),
]


class QueueBudget(SpecModel):
    """A limit of what a queue may use in total."""

    gpu_hours: float = Field(
        gt=0, le=1e9, description="GPU-hours after which the queue gets no GPU. Raise it to let the queue continue."
    )


class GpuQueueSpec(SpecModel):
    """The share of a team. All GPUs of the cluster are shared between the queues that have trials."""

    weight: float = Field(
        1.0,
        gt=0,
        le=1_000_000,
        description="Share of the queue relative to the others: a queue of weight 2 gets twice the GPU-seconds of one "
        "of weight 1 while both have enough trials.",
    )
    gpus: int | None = Field(
        None,
        ge=0,
        le=MAX_GPUS,
        description="Quota: number of GPUs that the queue may hold at a time by right. Default: any number.",
    )
    borrowing: bool = Field(
        True, description="Whether the queue may hold GPUs beyond its quota while no other queue needs them."
    )
    borrowing_limit: int | None = Field(
        None,
        ge=0,
        le=MAX_GPUS,
        description="Largest number of GPUs beyond the quota. Default: any number.",
    )
    minimum: int = Field(
        0,
        ge=0,
        le=MAX_GPUS,
        description="Number of GPUs that the queue gets before all other queues, whatever their weights, when it has "
        "trials.",
    )
    namespaces: list[NamespaceName] = Field(
        default_factory=list,
        max_length=256,
        description="Namespaces whose jobs may use the queue; empty: all.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    budget: QueueBudget | None = Field(None, description="Limit of what the queue may use in total.")


class QueueGpus(StatusModel):
    """GPUs of the queue now."""

    nominal: float = Field(0.0, description="Number of GPUs that the queue gets while all queues have enough trials.")
    deserved: float = Field(
        0.0, description="Number of GPUs that the queue deserves now, given what the other queues can use."
    )
    used: int = Field(0, description="Number of GPUs that trials of the queue hold.")
    borrowed: int = Field(0, description="Number of used GPUs beyond the quota.")


class QueueWindow(StatusModel):
    """GPU-seconds of the last hour: one that is t seconds old counts exp(-t/3600)."""

    deserved: float = Field(0.0, description="Number of GPU-seconds that the queue deserved.")
    used: float = Field(0.0, description="Number of GPU-seconds that trials of the queue held GPUs.")


class GpuQueueStatus(StatusModel):
    """What the queue has; written by the operator."""

    observed_generation: int = Field(0, description="Generation of the spec to which this status refers.")
    gpus: QueueGpus = Field(default_factory=QueueGpus, description="GPUs of the queue now.")
    window: QueueWindow = Field(
        default_factory=QueueWindow, description="GPU-seconds of the last hour; older ones count less."
    )
    gpu_seconds: float = Field(0.0, description="GPU-seconds that the queue has used in total.")
    gpu_hours: float = Field(0.0, description="The same in hours.")
    jobs: int = Field(0, description="Number of unfinished jobs of the queue.")
    waiting: int = Field(0, description="Number of trials of the queue that want a GPU and have none.")
    updated_at: datetime | None = Field(None, description="Time at which this status was written.")
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=32,
        description="Conditions of the queue, such as Active.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


class GPUQueue(StatusModel):
    """A queue of a team. It shares the GPUs of the cluster with the other queues by weight."""

    metadata: ObjectMeta
    spec: GpuQueueSpec = Field(default_factory=GpuQueueSpec, description="The share of the team.")
    status: GpuQueueStatus = Field(default_factory=GpuQueueStatus, description="What the queue has now.")


QUEUE_RULES: tuple[Rule, ...] = (
    Rule(  # a rule, since the API server compares a whole number with the minimum cut to a whole number
        "WeightTooLow",
        "spec",
        f"self.weight >= {MIN_WEIGHT}",
        f"weight must be at least {MIN_WEIGHT}: raise it",
        lambda s: s.weight >= MIN_WEIGHT,
        "weight",
    ),
    Rule(
        "QuotaMissing",
        "spec",
        "has(self.gpus) || (self.borrowing && !has(self.borrowingLimit))",
        "without a quota nothing is borrowed: set gpus, or remove borrowing and borrowingLimit",
        lambda s: s.gpus is not None or (s.borrowing and s.borrowing_limit is None),
        "gpus",
    ),
    Rule(
        "BorrowingOff",
        "spec",
        "self.borrowing || !has(self.borrowingLimit)",
        "borrowing is false: set it to true, or remove borrowingLimit",
        lambda s: s.borrowing or s.borrowing_limit is None,
        "borrowingLimit",
    ),
    Rule(
        "MinimumAboveQuota",
        "spec",
        "!has(self.gpus) || self.minimum <= self.gpus",
        "minimum must not be greater than gpus: lower it, or raise gpus",
        lambda s: s.gpus is None or s.minimum <= s.gpus,
        "minimum",
    ),
)


def queue_view(queue: GPUQueue, usage: QueueUsage | None = None) -> QueueView:
    """Return the planner's view of a queue.

    `usage`: what it used until now, by default what its status stores.
    """
    spec = queue.spec
    return QueueView(
        name=queue.metadata.name,
        weight=spec.weight,
        gpus=spec.gpus,
        borrowing=(spec.borrowing_limit if spec.borrowing else 0) if spec.gpus is not None else None,
        minimum=spec.minimum,
        namespaces=frozenset(spec.namespaces) or None,
        budget=None if spec.budget is None else spec.budget.gpu_hours * SECONDS_PER_HOUR,
        usage=stored_usage(queue) if usage is None else usage,
    )


def stored_usage(queue: GPUQueue) -> QueueUsage:
    """Return the usage in the status of a queue, as of the time at which it was written."""
    status = queue.status
    return QueueUsage(max(0.0, status.window.deserved), max(0.0, status.window.used), max(0.0, status.gpu_seconds))
