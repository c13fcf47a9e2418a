"""The CPU back-end: each stream of each context is a worker process, pinned to its context's cores, warmed before use.

A core stands for an SM. Processes, not threads: numpy holds the interpreter's lock between its kernels. Priorities are
nice levels: low streams step back where a high one wants the core. Opened by `podium realtime run` and the benchmark.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

import numpy as np

from podium_realtime.model.refusal import RealtimeError
from podium_realtime.runtime.arena import Arena, size_of
from podium_realtime.runtime.backend import Availability, Finished
from podium_realtime.runtime.convnet import Array, ConvNet, NetSpec
from podium_realtime.runtime.worker import DONE, ORDER, WHOLE
from podium_realtime.scheduling.pool import ContextSpec, StreamPriority
from podium_realtime.scheduling.work import Work

LOW_NICE = 5
SHARED_MEMORY = Path("/dev/shm")  # where Linux keeps it; containers often have 64 MiB
START_SECONDS = 120.0  # until a worker must have said that it is ready


@dataclass(frozen=True, slots=True)
class CpuTask:
    """What the workers must know of a task: its name and its network."""

    name: str
    net: NetSpec


@dataclass(slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    orders: Connection


def cores_here() -> tuple[int, ...]:
    """The cores that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


def availability() -> Availability:
    count = len(cores_here())
    return Availability(True, "Available", f"{count} cores, numpy {np.__version__}.")


