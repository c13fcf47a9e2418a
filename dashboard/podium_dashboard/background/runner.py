"""Runs background tasks, one at a time, and keeps their newest results.

A page asks for a result and never waits: it gets the newest one, perhaps of an older state, and a fresher one is
computed where it is due. A page without a browser asks for nothing, so it costs nothing. After each task there is a
pause as long as the task, so that at most half of one core is in use.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass

from podium_dashboard.background.tasks import Task

log = logging.getLogger(__name__)
CPU_SECONDS, WALL_SECONDS = 60, 300.0  # of one task
MAX_RESULTS, MAX_WAITING = 64, 64
MAX_ANSWER = 16 << 20  # bytes
CHILD = "podium_dashboard.background.child"


@dataclass(frozen=True, slots=True)
class Result:
    """What a task returned.

    `problem`: why there is no value. `at`: when it was computed, by the monotonic clock.
    """

    value: object = None
    problem: str = ""
    stamp: Hashable = None
    at: float = 0.0


class BackgroundTasks:
    """Tasks by key: at most one runs, each waits at most once."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """Prepare; `changed` is called after each result."""
        self._changed = changed
        self._results: OrderedDict[Hashable, Result] = OrderedDict()
        self._waiting: OrderedDict[Hashable, tuple[Hashable, Task]] = OrderedDict()
        self._running: Hashable = None
        self._worker: asyncio.Task[None] | None = None

    def result(self, key: Hashable) -> Result | None:
        """Return the newest result; None before the first one."""
        return self._results.get(key)

    def waiting(self, kind: str) -> int:
        """Return the number of waiting tasks whose keys begin with `kind`."""
        return sum(isinstance(key, tuple) and key[0] == kind for key in self._waiting)

    def is_pending(self, key: Hashable) -> bool:
        """Return whether a task of this key waits or runs."""
        return key == self._running or key in self._waiting

    def refresh(self, key: Hashable, stamp: Hashable, age: float, make: Callable[[], Task]) -> Result | None:
        """Return the newest result, and ask for a newer one where that is due.

        It is due if the stamp is another one and the result is older than `age` seconds.
        """
        known = self._results.get(key)
        due = known is None or (known.stamp != stamp and time.monotonic() - known.at >= age)
        if due:
            self.start(key, stamp, make)
        return known

    def start(self, key: Hashable, stamp: Hashable, make: Callable[[], Task]) -> None:
        """Ask for a result, unless one is being computed or too many tasks wait."""
        if self.is_pending(key) or len(self._waiting) >= MAX_WAITING:
            return
        self._waiting[key] = (stamp, make())
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())

    async def close(self) -> None:
        """End the running task."""
        if self._worker is not None:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker

    async def _work(self) -> None:
        while self._waiting:
            key, (stamp, task) = self._waiting.popitem(last=False)
            self._running, began = key, time.monotonic()
            try:
                value, problem = await _run(task)
            except (OSError, EOFError, pickle.PickleError, TimeoutError) as error:
                log.warning("a background task failed: %r", error)
                value, problem = None, "It could not be computed."
            finally:
                self._running = None
            self._results[key] = Result(value, problem, stamp, time.monotonic())
            self._results.move_to_end(key)
            while len(self._results) > MAX_RESULTS:
                self._results.popitem(last=False)
            self._changed()
            if self._waiting:
                await asyncio.sleep(time.monotonic() - began)


async def _run(task: Task) -> tuple[object, str]:
    """Return the value of a task and why there is none, from a process of its own."""
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # no module from the folder in which the command was called
        "-m",
        CHILD,
        str(CPU_SECONDS),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
        start_new_session=True,  # Ctrl-C is for the dashboard, which ends this process
        limit=MAX_ANSWER,
    )
    try:
        given = await asyncio.to_thread(pickle.dumps, task)
        output, errors = await asyncio.wait_for(process.communicate(given), WALL_SECONDS)
    except TimeoutError:
        return None, f"It took more than {WALL_SECONDS:.0f} s."
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode != 0:
        log.warning("a background process ended with status %s: %s", process.returncode, errors[-2000:].decode())
        return None, f"It took more than {CPU_SECONDS} s of CPU time, or more memory than allowed."
    done, value = pickle.loads(output)  # written by the child, which runs this package's code
    return (value, "") if done else (None, str(value))
