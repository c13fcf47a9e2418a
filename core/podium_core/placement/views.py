"""Views of a node and of a pod for placement. The extender builds them from GPUNode objects and their Leases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CLOCK_SKEW = 30.0  # seconds that a node's clock may be ahead before its times are ignored


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Declared and used memory of a GPU in bytes."""

    reserved: int = 0  # declared by the trials on it; of those that are moved off it only the largest counts
    movable: int = 0  # declared by that one: a new trial that is moved off as well need not fit beside it
    used: int = 0


@dataclass(frozen=True, slots=True)
class GpuCondition:
    """Heat and errors of a GPU, as its driver reports them."""

    throttled: bool = False
    temperature: float | None = None  # degrees Celsius; None = not reported
    ecc_uncorrected: int = 0
    xid: int | None = None  # last error code of the driver


_UNUSED, _NO_ERRORS = MemoryUse(), GpuCondition()


@dataclass(frozen=True, slots=True)
class GpuReading:
    """A GPU as its agent last reported it; memory in bytes, utilization in percent."""

    uuid: str
    product: str = ""
    memory_total: int = 0  # 0 = not known
    memory: MemoryUse = _UNUSED
    sm_utilization: float = 0.0
    health: Literal["Healthy", "Unhealthy", "Unknown"] = "Unknown"
    health_reason: str = ""
    slots: int = 0
    trials: int = 0  # number of trials with a slot
    ranks: tuple[int | None, ...] = ()  # ranks of these trials in their jobs, 1 = first; None = not ranked
    pods: tuple[str, ...] = ()  # UIDs of the pods of these trials
    condition: GpuCondition = _NO_ERRORS


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as placement sees it."""

    name: str
    gpus: tuple[GpuReading, ...]
    reported_at: float | None  # None: its agent has never reported
    cpu_free: int | None = None  # thousandths of CPUs that no pod requested; None: not known

    def stale(self, now: float, stale_after: float) -> bool:
        """Return whether the telemetry is too old or its time is in the future.

        Then the node is neither idle nor full.

        A time in the future would remain fresh for as long as that clock is wrong.
        """
        return self.reported_at is None or not -CLOCK_SKEW <= now - self.reported_at <= stale_after


@dataclass(frozen=True, slots=True)
class PodNeed:
    """GPU needs of one pod.

    `memory_stays`: its memory remains on the GPU while it is suspended, as with `freeze`, so all others must fit beside
    it. If false, its memory is moved off and must only fit beside what remains. `exclusive`: it is not a trial and gets
    whole GPUs; everything that can be moved off them is. `packed`: it is not a trial, declares its memory and is never
    suspended; the device plugin puts it on the fullest GPUs that hold it.
    """

    gpus: int
    memory: int | None = None
    products: tuple[str, ...] = ()
    memory_stays: bool = True
    exclusive: bool = False
    packed: bool = False
    cpu: int = 0  # thousandths; 0 if those of the nodes are not known

    def memory_beside(self, gpu: GpuReading) -> int:
        """Return the bytes of other pods on this GPU beside which its own memory must fit."""
        memory = gpu.memory
        return memory.reserved - (0 if self.memory_stays and not self.exclusive else memory.movable)


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """Reason why a pod cannot run on a node."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeScore:
    """Score of a node."""

    node: str
    value: int  # 0 to 10, higher is better
    message: str