def core_sets(pool: Sequence[ContextSpec], cores: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Which cores each context has: as many as it has "SMs", dealt out in turn, so over-subscribed contexts overlap as
    little as can be.
    """
    found, place = [], 0
    for context in pool:
        if context.sms > len(cores):
            told = f"asks for {context.sms} cores, there are {len(cores)}; make the pool for {len(cores)} SMs"
            raise RealtimeError("TooFewCores", f"context {context.number}: sms", told)
        found.append(tuple(sorted(cores[(place + step) % len(cores)] for step in range(context.sms))))
        place += context.sms
    return tuple(found)


class CpuSession:
    """Workers for every stream of `pool`. `threads`: of the BLAS library in each worker; None: as many as it has cores.
    Use as a context manager; nothing is left behind.
    """

    def __init__(
        self,
        tasks: Sequence[CpuTask],
        pool: Sequence[ContextSpec],
        *,
        threads: int | None = 1,
        cores: Sequence[int] | None = None,
    ) -> None:
        self._pool = tuple(pool)
        self._cores = core_sets(pool, cores or cores_here())
        self._threads = threads
        self._nets = {task.net.name: ConvNet(task.net) for task in tasks}
        self._specs = {task.net.name: asdict(task.net) for task in tasks}
        self._tasks = {task.name: number for number, task in enumerate(tasks)}
        self._networks = [task.net.name for task in tasks]
        _require_memory(sum(size_of(self._nets[name]) for name in self._networks))
        self._arenas = [Arena.create(self._nets[name]) for name in self._networks]
        random = np.random.default_rng(0)
        for arena in self._arenas:
            arena.input[...] = random.standard_normal(arena.input.shape, dtype=np.float32)
        self._workers: dict[tuple[int, int], _Worker] = {}
        self._selector = selectors.DefaultSelector()
        try:
            for context in self._pool:
                for stream in range(len(context.streams)):
                    self._workers[(context.number, stream)] = self.start(context.number, stream)
            for worker in self._workers.values():
                _await_ready(worker)
                self._selector.register(worker.orders, selectors.EVENT_READ)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> CpuSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def nets(self) -> Mapping[str, ConvNet]:
        return self._nets

    def processes(self) -> list[subprocess.Popen[bytes]]:
        return [worker.process for worker in self._workers.values()]

    def output(self, task: str) -> Array:
        """A copy of what the task's last inference gave."""
        return self._arenas[self._tasks[task]].outputs[-1].copy()

    def input(self, task: str) -> Array:
        return self._arenas[self._tasks[task]].input.copy()

    def submit(self, work: Work) -> None:
        if work.batch != 1:
            raise RealtimeError("NoBatches", "backend cpu", "runs one frame at a time; use a policy without batches")
        ready = work.stages[0]
        whole = len(ready.job.task.network.stages) == 1
        self.order(work.context, work.stream, work.number, ready.job.task.name, WHOLE if whole else ready.index)

    def order(self, context: int, stream: int, number: int, task: str, stage: int) -> None:
        """One stage in one worker; `submit` for those that hold no Work (the profiler)."""
        try:
            self._workers[(context, stream)].orders.send_bytes(ORDER.pack(number, self._tasks[task], stage))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise _died(f"context {context}, stream {stream}") from error

    def wait(self, seconds: float) -> Sequence[Finished]:
        ready = self._selector.select(max(0.0, seconds))
        return [_finished(key.fileobj) for key, _ in ready if isinstance(key.fileobj, Connection)]

    def start(self, context: int, stream: int) -> _Worker:
        """A new worker process for this place; not ready before `_await_ready`."""
        spec = self._pool[context]
        ours, theirs = socket.socketpair()
        plan = {
            "cores": list(self._cores[context]),
            "nice": LOW_NICE if spec.streams[stream] is StreamPriority.LOW else 0,
            "networks": self._specs,
            "arenas": [(arena.name, name) for arena, name in zip(self._arenas, self._networks, strict=True)],
            "socket": theirs.fileno(),
        }
        count = str(self._threads or len(self._cores[context]))
        limits = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), count)
        process = subprocess.Popen(
            [sys.executable, "-m", "podium_realtime.runtime.worker", json.dumps(plan)],
            env={**os.environ, **limits},
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        return _Worker(process, Connection(ours.detach()))

    def recreate(self, context: int, stream: int) -> float:
        """Ends the worker and makes it anew, as changing a partition without a pool must; seconds that it took."""
        begun = time.perf_counter()
        self._selector.unregister(self._workers[(context, stream)].orders)
        _end(self._workers[(context, stream)])
        worker = self.start(context, stream)
        _await_ready(worker)
        self._selector.register(worker.orders, selectors.EVENT_READ)
        self._workers[(context, stream)] = worker
        return time.perf_counter() - begun

    def close(self) -> None:
        for worker in self._workers.values():
            worker.orders.close()  # all of them first, so they end beside one another
        for worker in self._workers.values():
            _end(worker)
        self._workers = {}
        self._selector.close()
        for arena in self._arenas:
            arena.close(unlink=True)
        self._arenas = []


def _await_ready(worker: _Worker) -> None:
    if not worker.orders.poll(START_SECONDS):
        raise RealtimeError("WorkerNotReady", "runtime", f"a worker was not ready within {START_SECONDS:g} s")
    try:
        worker.orders.recv_bytes()
    except (EOFError, ConnectionResetError) as error:
        told = f"a worker ended with {worker.process.wait()} before it was ready; its words are above"
        raise RealtimeError("WorkerFailed", "runtime", told) from error


def _finished(orders: Connection) -> Finished:
    try:
        return Finished(*DONE.unpack(orders.recv_bytes()))
    except (EOFError, ConnectionResetError) as error:
        raise _died("runtime") from error


def _died(where: str) -> RealtimeError:
    return RealtimeError(
        "WorkerFailed", where, "a worker ended in the middle of the run, so the run is over; start it again"
    )


def _require_memory(size: int) -> None:
    """Raises RealtimeError where the arenas do not fit: the kernel would end us at the first page too many."""
    if not SHARED_MEMORY.is_dir():
        return
    room = os.statvfs(SHARED_MEMORY)
    free = room.f_bavail * room.f_frsize
    if size > free:
        told = f"{size / 2**20:.0f} MiB are needed, {SHARED_MEMORY} has {free / 2**20:.0f} free; run fewer tasks"
        raise RealtimeError("NoSharedMemory", "runtime", told)


def _end(worker: _Worker) -> None:
    """Closing its socket ends a worker; one that does not end is killed."""
    worker.orders.close()
    try:
        worker.process.wait(5.0)
    except subprocess.TimeoutExpired:
        worker.process.kill()
        worker.process.wait()
