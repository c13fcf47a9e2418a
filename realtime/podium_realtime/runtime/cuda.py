"""The CUDA back-end: streams in green contexts (partitions of the SMs) where the driver has them, else plain streams.

Needs a GPU, cuda-bindings and PyTorch, none of which this room installs: all are imported when asked for, and what is
missing is said as "not run".

Green contexts: the device's SMs are split once into groups of the device's granularity; a context takes as many groups
as its SMs need, dealt out in turn, so over-subscribed contexts overlap as little as can be. One thread launches for
each stream, as in SGPRS; it launches the next work before it waits for the one before (launch-ahead).
"""

from __future__ import annotations

import importlib
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from podium_realtime.model.refusal import RealtimeError
from podium_realtime.runtime.backend import Availability, Finished
from podium_realtime.runtime.cuda_graphs import StageGraphs
from podium_realtime.runtime.cuda_nets import STAGES, resnet18_stages
from podium_realtime.scheduling.pool import ContextSpec, StreamPriority
from podium_realtime.scheduling.work import Work

WARM_UPS = 10  # as in the SGPRS repository
GRANULARITY = 8  # SMs in a group; the driver rounds up to what the device can do


def availability() -> Availability:
    """Whether this back-end can run here; never raises: what a broken installation raises is its reason."""
    try:
        return _look()
    except Exception as error:
        return Availability(False, "Broken", f"not run: looking for CUDA failed ({type(error).__name__}: {error}).")


def _look() -> Availability:
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError:
        return Availability(False, "NotInstalled", "not run: cuda-bindings is not installed.")
    try:
        code = int(driver.cuInit(0)[0])
    except Exception as error:  # the bindings raise their own kinds where the driver's library is missing
        return Availability(False, "DriverNotFound", f"not run: there is no CUDA driver ({type(error).__name__}).")
    if code != 0 or int(_check(driver, driver.cuDeviceGetCount())) == 0:
        return Availability(False, "NoDevice", f"not run: the CUDA driver found no device (code {code}).")
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return Availability(False, "PyTorchMissing", "not run: PyTorch is not installed.")
    if not torch.cuda.is_available():
        return Availability(False, "PyTorchMissing", "not run: PyTorch was built without CUDA.")
    device = torch.cuda.get_device_properties(0)
    kind = "green contexts" if _has_green_contexts(driver) else "plain streams"
    return Availability(True, "Available", f"{device.name}, {device.multi_processor_count} SMs, {kind}.")


def device_sms() -> int:
    """SMs of the first device; call after `availability` said that it runs."""
    torch = importlib.import_module("torch")
    return int(torch.cuda.get_device_properties(0).multi_processor_count)


