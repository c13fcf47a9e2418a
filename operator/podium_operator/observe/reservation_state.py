"""State of a reservation pod, parsed once. The watch caches use it; `reservation_pod` creates the pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import Field

from podium_core.planning.slots.gpu_reservations import Pool
from podium_core.schema.base import ObjectMeta, StatusModel
from podium_operator.reservations.reservation_pod import (
    CHECKPOINT_ANNOTATION,
    COST_ANNOTATION,
    PRODUCTS_ANNOTATION,
    QUEUE_LABEL,
    RESERVATION_LABEL,
    UNNEEDED_ANNOTATION,
)

DISRUPTIONS = ("DisruptionTarget", "TerminationTarget")  # set by Kubernetes, and by Kueue for pods that it ends
SCHEDULING_GATED = "SchedulingGated"


class _Condition(StatusModel):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _ExtendedResourceClaim(StatusModel):
    resource_claim_name: str = ""


class _Spec(StatusModel):
    node_name: str | None = None
    priority: int = 0


class _Status(StatusModel):
    phase: str = "Pending"
    conditions: list[_Condition] = Field(default_factory=list)
    extended_resource_claim_status: _ExtendedResourceClaim | None = None


class _Pod(StatusModel):
    metadata: ObjectMeta
    spec: _Spec = Field(default_factory=_Spec)
    status: _Status = Field(default_factory=_Status)


@dataclass(frozen=True, slots=True)
class ReservationPodState:
    """State of one reservation pod.

    `preempted_by`: why another pod or person ended it, as the cluster reports; `unscheduled`: why it has no node;
    `ended`: it has ended; `last_checkpoint` and `preemption_cost`: as its annotations say; `claim`: the ResourceClaim
    that holds its GPU, empty if the GPU comes from a device plugin.
    """

    name: str
    uid: str
    pool: Pool
    created: float
    node: str = ""  # empty: none yet
    deleting: bool = False
    ended: bool = False
    unneeded_since: float | None = None
    preempted_by: str = ""
    unscheduled: str = ""
    last_checkpoint: float | None = None
    preemption_cost: float | None = None
    priority: int = 0
    claim: str = ""

    @property
    def bound(self) -> bool:
        """Whether the pod has a node."""
        return bool(self.node)

    @property
    def over(self) -> bool:
        """Whether the pod has ended or is being deleted."""
        return self.ended or self.deleting

    @property
    def path(self) -> str:
        """Name of the reservation in GPUNode.status: namespace/name."""
        return f"{self.pool.namespace}/{self.name}"


def parse_reservation_pod(payload: Mapping[str, Any]) -> ReservationPodState:
    """Return the state of a reservation pod.

    Raises ValueError for a pod that Podium did not create as a reservation, or whose annotation does not hold a time.
    """
    pod = _Pod.model_validate(payload)
    meta, status = pod.metadata, pod.status
    if meta.labels.get(RESERVATION_LABEL) != meta.name:
        raise ValueError(f"pod {meta.name}: the label {RESERVATION_LABEL} differs from the pod's name")
    products = meta.annotations.get(PRODUCTS_ANNOTATION, "")
    unneeded = meta.annotations.get(UNNEEDED_ANNOTATION)
    disruption = next((c for c in status.conditions if c.type in DISRUPTIONS and c.status == "True"), None)
    waits = next((c for c in status.conditions if c.type == "PodScheduled" and c.status == "False"), None)
    queue = meta.labels.get(QUEUE_LABEL, "")
    claim = status.extended_resource_claim_status
    return ReservationPodState(
        name=meta.name,
        uid=meta.uid,
        pool=Pool(meta.namespace, queue, tuple(filter(None, products.split(",")))),
        created=meta.created,
        node=pod.spec.node_name or "",
        deleting=meta.deletion_timestamp is not None,
        ended=status.phase in ("Succeeded", "Failed"),
        unneeded_since=None if unneeded is None else datetime.fromisoformat(unneeded).timestamp(),
        preempted_by=f"{disruption.reason}: {disruption.message}" if disruption is not None else "",
        unscheduled=_unscheduled(waits, queue),
        last_checkpoint=_time(meta.annotations.get(CHECKPOINT_ANNOTATION, "")),
        preemption_cost=_amount(meta.annotations.get(COST_ANNOTATION, "")),
        priority=pod.spec.priority,
        claim=claim.resource_claim_name if claim is not None else "",
    )


def _unscheduled(condition: _Condition | None, queue: str) -> str:
    """Return why the pod has no node; Kueue holds pods of its queues back by a scheduling gate."""
    if condition is None:
        return ""
    if condition.reason == SCHEDULING_GATED and queue:
        return (
            f"Kueue has not admitted the reservation yet: LocalQueue {queue} has no quota left, is stopped or does not "
            "exist (kubectl describe workloads shows which)."
        )
    return condition.message


def _amount(text: str) -> float | None:
    """Return the number in an annotation; None if it holds none, and the operator writes it again."""
    return float(text) if text.isascii() and text.isdigit() else None


def _time(text: str) -> float | None:
    """Return the time in an annotation; None if it holds none, and the operator writes it again."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None
