"""Model of the simulated GPU: how fast stages run alone and beside each other.

The reference network (ResNet-18, batch 1) takes T(n) = exposed + execution(n) seconds on n SMs, where T is the
published curve. A stage takes its share of each part.

- Launches: the host needs `launch_time` seconds for the kernels of a network (one stream that launches ahead runs at
  724 fps = 1/launch_time). The device starts after `exposed_launch_time` of them and runs concurrently with the rest. A
  batch is launched once. Batching needs few launches, so the device limits the best batched rate, which gives
  exposed_launch_time = T(68) - 1/1036 s.
- SMs: busy contexts receive the SMs of their partition, scaled down together if they sum to more than the device has
  (over-subscription). Within a context a high-priority stream has the weight HIGH_WEIGHT, a low-priority one 1.
- Interference (caches, memory bandwidth, power): J concurrent stages take 1 + kappa x ln J times as long on the same
  SMs. Calibrated on the rate of DARIS.
- Launch lock: the part `serial` of each launch runs under a lock of the process, and each thread beyond `threads` adds
  the fraction `convoy` (lock convoy). Contexts share the lock if they share a process (SGPRS); with one process each
  (MPS clients in DARIS) each has its own. Calibrated on the rates of SGPRS and of unmanaged networks.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from podium_realtime.model import published
from podium_realtime.model.errors import require_between, require_positive
from podium_realtime.scheduling.pool import StreamPriority

HIGH_WEIGHT = 2.0  # assumption: the device places blocks of a high-priority stream first, so it receives more SMs


@dataclass(frozen=True, slots=True)
class Interference:
    """Calibrated parameters; the module's docstring defines them.

    `jitter`: standard deviation of the logarithm of each time.
    """

    kappa: float
    serial: float
    threads: float
    convoy: float
    jitter: float = 0.03

    def __post_init__(self) -> None:
        require_between(self.kappa, 0.0, 10.0, "interference: kappa")
        require_between(self.serial, 0.0, 1.0, "interference: serial")
        require_between(self.threads, 0.0, 1000.0, "interference: threads")
        require_between(self.convoy, 0.0, 10.0, "interference: convoy")
        require_between(self.jitter, 0.0, 0.5, "interference: jitter")


@dataclass(frozen=True, slots=True)
class RunningStage:
    """A batch on the device: its context, stream priority and number of frames."""

    context: int
    context_sms: int
    priority: StreamPriority
    frames: int


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    """The simulated device. All times are in seconds.

    `launch_time`: host time to launch the reference network.
    `exposed_launch_time`: part of it that passes before the device starts.
    `curve`: (SM count, execution time of the reference network), ascending.
    `shared_process`: all contexts launch through one process.
    """

    sms: int
    launch_time: float
    exposed_launch_time: float
    curve: tuple[tuple[int, float], ...]
    interference: Interference
    shared_process: bool = True

    def __post_init__(self) -> None:
        require_between(self.sms, 1, 100_000, "gpu: sms")
        require_positive(self.launch_time, "gpu: launch_time", "s")
        require_between(self.exposed_launch_time, 0.0, self.launch_time, "gpu: exposed_launch_time")
        require_between(len(self.curve), 1, 10_000, "gpu: curve")
        for count, seconds in self.curve:
            require_positive(seconds, f"gpu: curve at {count} SMs", "s")

    @property
    def locked_launch_time(self) -> float:
        """Seconds that a launch of the reference network holds the lock of its process."""
        return self.launch_time * self.interference.serial

    def execution_time(self, sms: float) -> float:
        """Return the execution time of the reference network on `sms` SMs, alone.

        Between the points of the curve it is linear in 1/sms. Below the first point, SMs x time is constant. The number
        of SMs is a fraction if contexts share SMs.
        """
        counts = [count for count, _ in self.curve]
        upper = bisect_left(counts, sms)
        if upper == 0:
            return self.curve[0][1] * counts[0] / sms
        if upper == len(counts):
            return self.curve[-1][1]
        (low, slow), (high, fast) = self.curve[upper - 1], self.curve[upper]
        fraction = (1.0 / low - 1.0 / sms) / (1.0 / low - 1.0 / high)
        return slow + fraction * (fast - slow)

    def interference_factor(self, stages: int) -> float:
        """Return how many times longer each of `stages` concurrent stages takes than alone."""
        return 1.0 + self.interference.kappa * math.log(max(1, stages))

    def launch_slowdown(self, threads: int) -> float:
        """Return how many times longer a launch takes with `threads` active threads in its process."""
        return 1.0 + self.interference.convoy * max(0.0, threads - self.interference.threads)

    def allocate_sms(self, running: Sequence[RunningStage]) -> list[float]:
        """Return the SMs of each running stage; they sum to at most the SMs of the device."""
        weights: dict[int, float] = {}
        sizes: dict[int, int] = {}
        for stage in running:
            weights[stage.context] = weights.get(stage.context, 0.0) + _weight(stage)
            sizes[stage.context] = stage.context_sms
        scale = min(1.0, self.sms / sum(sizes.values())) if sizes else 1.0
        return [scale * stage.context_sms * _weight(stage) / weights[stage.context] for stage in running]

    def rates(self, running: Sequence[RunningStage]) -> list[float]:
        """Return the progress of each running stage, in reference networks a second."""
        factor = self.interference_factor(len(running))
        allocated = self.allocate_sms(running)
        return [
            1.0 / (self.execution_time(sms) * factor * stage.frames)
            for stage, sms in zip(running, allocated, strict=True)
        ]

    def max_throughput(self, max_stages: int = 64) -> float:
        """Return the frames a second of the reference network that no scheduler can exceed.

        The bound assumes 1 to `max_stages` concurrent stages and hidden launches. Equal SMs for all stages are optimal,
        because progress is concave in the SMs.
        """
        return max(
            count / (self.execution_time(self.sms / count) * self.interference_factor(count))
            for count in range(1, max_stages + 1)
        )


def _weight(stage: RunningStage) -> float:
    return HIGH_WEIGHT if stage.priority is StreamPriority.HIGH else 1.0


def published_gpu(interference: Interference, *, shared_process: bool = True) -> SimulatedGpu:
    """Return the device of the SGPRS and DARIS repositories."""
    seconds = {count: us * 1e-6 for count, us in sorted(published.RESNET18_MICROSECONDS.items())}
    exposed = seconds[published.DEVICE_SMS] - 1.0 / published.BEST_BATCHED_FPS
    curve = tuple((count, time - exposed) for count, time in seconds.items())
    launch = 1.0 / published.SINGLE_STREAM_FPS
    return SimulatedGpu(published.DEVICE_SMS, launch, exposed, curve, interference, shared_process)