class CudaSession:
    """Pre-warmed streams for every place of `pool`, each task with its own activations; batch 1, ResNet-18."""

    def __init__(self, tasks: Sequence[str], pool: Sequence[ContextSpec]) -> None:
        found = availability()
        if not found.runs:
            raise RealtimeError(found.code, "backend cuda", found.message)
        self._driver = importlib.import_module("cuda.bindings.driver")
        self._torch = importlib.import_module("torch")
        self._device = _check(self._driver, self._driver.cuDeviceGet(0))
        self._torch.cuda.init()
        self._stages = [stage.cuda().eval() for stage in resnet18_stages(self._torch)]
        self._inputs = {name: self._torch.randn(1, 3, 224, 224, device="cuda") for name in tasks}
        self._outputs: dict[str, list[Any]] = {}
        self._green: list[Any] = []
        self._done: queue.SimpleQueue[Finished | BaseException] = queue.SimpleQueue()
        self._orders: dict[tuple[int, int], queue.SimpleQueue[Work | None]] = {}
        self._threads: list[threading.Thread] = []
        try:
            self._open(pool)
        except BaseException:
            self.close()
            raise

    def _open(self, pool: Sequence[ContextSpec]) -> None:
        groups = self._groups()
        place = 0
        for context in pool:
            green = None
            if groups:
                count = max(1, round(context.sms / (device_sms() / len(groups))))
                mine = [groups[(place + step) % len(groups)] for step in range(min(count, len(groups)))]
                place += count
                green = self._green_context(mine)
            for number, priority in enumerate(context.streams):
                example = next(iter(self._inputs.values()))
                graphs = StageGraphs(self._torch, self._stages, self._stream(green, priority), example, WARM_UPS)
                if not self._outputs:
                    self._outputs = {name: graphs.empty_outputs() for name in self._inputs}
                orders: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
                self._orders[(context.number, number)] = orders
                thread = threading.Thread(target=self._serve, args=(graphs, orders), daemon=True)
                thread.start()
                self._threads.append(thread)

    def submit(self, work: Work) -> None:
        if work.batch != 1:
            raise RealtimeError("NoBatches", "backend cuda", "runs one frame at a time; use a policy without batches")
        self._orders[(work.context, work.stream)].put(work)

    def wait(self, seconds: float) -> Sequence[Finished]:
        found: list[Finished] = []
        try:
            one = self._done.get(timeout=max(0.0, seconds))
            while True:
                if isinstance(one, BaseException):
                    raise one
                found.append(one)
                one = self._done.get_nowait()
        except queue.Empty:
            return found

    def close(self) -> None:
        for orders in self._orders.values():
            orders.put(None)
        for thread in self._threads:
            thread.join(5.0)
        self._torch.cuda.synchronize()
        for green in self._green:
            self._driver.cuGreenCtxDestroy(green)
        self._green = []

    def _groups(self) -> list[Any]:
        """The device's SMs in groups of GRANULARITY; empty where there are no green contexts."""
        driver = self._driver
        if not _has_green_contexts(driver):
            return []
        kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        whole = _check(driver, driver.cuDeviceGetDevResource(self._device, kind))
        most = max(1, device_sms() // GRANULARITY)
        groups, count, _ = _check(driver, driver.cuDevSmResourceSplitByCount(most, whole, 0, GRANULARITY))
        return list(groups)[: int(count)]

    def _green_context(self, groups: list[Any]) -> Any:
        driver = self._driver
        described = _check(driver, driver.cuDevResourceGenerateDesc(groups, len(groups)))
        flag = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
        green = _check(driver, driver.cuGreenCtxCreate(described, self._device, flag))
        self._green.append(green)
        return green

    def _stream(self, green: Any, priority: StreamPriority) -> Any:
        """A PyTorch stream; CUDA's priorities: lower numbers go first."""
        level = -1 if priority is StreamPriority.HIGH else 0
        if green is None:
            return self._torch.cuda.Stream(priority=level)
        flag = self._driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        handle = _check(self._driver, self._driver.cuGreenCtxStreamCreate(green, flag, level))
        return self._torch.cuda.ExternalStream(int(handle))

    def _serve(self, graphs: StageGraphs, orders: queue.SimpleQueue[Work | None]) -> None:
        """One launching thread: launches what is there, then waits for the oldest."""
        flying: deque[tuple[Work, float, Any]] = deque()
        try:
            while True:
                if orders.empty() and flying:
                    work, began, event = flying.popleft()
                    event.synchronize()
                    self._done.put(Finished(work.number, began, time.perf_counter()))
                    continue
                order = orders.get()
                if order is None:
                    return
                began, ready = time.perf_counter(), order.stages[0]
                whole = len(ready.job.task.network.stages) == 1
                stages = range(len(STAGES)) if whole else range(ready.index, ready.index + 1)
                name = ready.job.task.name
                flying.append((order, began, graphs.launch(self._inputs[name], self._outputs[name], stages)))
        except BaseException as error:
            self._done.put(error)


def _has_green_contexts(driver: Any) -> bool:
    """The functions are there, and the driver is new enough (12.4) to have them too."""
    if not hasattr(driver, "cuGreenCtxStreamCreate"):
        return False
    return int(_check(driver, driver.cuDriverGetVersion())) >= 12040


def _check(driver: Any, answer: tuple[Any, ...]) -> Any:
    """The value of a driver call; raises RealtimeError where it failed."""
    code, *values = answer
    if int(code) != 0:
        raise RealtimeError("CUDAError", "backend cuda", f"the driver answered {code!r}")
    return values[0] if len(values) == 1 else tuple(values)
