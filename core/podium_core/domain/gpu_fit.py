"""The one answer to the question whether a pod fits on a GPU. Pure.

The planner (`domain.fitting`, rebalancing), the extender (`placement.fit`, `placement.gpu_choice`) and the agent (the
device plugin, through `gpu_choice`) all ask `misfit`, so that the same GPU never fits for one and not for another.

A driver may answer only in part, so product and memory may be unknown:

- A pod that declares no memory is not limited by it.
- Memory that is unknown (0) limits nothing. A GPU that shares the memory of its node reports none, and jobs that
  declare memory must be able to run there.
- A product that is unknown ("") matches every request.
- Health that is unknown is not unhealthy.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Literal, Protocol


class Misfit(StrEnum):
    """Reason why a pod does not fit on a GPU, in the order in which they are tested."""

    PRODUCT = "GPUProductMismatch"
    UNHEALTHY = "Unhealthy"
    TOO_SMALL = "GPUTooSmall"
    MEMORY_RESERVED = "GPUMemoryReserved"


class Gpu(Protocol):
    """The facts about a GPU that decide; memory in bytes, 0 if it is unknown."""

    @property
    def product(self) -> str:
        """Return the product name; empty if it is unknown."""
        ...

    @property
    def health(self) -> Literal["Healthy", "Unhealthy", "Unknown"]:
        """Return the health; an Unhealthy GPU, such as one in MIG mode, takes no pod."""
        ...

    @property
    def memory_total(self) -> int:
        """Return the total memory."""
        ...


class Need(Protocol):
    """The needs of a pod that decide; `memory` in bytes on each of its GPUs, None if it declares none."""

    @property
    def products(self) -> tuple[str, ...]:
        """Return the products that it accepts; empty means any."""
        ...

    @property
    def memory(self) -> int | None:
        """Return the memory that it declares."""
        ...


def misfit(need: Need, gpu: Gpu, *, beside: int | None = None, fresh: bool = True) -> Misfit | None:
    """Return the first reason why the pod does not fit on this GPU; None if it fits.

    `beside`: the bytes of other pods beside which it must fit now; None if only the GPU itself counts. `fresh`: the
    health of the GPU was reported recently; an old report refuses nothing that may have changed since.
    """
    if not is_wanted(gpu.product, need.products):
        return Misfit.PRODUCT
    if fresh and gpu.health == "Unhealthy":
        return Misfit.UNHEALTHY
    if need.memory is None or gpu.memory_total <= 0:
        return None
    if need.memory > gpu.memory_total:
        return Misfit.TOO_SMALL
    if beside is not None and beside + need.memory > gpu.memory_total:
        return Misfit.MEMORY_RESERVED
    return None


def is_wanted(product: str, products: Collection[str]) -> bool:
    """Return whether a GPU of this product is wanted. One of unknown product ("") always is."""
    return not products or not product or product in products
