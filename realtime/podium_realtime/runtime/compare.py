"""One scheduler on one back-end, opened once and run with several loads: what the benchmark and `podium realtime run`
compare. All candidates share the executive, the clock, the network and the cores; they differ in pool and policy alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from podium_realtime.model.network import Network, resnet18
from podium_realtime.model.profile import Profile
from podium_realtime.model.refusal import RealtimeError
from podium_realtime.model.task import identical
from podium_realtime.record.metrics import Summary, summarise
from podium_realtime.runtime import cuda
from podium_realtime.runtime.convnet import ConvNet, NetSpec
from podium_realtime.runtime.cpu import CpuSession, CpuTask, cores_here
from podium_realtime.runtime.executive import execute
from podium_realtime.runtime.profiling import profile_stages
from podium_realtime.scheduling.ahead import LaunchAhead
from podium_realtime.scheduling.base import Policy
from podium_realtime.scheduling.baselines import Naive, SingleStream, naive_pool, single_pool
from podium_realtime.scheduling.pool import ContextSpec, context_pool
from podium_realtime.scheduling.sgprs import Sgprs

NET = NetSpec("small-resnet", size=96, width=48)
WARM_UP = 0.5  # seconds of each run that are not counted
PATIENCE = 0.15  # as fitted for the SGPRS repository: what a release waits for a late predecessor, in periods

PoolOf = Callable[[int, int], tuple[ContextSpec, ...]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """`pool(units, tasks)`: its partitions of so many cores or SMs. `threads`: of the BLAS library in each worker;
    None: as many as the partition has cores.
    """

    name: str
    policy: Policy
    pool: PoolOf
    threads: int | None = 1
    backend: str = "cpu"

    @classmethod
    def named(cls, name: str, backend: str = "cpu") -> Candidate:
        """naive (a process a task, each on all cores with the library's own threads), naive-single (the same with one
        thread each), single (one stream, the next frame launched ahead), single-synchronous, sgprs or ahead.
        """
        if name == "sgprs":
            return cls(name, Sgprs(), _sgprs_pool, None, backend)
        if name == "ahead":
            return cls(name, LaunchAhead(), _core_pool if backend == "cpu" else _ahead_pool, backend=backend)
        if name in ("single", "single-synchronous"):
            depth = 2 if name == "single" else 1
            return cls(name, SingleStream(), lambda units, tasks: single_pool(units, depth), backend=backend)
        if name in ("naive", "naive-single"):
            threads = None if name == "naive" else 1
            return cls(name, Naive(), lambda units, tasks: naive_pool(units, 1, tasks), threads, backend)
        told = f"{name} is not one of ahead, sgprs, naive, naive-single, single, single-synchronous"
        raise RealtimeError("UnknownPolicy", "--policy", told)


class Bench:
    """A candidate with its workers up and warm, for up to `most` tasks. A context manager."""

    def __init__(self, candidate: Candidate, most: int, net: NetSpec = NET) -> None:
        self._candidate = candidate
        staged = candidate.policy.staged
        if candidate.backend == "cuda":
            self._network = resnet18()
            names = [task.name for task in identical(most, self._network, 1.0)]
            self._pool = candidate.pool(cuda.device_sms(), most)
            self._session: CpuSession | cuda.CudaSession = cuda.CudaSession(names, self._pool)
            self._profiles = _guess(self._network if staged else self._network.fused(), self._pool)
            return
        self._network = ConvNet(net).network
        tasks = [CpuTask(task.name, net) for task in identical(most, self._network, 1.0)]
        self._pool = candidate.pool(len(cores_here()), most)
        session = CpuSession(tasks, self._pool, threads=candidate.threads)
        self._session = session
        try:
            self._profiles = profile_stages(session, tasks, self._pool, staged=staged, occupied=staged)
        except BaseException:
            session.close()
            raise

    def run(self, tasks: int, fps: float, seconds: float, *, spread: bool = False) -> Summary:
        """`tasks` of one rate, released together unless `spread`."""
        load = identical(tasks, self._network, fps, spread=spread)
        policy = self._candidate.policy
        run = execute(self._session, load, self._pool, self._profiles, policy, seconds, patience=PATIENCE)
        return summarise(run.ends, seconds, WARM_UP)

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()


def run_once(candidate: Candidate, tasks: int, fps: float, seconds: float) -> Summary:
    with Bench(candidate, tasks) as bench:
        return bench.run(tasks, fps, seconds)


def _sgprs_pool(units: int, tasks: int) -> tuple[ContextSpec, ...]:
    """As many contexts as cores up to 3 (the paper's), over-subscribed 1.5 times, one high and one low stream each."""
    return context_pool(units, min(3, max(2, units)) if units > 1 else 1, 1.5, high=1, low=1, in_flight=2)


def _core_pool(units: int, tasks: int) -> tuple[ContextSpec, ...]:
    """A context a core: a worker has one thread, so it fills no more. The next work is already in its hands."""
    return context_pool(units, min(64, units), 1.0, high=0, low=1, in_flight=1, depth=2)


def _ahead_pool(units: int, tasks: int) -> tuple[ContextSpec, ...]:
    """Contexts that do not overlap, one stream each, the next work already in its hands. Up to 4: more only helps where
    one worker cannot fill its part.
    """
    return context_pool(units, min(4, units), 1.0, high=0, low=1, in_flight=1, depth=2)


def _guess(network: Network, pool: tuple[ContextSpec, ...]) -> dict[str, tuple[Profile, ...]]:
    """Profiles by share of work where none are measured yet: virtual deadlines need only the proportions."""
    counts = tuple(sorted({context.sms for context in pool}))
    return {
        network.name: tuple(
            Profile(counts, (1e-3 * stage.work,) * len(counts), (1e-3 * stage.work,) * len(counts))
            for stage in network.stages
        )
    }
