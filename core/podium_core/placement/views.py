"""What placement sees of a node and of a pod. Built by the extender from GPUNode objects and their Leases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CLOCK_SKEW = 30.0  # seconds that a node's clock may be ahead before its times say nothing


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU as its agent last reported it; memory in bytes, utilisation in percent."""

    uuid: str
    product: str = ""
    memory_total: int = 0  # 0 = not known
    memory_reserved: int = 0  # declared by the trials that are on it; of those that are moved off it the largest only
    memory_movable: int = 0  # by that one: a newcomer that is moved off as well need not fit beside it
    memory_used: int = 0
    sm_utilization: float = 0.0
    health: Literal["Healthy", "Unhealthy", "Unknown"] = "Unknown"
    health_reason: str = ""
    slots: int = 0
    trials: int = 0  # that have a share of it
    throttled: bool = False
    ranks: tuple[int | None, ...] = ()  # of these trials among those of their jobs, 1 = first; None = not ranked
    pods: tuple[str, ...] = ()  # uids of the pods of these trials
    temperature: float | None = None  # degrees Celsius; None = this GPU does not tell
    ecc_uncorrected: int = 0
    xid: int | None = None  # the driver's last error code


@dataclass(frozen=True, slots=True)
class NodeView:
    name: str
    gpus: tuple[GpuReading, ...]
    reported_at: float | None  # None: its agent was never heard of
    cpu_free: int | None = None  # thousandths that no pod requested; None: not known

    def stale(self, now: float, stale_after: float) -> bool:
        """Telemetry that is too old says nothing: neither idle nor full. Nor does a time that is still to come, which
        would otherwise stay fresh for as long as that clock is wrong.
        """
        return self.reported_at is None or not -CLOCK_SKEW <= now - self.reported_at <= stale_after


@dataclass(frozen=True, slots=True)
class PodNeed:
    """What one pod asks for. `together`: its memory stays on the GPU when another works, as with `freeze`, so all
    others must fit beside it. False: it is moved off, and need only fit beside what stays. `exclusive`: it is no
    trial's, and wants the GPUs for itself while it is there: whatever can be moved off is. `packed`: it is no trial's,
    declares its memory and takes no turns: the device plugin puts it onto the fullest GPUs that hold it.
    """

    gpus: int
    memory: int | None = None
    products: tuple[str, ...] = ()
    memory_stays: bool = True
    exclusive: bool = False
    packed: bool = False
    cpu: int = 0  # thousandths; 0 where the node's are not known either

    def memory_beside(self, gpu: GpuReading) -> int:
        """Bytes of others on this GPU that its own must fit beside."""
        return gpu.memory_reserved - (0 if self.memory_stays and not self.exclusive else gpu.memory_movable)


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeScore:
    node: str
    value: int  # 0 to 10, more is better
    message: str
