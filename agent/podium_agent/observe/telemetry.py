"""Telemetry: samples the GPUs every second, in a thread with a time limit, so a hung driver blocks nothing else.

It is one task of the agent; other parts subscribe to changes. A missing driver is a state with a reason, not an error:
telemetry tries again with a growing pause.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from podium_agent.observe.gpu_health import Reading, Sample, merge, unknown
from podium_agent.observe.nvml import Driver, DriverTroubleError
from podium_core.domain.backoff import backoff_pause
from podium_core.schema.gpunode import INSUFFICIENT_NODE_RESOURCES

log = logging.getLogger(__name__)
LONGEST_PAUSE = 10.0


class Telemetry:
    """Task that samples the GPUs; `reading` is the latest result."""

    def __init__(self, seconds: float, timeout: float, open_driver: Callable[[], Driver] = Driver) -> None:
        self._seconds = seconds
        self._timeout = timeout
        self._open_driver = open_driver
        self._driver: Driver | None = None
        self._listeners: list[Callable[[], None]] = []
        self.reading = Reading(trouble="DriverNotRead: the driver was not asked yet")
        self.asked = asyncio.Event()  # set once: `reading` is the driver's answer, or why there is none

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every sample."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Sample the GPUs until cancelled."""
        failures = 0
        pool = ThreadPoolExecutor(1, thread_name_prefix="nvml")
        try:
            while True:
                trouble = await self._look(pool)
                if trouble is None:
                    failures = 0
                else:
                    if trouble != self.reading.trouble:
                        log.warning("telemetry: %s", trouble)
                    self.reading = unknown(self.reading, trouble)
                    failures += 1
                self._tell()
                await asyncio.sleep(backoff_pause(failures, self._seconds, max(self._seconds, LONGEST_PAUSE)))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _tell(self) -> None:
        self.asked.set()
        for listener in self._listeners:
            listener()

    async def _look(self, pool: ThreadPoolExecutor) -> str | None:
        """Take one sample; return None, or a sentence that explains why there is none."""
        try:
            job: Future[tuple[str, tuple[Sample, ...]]] = pool.submit(self._read)
        except (RuntimeError, MemoryError) as error:  # the node, or the agent's cgroup, has no free pid or memory
            return f"{INSUFFICIENT_NODE_RESOURCES}: no thread to ask the driver ({error})"
        try:
            driver, samples = await asyncio.wait_for(asyncio.wrap_future(job), self._timeout)
        except TimeoutError:
            # the thread cannot be stopped: wait for it before the driver is asked again
            self.reading = unknown(self.reading, f"DriverUnresponsive: no answer within {self._timeout:g} s")
            self._tell()
            while not job.done():  # noqa: ASYNC110 - a thread sets it
                await asyncio.sleep(self._seconds)
            return f"DriverUnresponsive: the driver took longer than {self._timeout:g} s to answer"
        except DriverTroubleError as error:
            return f"DriverMissing: {error}"
        self.reading = merge(self.reading, samples, time.monotonic(), driver)
        return None

    def _read(self) -> tuple[str, tuple[Sample, ...]]:
        if self._driver is None:
            self._driver = self._open_driver()
        try:
            return self._driver.version, self._driver.sample()
        except DriverTroubleError:
            self._driver.close()
            self._driver = None
            raise
