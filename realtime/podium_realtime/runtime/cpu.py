"""The CPU back-end: each stream of each context is a worker process, pinned to the cores of its context.

A core takes the role of an SM. Workers are processes, because numpy holds the global interpreter lock between its
kernels. Stream priorities are nice levels: a low-priority stream yields to a high-priority one on the same core.
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

from podium_realtime.model.errors import RealtimeError
from podium_realtime.runtime.activations import Activations, activation_bytes
from podium_realtime.runtime.backend import BackendAvailability, CompletedBatch
from podium_realtime.runtime.convnet import Array, ConvNet, ConvNetSpec
from podium_realtime.runtime.worker import REPLY, REQUEST, WHOLE_NETWORK
from podium_realtime.scheduling.jobs import StageBatch
from podium_realtime.scheduling.pool import ContextSpec, StreamPriority

LOW_PRIORITY_NICE = 5
SHARED_MEMORY = Path("/dev/shm")  # the file system of shared memory on Linux; often only 64 MiB in containers
START_SECONDS = 120.0  # time limit for a worker to become ready


@dataclass(frozen=True, slots=True)
class CpuTask:
    """The name and network of a task."""

    name: str
    net: ConvNetSpec


@dataclass(slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection


def available_cores() -> tuple[int, ...]:
    """Return the cores that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


def availability() -> BackendAvailability:
    """Return the number of cores and the version of numpy. The CPU back-end is always available."""
    count = len(available_cores())
    return BackendAvailability(True, "Available", f"{count} cores, numpy {np.__version__}.")


def core_sets(pool: Sequence[ContextSpec], cores: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the cores of each context: as many as it has SMs.

    Cores are assigned round-robin, so that over-subscribed contexts overlap as little as possible.
    """
    sets, offset = [], 0
    for context in pool:
        if context.sms > len(cores):
            problem = f"must be at most the {len(cores)} available cores (got {context.sms}); use a smaller pool"
            raise RealtimeError("TooFewCores", f"context {context.number}: sms", problem)
        sets.append(tuple(sorted(cores[(offset + step) % len(cores)] for step in range(context.sms))))
        offset += context.sms
    return tuple(sets)


class CpuSession:
    """Workers for every stream of a pool.

    Use it as a context manager; it ends all workers and frees all memory.


    `threads`: threads of the BLAS library in each worker; None for as many as its context has cores.
    `cores`: cores to use; by default all available ones.
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
        self._cores = core_sets(pool, cores or available_cores())
        self._threads = threads
        self._nets = {task.net.name: ConvNet(task.net) for task in tasks}
        self._specs = {task.net.name: asdict(task.net) for task in tasks}
        self._task_numbers = {task.name: number for number, task in enumerate(tasks)}
        self._networks = [task.net.name for task in tasks]
        _require_memory(sum(activation_bytes(self._nets[name]) for name in self._networks))
        self._activations = [Activations.create(self._nets[name]) for name in self._networks]
        random = np.random.default_rng(0)
        for activations in self._activations:
            activations.input[...] = random.standard_normal(activations.input.shape, dtype=np.float32)
        self._workers: dict[tuple[int, int], _Worker] = {}
        self._selector = selectors.DefaultSelector()
        try:
            for context in self._pool:
                for stream in range(len(context.streams)):
                    self._workers[(context.number, stream)] = self._start(context.number, stream)
            for worker in self._workers.values():
                _await_ready(worker)
                self._selector.register(worker.connection, selectors.EVENT_READ)
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
        """The networks by name."""
        return self._nets

    def processes(self) -> list[subprocess.Popen[bytes]]:
        """Return the processes of all workers."""
        return [worker.process for worker in self._workers.values()]

    def task_output(self, task: str) -> Array:
        """Return a copy of the result of the task's last inference."""
        return self._activations[self._task_numbers[task]].outputs[-1].copy()

    def task_input(self, task: str) -> Array:
        """Return a copy of the task's input."""
        return self._activations[self._task_numbers[task]].input.copy()

    def submit(self, batch: StageBatch) -> None:
        """Send a batch of one stage to its stream's worker. Raises RealtimeError for larger batches."""
        if batch.size != 1:
            raise RealtimeError("NoBatches", "backend cpu", "runs one frame at a time; use a policy without batches")
        ready = batch.stages[0]
        fused = len(ready.job.task.network.stages) == 1
        stage = WHOLE_NETWORK if fused else ready.index
        self.request(batch.context, batch.stream, batch.number, ready.job.task.name, stage)

    def request(self, context: int, stream: int, number: int, task: str, stage: int) -> None:
        """Send one stage to one worker. The profiler calls this without a StageBatch."""
        try:
            self._workers[(context, stream)].connection.send_bytes(
                REQUEST.pack(number, self._task_numbers[task], stage)
            )
        except (BrokenPipeError, ConnectionResetError) as error:
            raise _worker_died(f"context {context}, stream {stream}") from error

    def wait(self, seconds: float) -> Sequence[CompletedBatch]:
        """Return one finished batch of each worker that has one, after at most `seconds`."""
        ready = self._selector.select(max(0.0, seconds))
        return [_receive(key.fileobj) for key, _ in ready if isinstance(key.fileobj, Connection)]

    def recreate(self, context: int, stream: int) -> float:
        """Replace a worker by a new one, as a system without a pool must; return the seconds that it took."""
        started = time.perf_counter()
        self._selector.unregister(self._workers[(context, stream)].connection)
        _end(self._workers[(context, stream)])
        worker = self._start(context, stream)
        _await_ready(worker)
        self._selector.register(worker.connection, selectors.EVENT_READ)
        self._workers[(context, stream)] = worker
        return time.perf_counter() - started

    def close(self) -> None:
        """End all workers and remove the shared memory."""
        for worker in self._workers.values():
            worker.connection.close()  # close all sockets first, so that the workers end concurrently
        for worker in self._workers.values():
            _end(worker)
        self._workers = {}
        self._selector.close()
        for activations in self._activations:
            activations.close(unlink=True)
        self._activations = []

    def _start(self, context: int, stream: int) -> _Worker:
        """Start a worker process for this stream; `_await_ready` waits until it is ready."""
        spec = self._pool[context]
        own_socket, worker_socket = socket.socketpair()
        config = {
            "cores": list(self._cores[context]),
            "nice": LOW_PRIORITY_NICE if spec.streams[stream] is StreamPriority.LOW else 0,
            "networks": self._specs,
            "activations": [
                (activations.name, name) for activations, name in zip(self._activations, self._networks, strict=True)
            ],
            "socket": worker_socket.fileno(),
        }
        count = str(self._threads or len(self._cores[context]))
        limits = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), count)
        process = subprocess.Popen(
            [sys.executable, "-m", "podium_realtime.runtime.worker", json.dumps(config)],
            env={**os.environ, **limits},
            pass_fds=[worker_socket.fileno()],
        )
        worker_socket.close()
        return _Worker(process, Connection(own_socket.detach()))


