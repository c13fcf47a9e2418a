"""The CUDA back-end: streams in green contexts (partitions of the SMs), or plain streams on older drivers.

It needs a GPU, cuda-bindings and PyTorch. Podium installs none of them, so they are imported on use, and `availability`
reports what is missing.

The device's SMs are split once into groups of the device's granularity. Each green context receives as many groups as
its SMs need; groups are assigned round-robin, so that over-subscribed contexts overlap as little as possible. As in
SGPRS, one thread launches for each stream. It launches the next batch before it waits for the previous one
(launch-ahead).
"""

from __future__ import annotations

import importlib
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from podium_realtime.model.errors import RealtimeError
from podium_realtime.runtime.backend import BackendAvailability, CompletedBatch
from podium_realtime.runtime.cuda_graphs import StageGraphs
from podium_realtime.scheduling.jobs import StageBatch
from podium_realtime.scheduling.pool import ContextSpec, StreamPriority

WARM_UPS = 10  # as in the SGPRS repository
GRANULARITY = 8  # SMs in a group; the driver rounds up to what the device supports


def availability() -> BackendAvailability:
    """Return whether this back-end can run here.

    Never raises: an error of a broken installation is the reason.
    """
    try:
        return _detect()
    except Exception as error:
        return BackendAvailability(
            False, "Broken", f"not run: detecting CUDA failed ({type(error).__name__}: {error})."
        )


def _detect() -> BackendAvailability:
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError:
        return BackendAvailability(False, "NotInstalled", "not run: cuda-bindings is not installed.")
    try:
        code = int(driver.cuInit(0)[0])
    except Exception as error:  # the bindings raise exceptions of their own if the driver's library is missing
        return BackendAvailability(
            False, "DriverNotFound", f"not run: there is no CUDA driver ({type(error).__name__})."
        )
    if code != 0 or int(_check(driver, driver.cuDeviceGetCount())) == 0:
        return BackendAvailability(False, "NoDevice", f"not run: the CUDA driver found no device (code {code}).")
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return BackendAvailability(False, "PyTorchMissing", "not run: PyTorch is not installed.")
    if not torch.cuda.is_available():
        return BackendAvailability(False, "PyTorchMissing", "not run: PyTorch was built without CUDA.")
    device = torch.cuda.get_device_properties(0)
    kind = "green contexts" if _has_green_contexts(driver) else "plain streams"
    return BackendAvailability(True, "Available", f"{device.name}, {device.multi_processor_count} SMs, {kind}.")


def device_sms() -> int:
    """Return the SMs of the first device. Call it only if the back-end is available."""
    torch = importlib.import_module("torch")
    return int(torch.cuda.get_device_properties(0).multi_processor_count)


