"""Reservation pods and nodes with reserved GPUs, for the tests of GPU reservations."""

from __future__ import annotations

from typing import Any

from operator_builders import make_node, moment

from podium_core.domain.keys import JobKey
from podium_core.planning.slots.gpu_reservations import Pool
from podium_core.schema.gpunode import GPUNode
from podium_operator.observe.reservation_state import ReservationPodState, parse_reservation_pod
from podium_operator.reservations.reservation_pod import QUEUE_LABEL, RESERVATION_LABEL

POOL, JOB = Pool("lab"), JobKey("lab", "sweep")
DRIVER = "gpu.nvidia.com"


def seen(
    number: int = 0,
    *,
    bound: bool = True,
    deleting: bool = False,
    conditions: Any = (),
    queue: str = "",
    **more: str,
) -> ReservationPodState:
    name = f"podium-reservation-x-{number}"
    meta = {
        "name": name,
        "namespace": "lab",
        "uid": f"u{number}",
        "labels": {RESERVATION_LABEL: name} | ({QUEUE_LABEL: queue} if queue else {}),
        "annotations": more,
    }
    if deleting:
        meta["deletionTimestamp"] = moment()
    spec = {"nodeName": "node-1"} if bound else {}
    return parse_reservation_pod(
        {"metadata": meta, "spec": spec, "status": {"phase": "Running", "conditions": list(conditions)}}
    )


def reservation_node(reservation: str | None = None, **how: Any) -> GPUNode:
    node = make_node(slots=4 if reservation else 0, **how)
    gpus = [gpu.model_copy(update={"reservation": reservation}) for gpu in node.status.gpus]
    return node.model_copy(update={"status": node.status.model_copy(update={"mode": "reservations", "gpus": gpus})})


def claim(
    name: str, namespace: str = "lab", *, wants: int = 1, device: str = "", node: str = "node-1", driver: str = DRIVER
) -> dict[str, Any]:
    """Return a ResourceClaim for GPUs; with `device`, that one is allocated to it."""
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": wants}}
    status: dict[str, Any] = {}
    if device:
        results = [{"request": "gpu", "driver": driver, "pool": node, "device": device}]
        status = {"allocation": {"devices": {"results": results}}}
    about = {"name": name, "namespace": namespace}
    return {"metadata": about, "spec": {"devices": {"requests": [request]}}, "status": status}


def gpu_slice(*devices: str, node: str = "node-1") -> dict[str, Any]:
    """Return the ResourceSlice of a node's GPUs."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    found = [{"name": name, "attributes": {"uuid": {"string": f"GPU-{name}"}}} for name in devices]
    return {"metadata": {"name": node}, "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": found}}
