"""ResourceSlices, in which DRA drivers publish their devices (API group resource.k8s.io).

The agent reads UUIDs from them, the operator counts free devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from podium_core.schema.base import StatusModel


class DeviceAttribute(StatusModel):
    """An attribute of a device; only text is read."""

    string: str = ""


class DeviceTaint(StatusModel):
    """A taint of a device."""

    effect: str = ""


class SliceDevice(StatusModel):
    """A device."""

    name: str
    attributes: dict[str, DeviceAttribute] = Field(default_factory=dict)
    taints: list[DeviceTaint] = Field(default_factory=list)


class ResourcePool(StatusModel):
    """The pool of a slice."""

    name: str
    generation: int = 0


class SliceSpec(StatusModel):
    """Spec of a slice; `node_name` is empty for devices that are not local to a node."""

    driver: str
    pool: ResourcePool
    node_name: str = ""
    devices: list[SliceDevice] = Field(default_factory=list)


class _Slice(StatusModel):
    spec: SliceSpec


def parse_slices(payloads: Iterable[Mapping[str, Any]]) -> list[SliceSpec]:
    """Return the specs. Raises ValueError for a slice that cannot be parsed."""
    return [_Slice.model_validate(payload).spec for payload in payloads]


def without_outdated(specs: Iterable[SliceSpec]) -> list[SliceSpec]:
    """Return the specs of the newest generation of each pool; older ones are out of date."""
    there = list(specs)
    newest: dict[tuple[str, str], int] = {}
    for spec in there:
        pool = (spec.driver, spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), spec.pool.generation)
    return [spec for spec in there if spec.pool.generation >= newest[spec.driver, spec.pool.name]]
