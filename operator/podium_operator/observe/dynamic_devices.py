"""Devices of DRA drivers and the claims that have them, as `yielding` needs them. Pure.

Parsed from ResourceSlices and ResourceClaims of the API group resource.k8s.io.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from podium_core.schema.base import ObjectMeta, StatusModel
from podium_core.schema.resource_slice import parse_slices, without_outdated

Device = tuple[str, str, str]  # driver, pool and name: together they identify a device
ClaimKey = tuple[str, str]  # namespace and name
_REPELLING_EFFECTS = ("NoSchedule", "NoExecute")


class _Exactly(StatusModel):
    device_class_name: str = ""
    allocation_mode: str = "ExactCount"
    count: int = 1


class _Request(StatusModel):
    exactly: _Exactly | None = None


class _Devices(StatusModel):
    requests: list[_Request] = Field(default_factory=list)


class _ClaimSpec(StatusModel):
    devices: _Devices = _Devices()


class _Result(StatusModel):
    driver: str
    pool: str
    device: str


class _Results(StatusModel):
    results: list[_Result] = Field(default_factory=list)


class _Allocation(StatusModel):
    devices: _Results = _Results()


class _ClaimStatus(StatusModel):
    allocation: _Allocation | None = None


class _Claim(StatusModel):
    metadata: ObjectMeta
    spec: _ClaimSpec = _ClaimSpec()
    status: _ClaimStatus = _ClaimStatus()


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """A ResourceClaim.

    `wants`: number of devices that it requests of each DeviceClass; `has`: those that are allocated to it.
    """

    wants: Mapping[str, int]
    has: frozenset[Device]


def parse_claims(payloads: Iterable[Mapping[str, Any]]) -> Mapping[ClaimKey, DeviceClaim]:
    """Return the claims. A request with alternatives, or for all devices of a class, counts as none."""
    claims: dict[ClaimKey, DeviceClaim] = {}
    for payload in payloads:
        claim = _Claim.model_validate(payload)
        wants: Counter[str] = Counter()
        for request in claim.spec.devices.requests:
            if request.exactly is not None and request.exactly.allocation_mode == "ExactCount":
                wants[request.exactly.device_class_name] += request.exactly.count
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else []
        has = frozenset((one.driver, one.pool, one.device) for one in results)
        claims[claim.metadata.namespace, claim.metadata.name] = DeviceClaim(wants, has)
    return claims


def free_devices(
    slices: Iterable[Mapping[str, Any]], claims: Iterable[DeviceClaim], drivers: Collection[str]
) -> Mapping[str, int]:
    """Return the number of devices by node that no claim has and that no taint keeps from pods."""
    offered = [spec for spec in parse_slices(slices) if spec.driver in drivers]
    taken = {device for claim in claims for device in claim.has}
    free: Counter[str] = Counter()
    for spec in without_outdated(offered):
        for device in spec.devices if spec.node_name else ():
            repels = any(taint.effect in _REPELLING_EFFECTS for taint in device.taints)
            if not repels and (spec.driver, spec.pool.name, device.name) not in taken:
                free[spec.node_name] += 1
    return free
