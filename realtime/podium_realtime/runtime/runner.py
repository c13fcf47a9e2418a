"""Runs one scheduler on one back-end with several loads, for `podium realtime run` and the benchmark.

All schedulers share the executor, the clock, the network and the cores; they differ only in policy and pool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from podium_realtime.model.errors import RealtimeError
from podium_realtime.model.network import InferenceNetwork, resnet18
from podium_realtime.model.profile import Profile
from podium_realtime.model.task import identical_tasks
from podium_realtime.results.metrics import Summary, summarise
from podium_realtime.runtime import cuda
from podium_realtime.runtime.convnet import ConvNet, ConvNetSpec
from podium_realtime.runtime.cpu import CpuSession, CpuTask, available_cores
from podium_realtime.runtime.executor import execute
from podium_realtime.runtime.profiling import profile_stages
from podium_realtime.scheduling.baselines import Naive, SingleStream, naive_pool, single_pool
from podium_realtime.scheduling.launch_ahead import LaunchAhead
from podium_realtime.scheduling.policy import SchedulingPolicy
from podium_realtime.scheduling.pool import ContextSpec, context_pool
from podium_realtime.scheduling.sgprs import Sgprs

NET = ConvNetSpec("small-resnet", size=96, width=48)
WARM_UP = 0.5  # seconds of each run that are not counted
PATIENCE = 0.15  # periods that a release waits for the task's previous job, near the value calibrated for SGPRS

PoolFactory = Callable[[int, int], tuple[ContextSpec, ...]]


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """A policy with its pool and back-end.

    `pool`: makes the pool from the number of cores or SMs and the number of tasks.
    `threads`: threads of the BLAS library in each worker; None for as many as the partition has cores.
    """

    name: str
    policy: SchedulingPolicy
    pool: PoolFactory
    threads: int | None = 1
    backend: str = "cpu"

    @classmethod
    def named(cls, name: str, backend: str = "cpu") -> SchedulerConfig:
        """Return the configuration with this name; raise RealtimeError if there is none.

        - naive: one process for each task, each on all cores with the threads that the BLAS library chooses
        - naive-single: the same with one thread for each process
        - single: one stream, where the next frame is launched ahead
        - single-synchronous: one stream, synchronised after each frame
        - sgprs, launch-ahead
        """
        if name == "sgprs":
            return cls(name, Sgprs(), _sgprs_pool, None, backend)
        if name == "launch-ahead":
            return cls(name, LaunchAhead(), _core_pool if backend == "cpu" else _launch_ahead_pool, backend=backend)
        if name in ("single", "single-synchronous"):
            depth = 2 if name == "single" else 1
            return cls(name, SingleStream(), lambda units, tasks: single_pool(units, depth), backend=backend)
        if name in ("naive", "naive-single"):
            threads = None if name == "naive" else 1
            return cls(name, Naive(), lambda units, tasks: naive_pool(units, 1, tasks), threads, backend)
        known = "launch-ahead, sgprs, naive, naive-single, single, single-synchronous"
        raise RealtimeError("UnknownPolicy", "--policy", f"must be one of {known} (got {name})")


class SchedulerRunner:
    """A scheduler with running, warm workers for at most `max_tasks` tasks. Use it as a context manager."""

    def __init__(self, config: SchedulerConfig, max_tasks: int, net: ConvNetSpec = NET) -> None:
        self._config = config
        schedules_stages = config.policy.schedules_stages
        if config.backend == "cuda":
            self._network = resnet18()
            names = [task.name for task in identical_tasks(max_tasks, self._network, 1.0)]
            self._pool = config.pool(cuda.device_sms(), max_tasks)
            self._session: CpuSession | cuda.CudaSession = cuda.CudaSession(names, self._pool)
            self._profiles = _estimated_profiles(
                self._network if schedules_stages else self._network.fused(), self._pool
            )
            return
        self._network = ConvNet(net).network
        tasks = [CpuTask(task.name, net) for task in identical_tasks(max_tasks, self._network, 1.0)]
        self._pool = config.pool(len(available_cores()), max_tasks)
        session = CpuSession(tasks, self._pool, threads=config.threads)
        self._session = session
        try:
            self._profiles = profile_stages(
                session, tasks, self._pool, schedules_stages=schedules_stages, occupied=schedules_stages
            )
        except BaseException:
            session.close()
            raise

    def run(self, tasks: int, fps: float, seconds: float, *, spread: bool = False) -> Summary:
        """Run tasks of one rate and return the metrics; they are released together unless `spread` is set."""
        load = identical_tasks(tasks, self._network, fps, spread=spread)
        policy = self._config.policy
        trace = execute(self._session, load, self._pool, self._profiles, policy, seconds, patience=PATIENCE)
        return summarise(trace.jobs, seconds, WARM_UP)

    def __enter__(self) -> SchedulerRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()


def run_once(config: SchedulerConfig, tasks: int, fps: float, seconds: float) -> Summary:
    """Start the workers, run once and stop them."""
    with SchedulerRunner(config, tasks) as runner:
        return runner.run(tasks, fps, seconds)


def _sgprs_pool(units: int, tasks: int) -> tuple[ContextSpec, ...]:
    """Return up to 3 contexts (as in the paper), over-subscribed 1.5 times, each with a high and a low stream."""
    return context_pool(units, min(3, max(2, units)) if units > 1 else 1, 1.5, high=1, low=1, in_flight=2)


def _core_pool(units: int, tasks: int) -> tuple[ContextSpec, ...]:
    """Return one context for each core, because a worker with one thread fills no more, with depth 2."""
    return context_pool(units, min(64, units), 1.0, high=0, low=1, in_flight=1, depth=2)


def _launch_ahead_pool(units: int, tasks: int) -> tuple[ContextSpec, ...]:
    """Return disjoint contexts with one stream of depth 2 each.

    There are at most 4, because more contexts help only if one stream cannot fill its SMs.
    """
    return context_pool(units, min(4, units), 1.0, high=0, low=1, in_flight=1, depth=2)


def _estimated_profiles(network: InferenceNetwork, pool: tuple[ContextSpec, ...]) -> dict[str, tuple[Profile, ...]]:
    """Return profiles in proportion to the stages' work; virtual deadlines need only the proportions."""
    counts = tuple(sorted({context.sms for context in pool}))
    return {
        network.name: tuple(
            Profile(counts, (1e-3 * stage.work,) * len(counts), (1e-3 * stage.work,) * len(counts))
            for stage in network.stages
        )
    }