class CudaSession:
    """Pre-warmed streams for every context of a pool; runs ResNet-18 with batch 1.

    `tasks`: names of the tasks; each has its own activations.
    """

    def __init__(self, tasks: Sequence[str], pool: Sequence[ContextSpec]) -> None:
        backend = availability()
        if not backend.available:
            raise RealtimeError(backend.code, "backend cuda", backend.message)
        self._driver = importlib.import_module("cuda.bindings.driver")
        self._torch = importlib.import_module("torch")
        self._device = _check(self._driver, self._driver.cuDeviceGet(0))
        self._torch.cuda.init()
        self._stages = [stage.cuda().eval() for stage in resnet18_stages(self._torch)]
        self._inputs = {name: self._torch.randn(1, 3, 224, 224, device="cuda") for name in tasks}
        self._outputs: dict[str, list[Any]] = {}
        self._green_contexts: list[Any] = []
        self._done: queue.SimpleQueue[CompletedBatch | BaseException] = queue.SimpleQueue()
        self._queues: dict[tuple[int, int], queue.SimpleQueue[StageBatch | None]] = {}
        self._threads: list[threading.Thread] = []
        try:
            self._open(pool)
        except BaseException:
            self.close()
            raise

    def submit(self, batch: StageBatch) -> None:
        """Pass a batch of one stage to its stream's thread. Raises RealtimeError for larger batches."""
        if batch.size != 1:
            raise RealtimeError("NoBatches", "backend cuda", "runs one frame at a time; use a policy without batches")
        self._queues[(batch.context, batch.stream)].put(batch)

    def wait(self, seconds: float) -> Sequence[CompletedBatch]:
        """Return all finished batches, after at most `seconds`. Raises the exception of a thread that failed."""
        completed: list[CompletedBatch] = []
        try:
            item = self._done.get(timeout=max(0.0, seconds))
            while True:
                if isinstance(item, BaseException):
                    raise item
                completed.append(item)
                item = self._done.get_nowait()
        except queue.Empty:
            return completed

    def close(self) -> None:
        """End the launching threads and destroy the green contexts."""
        for batches in self._queues.values():
            batches.put(None)
        for thread in self._threads:
            thread.join(5.0)
        self._torch.cuda.synchronize()
        for green_context in self._green_contexts:
            self._driver.cuGreenCtxDestroy(green_context)
        self._green_contexts = []

    def _open(self, pool: Sequence[ContextSpec]) -> None:
        """Create the contexts, capture the graphs of each stream and start its launching thread."""
        groups = self._groups()
        offset = 0
        for context in pool:
            green_context = None
            if groups:
                count = max(1, round(context.sms / (device_sms() / len(groups))))
                own = [groups[(offset + step) % len(groups)] for step in range(min(count, len(groups)))]
                offset += count
                green_context = self._green_context(own)
            for number, priority in enumerate(context.streams):
                example = next(iter(self._inputs.values()))
                stream = self._stream(green_context, priority)
                graphs = StageGraphs(self._torch, self._stages, stream, example, WARM_UPS)
                if not self._outputs:
                    self._outputs = {name: graphs.empty_outputs() for name in self._inputs}
                batches: queue.SimpleQueue[StageBatch | None] = queue.SimpleQueue()
                self._queues[(context.number, number)] = batches
                thread = threading.Thread(target=self._serve, args=(graphs, batches), daemon=True)
                thread.start()
                self._threads.append(thread)

    def _groups(self) -> list[Any]:
        """Return the device's SMs in groups of GRANULARITY; empty without green contexts."""
        driver = self._driver
        if not _has_green_contexts(driver):
            return []
        kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        device = _check(driver, driver.cuDeviceGetDevResource(self._device, kind))
        max_groups = max(1, device_sms() // GRANULARITY)
        groups, count, _ = _check(driver, driver.cuDevSmResourceSplitByCount(max_groups, device, 0, GRANULARITY))
        return list(groups)[: int(count)]

    def _green_context(self, groups: list[Any]) -> Any:
        driver = self._driver
        descriptor = _check(driver, driver.cuDevResourceGenerateDesc(groups, len(groups)))
        flag = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
        green_context = _check(driver, driver.cuGreenCtxCreate(descriptor, self._device, flag))
        self._green_contexts.append(green_context)
        return green_context

    def _stream(self, green_context: Any, priority: StreamPriority) -> Any:
        """Return a PyTorch stream. In CUDA, lower numbers are higher priorities."""
        level = -1 if priority is StreamPriority.HIGH else 0
        if green_context is None:
            return self._torch.cuda.Stream(priority=level)
        flag = self._driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        handle = _check(self._driver, self._driver.cuGreenCtxStreamCreate(green_context, flag, level))
        return self._torch.cuda.ExternalStream(int(handle))

    def _serve(self, graphs: StageGraphs, batches: queue.SimpleQueue[StageBatch | None]) -> None:
        """Run a launching thread: launch all queued batches, then wait for the oldest one."""
        launched: deque[tuple[StageBatch, float, Any]] = deque()
        try:
            while True:
                if batches.empty() and launched:
                    oldest, started, event = launched.popleft()
                    event.synchronize()
                    self._done.put(CompletedBatch(oldest.number, started, time.perf_counter()))
                    continue
                batch = batches.get()
                if batch is None:
                    return
                started, ready = time.perf_counter(), batch.stages[0]
                fused = len(ready.job.task.network.stages) == 1
                stages = range(len(self._stages)) if fused else range(ready.index, ready.index + 1)
                name = ready.job.task.name
                launched.append((batch, started, graphs.launch(self._inputs[name], self._outputs[name], stages)))
        except BaseException as error:
            self._done.put(error)


def resnet18_stages(torch: Any) -> list[Any]:
    """Return ResNet-18 (He et al., CVPR 2016) as six modules, the stages of SGPRS, with random weights.

    The input has the shape 1x3x224x224, the output 1x1000.
    """
    nn = torch.nn

    def unit(inputs: int, outputs: int, kernel: int, stride: int) -> Any:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.first = unit(inputs, outputs, 3, stride)
            self.second = unit(outputs, outputs, 3, 1)
            same = stride == 1 and inputs == outputs
            self.shortcut = nn.Identity() if same else unit(inputs, outputs, 1, stride)

        def forward(self, x: Any) -> Any:
            inner = self.second(torch.relu(self.first(x)))
            return torch.relu(inner + self.shortcut(x))

    stem = nn.Sequential(unit(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    layers = [
        nn.Sequential(Block(inputs, outputs, 1 if outputs == 64 else 2), Block(outputs, outputs, 1))
        for inputs, outputs in ((64, 64), (64, 128), (128, 256), (256, 512))
    ]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    return [stem, *layers, head]


def _has_green_contexts(driver: Any) -> bool:
    """Return whether both the bindings and the driver (12.4 or newer) support green contexts."""
    if not hasattr(driver, "cuGreenCtxStreamCreate"):
        return False
    return int(_check(driver, driver.cuDriverGetVersion())) >= 12040


def _check(driver: Any, answer: tuple[Any, ...]) -> Any:
    """Return the value of a driver call; raise RealtimeError if the call failed."""
    code, *values = answer
    if int(code) != 0:
        raise RealtimeError("CUDAError", "backend cuda", f"the driver returned {code!r}")
    return values[0] if len(values) == 1 else tuple(values)
