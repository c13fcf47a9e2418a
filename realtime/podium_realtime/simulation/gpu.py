"""The simulated GPU: how fast stages run, alone and beside one another. The model is stated here, and nowhere else.

The reference network (ResNet-18, batch 1) takes T(n) = exposed + execution(n) on n SMs, T being the published curve;
a stage has its share of either part.

- Launching: the host works `launch` seconds on a network's kernels (one stream with frames launched ahead of one
  another runs at 724 fps = 1/launch). The device begins after `exposed` of them and works beside the rest. A batch is
  launched once. Batches need few launches, so the best batched rate is the device's: exposed = T(68) - 1/1036 s.
- SMs: busy contexts get the SMs they were made with, scaled down together where they sum to more than the device has
  (over-subscription); within a context a high-priority stream weighs HIGH_WEIGHT, a low one 1. Small shares are used
  better than large ones: that is the published curve.
- Co-running stages disturb one another (caches, memory bandwidth, power cap): J of them each take 1 + kappa x ln J
  times as long on the same SMs. Fitted on DARIS' rate.
- A process launches under a lock: of each launch `serial` x launch is done by one thread at a time, and each thread
  beyond `threads` makes it longer by `convoy`. Contexts of one process share it (SGPRS); contexts with a process each
  (DARIS' MPS clients) have one each. Fitted on SGPRS' rates and on those of unmanaged networks.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from podium_realtime.model import published
from podium_realtime.model.refusal import require_between, require_positive
from podium_realtime.scheduling.pool import StreamPriority

HIGH_WEIGHT = 2.0  # our assumption: blocks of a high stream are placed first, so it gets the larger part


@dataclass(frozen=True, slots=True)
class Interference:
    """The fitted numbers; see the module's text. `jitter`: standard deviation of the logarithm of each time."""

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
class Share:
    """One stage on the device, as the sharing rule sees it. `batch` in frames."""

    context: int
    context_sms: int
    priority: StreamPriority
    batch: int


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    """`curve`: (SM count, execution seconds of the reference network), ascending. `launch`, `exposed`: host seconds of
    it, and how many of them pass before the device begins. `shared_process`: all contexts launch through one process.
    """

    sms: int
    launch: float
    exposed: float
    curve: tuple[tuple[int, float], ...]
    interference: Interference
    shared_process: bool = True

    def __post_init__(self) -> None:
        require_between(self.sms, 1, 100_000, "gpu: sms")
        require_positive(self.launch, "gpu: launch", "s")
        require_between(self.exposed, 0.0, self.launch, "gpu: exposed")
        require_between(len(self.curve), 1, 10_000, "gpu: curve")
        for count, seconds in self.curve:
            require_positive(seconds, f"gpu: curve at {count} SMs", "s")

    def execution(self, sms: float) -> float:
        """Seconds of the reference network's SM work on `sms` SMs (a fraction where contexts share), alone. Linear in
        1/sms between the published points; below the first, work stays what it is there.
        """
        counts = [count for count, _ in self.curve]
        place = bisect_left(counts, sms)
        if place == 0:
            return self.curve[0][1] * counts[0] / sms
        if place == len(counts):
            return self.curve[-1][1]
        (low, slow), (high, fast) = self.curve[place - 1], self.curve[place]
        share = (1.0 / low - 1.0 / sms) / (1.0 / low - 1.0 / high)
        return slow + share * (fast - slow)

    def disturbance(self, stages: int) -> float:
        """How much longer each of `stages` on the device takes."""
        return 1.0 + self.interference.kappa * math.log(max(1, stages))

    def shares(self, running: Sequence[Share]) -> list[float]:
        """SMs of each running stage. Their sum is at most the device's."""
        weights: dict[int, float] = {}
        sizes: dict[int, int] = {}
        for one in running:
            weights[one.context] = weights.get(one.context, 0.0) + _weight(one)
            sizes[one.context] = one.context_sms
        scale = min(1.0, self.sms / sum(sizes.values())) if sizes else 1.0
        return [scale * one.context_sms * _weight(one) / weights[one.context] for one in running]

    def rates(self, running: Sequence[Share]) -> list[float]:
        """Progress of each running stage, in reference networks a second."""
        slower = self.disturbance(len(running))
        shares = self.shares(running)
        return [1.0 / (self.execution(sms) * slower * one.batch) for one, sms in zip(running, shares, strict=True)]

    def limit(self, most: int = 64) -> float:
        """Frames a second of the reference network that no scheduler exceeds, with 1 to `most` stages on the device and
        their launching hidden. Equal shares are best: progress is concave in the SMs.
        """
        return max(count / (self.execution(self.sms / count) * self.disturbance(count)) for count in range(1, most + 1))

    def slowdown(self, threads: int) -> float:
        """How much longer a launch takes with `threads` at work in its process."""
        return 1.0 + self.interference.convoy * max(0.0, threads - self.interference.threads)

    @property
    def locked(self) -> float:
        """Seconds under the process' lock of one launch of the reference network."""
        return self.launch * self.interference.serial


def _weight(one: Share) -> float:
    return HIGH_WEIGHT if one.priority is StreamPriority.HIGH else 1.0


def published_gpu(interference: Interference, *, shared_process: bool = True) -> SimulatedGpu:
    """The device of the SGPRS and DARIS repositories."""
    seconds = {count: us * 1e-6 for count, us in sorted(published.RESNET18_MICROSECONDS.items())}
    exposed = seconds[published.DEVICE_SMS] - 1.0 / published.BEST_BATCHED_FPS
    curve = tuple((count, time - exposed) for count, time in seconds.items())
    launch = 1.0 / published.SINGLE_STREAM_FPS
    return SimulatedGpu(published.DEVICE_SMS, launch, exposed, curve, interference, shared_process)