def _await_ready(worker: _Worker) -> None:
    if not worker.connection.poll(START_SECONDS):
        problem = f"a worker was not ready within {START_SECONDS:g} s; try again on a less busy machine"
        raise RealtimeError("WorkerNotReady", "runtime", problem)
    try:
        worker.connection.recv_bytes()
    except (EOFError, ConnectionResetError) as error:
        code = worker.process.wait()
        problem = f"a worker ended with exit code {code} before it was ready; see its output above"
        raise RealtimeError("WorkerFailed", "runtime", problem) from error


def _receive(connection: Connection) -> CompletedBatch:
    try:
        return CompletedBatch(*REPLY.unpack(connection.recv_bytes()))
    except (EOFError, ConnectionResetError) as error:
        raise _worker_died("runtime") from error


def _worker_died(where: str) -> RealtimeError:
    return RealtimeError("WorkerFailed", where, "a worker ended during the run, so the run stopped; start it again")


def _require_memory(size: int) -> None:
    """Raise RealtimeError if `size` bytes of shared memory are not free.

    Without this check the kernel would kill the process at the first page that does not fit.
    """
    if not SHARED_MEMORY.is_dir():
        return
    status = os.statvfs(SHARED_MEMORY)
    free = status.f_bavail * status.f_frsize
    if size > free:
        problem = f"needs {size / 2**20:.0f} MiB in {SHARED_MEMORY}, but {free / 2**20:.0f} MiB are free"
        raise RealtimeError("NoSharedMemory", "runtime", f"{problem}; run fewer tasks")


def _end(worker: _Worker) -> None:
    """Close the worker's socket, which ends it; kill a worker that does not end within 5 s."""
    worker.connection.close()
    try:
        worker.process.wait(5.0)
    except subprocess.TimeoutExpired:
        worker.process.kill()
        worker.process.wait()
