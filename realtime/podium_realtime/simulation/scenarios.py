"""The experiments of the papers on the simulated GPU: each function computes one point of a figure.

All tasks run ResNet-18 at 30 fps. In the SGPRS figures all tasks are released together, because their threads start
together. DARIS and launch-ahead are also simulated with releases spread over the period.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podium_realtime.model import published
from podium_realtime.model.network import InferenceNetwork, resnet18
from podium_realtime.model.task import PeriodicTask, Priority, identical_tasks
from podium_realtime.results.metrics import Summary, summarise
from podium_realtime.results.trace import ScheduleTrace
from podium_realtime.scheduling.baselines import Batching, Naive, SingleStream, naive_pool, single_pool
from podium_realtime.scheduling.daris import Daris
from podium_realtime.scheduling.launch_ahead import LaunchAhead
from podium_realtime.scheduling.policy import SchedulingPolicy
from podium_realtime.scheduling.pool import ContextSpec, context_pool
from podium_realtime.scheduling.sgprs import Sgprs
from podium_realtime.simulation.engine import simulate
from podium_realtime.simulation.gpu import Interference, SimulatedGpu, published_gpu
from podium_realtime.simulation.profiling import profile_networks

WARM_UP = 0.5
BACK_TO_BACK_FPS = 200.0  # rate of each network that none reaches, so that a next frame always waits
# definition of the naive baseline: an unmanaged thread starts its next frame at once when a frame was late
NAIVE_PATIENCE = 1.0
DARIS_POOL = context_pool(published.DEVICE_SMS, 6, 6.0, high=0, low=1)  # best in the paper: 6 contexts x 1 stream
# launch-ahead in the same contexts: with one process per context, launching ahead pays; if one process launches for
# all contexts, launches are the bottleneck, and batches pay
LAUNCH_AHEAD_POOL = context_pool(published.DEVICE_SMS, 6, 6.0, high=0, low=1, depth=2)
BATCHED_LAUNCH_AHEAD = LaunchAhead(max_batch=2)


@dataclass(frozen=True, slots=True)
class HarnessModel:
    """Model of the papers' test harness: the device's interference, and how long releases wait.

    `patience`: see Dispatcher.
    """

    interference: Interference
    patience: float

    def gpu(self, shared_process: bool = True) -> SimulatedGpu:
        """Return the published GPU with this interference."""
        return published_gpu(self.interference, shared_process=shared_process)


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Virtual time and random seed. Simulating 3 s with 30 tasks takes about a second."""

    seconds: float = 3.0
    seed: int = 0


DEFAULT_SETTINGS = SimulationSettings()


def profile_and_simulate(
    gpu: SimulatedGpu,
    tasks: Sequence[PeriodicTask],
    pool: Sequence[ContextSpec],
    policy: SchedulingPolicy,
    patience: float,
    settings: SimulationSettings = DEFAULT_SETTINGS,
) -> ScheduleTrace:
    """Profile the networks on this pool, as the papers do offline, and simulate the tasks."""
    networks: dict[str, InferenceNetwork] = {task.network.name: task.network for task in tasks}
    scheduled = [network if policy.schedules_stages else network.fused() for network in networks.values()]
    profiles = profile_networks(gpu, scheduled, pool)
    return simulate(gpu, tasks, pool, profiles, policy, settings.seconds, seed=settings.seed, patience=patience)


def summary(trace: ScheduleTrace, priority: Priority | None = None) -> Summary:
    """Return the metrics after the warm-up, for all tasks or those of one priority."""
    return summarise(trace.jobs, trace.seconds, WARM_UP, priority)


def sgprs(
    model: HarnessModel,
    contexts: int,
    oversubscription: float,
    tasks: int,
    settings: SimulationSettings = DEFAULT_SETTINGS,
) -> Summary:
    """Simulate scenarios 1 and 2 of the SGPRS paper."""
    pool = context_pool(published.DEVICE_SMS, contexts, oversubscription)
    load = identical_tasks(tasks, resnet18(), published.FPS, spread=False)
    return summary(profile_and_simulate(model.gpu(), load, pool, Sgprs(), model.patience, settings))


def naive(
    model: HarnessModel,
    contexts: int,
    tasks: int,
    settings: SimulationSettings = DEFAULT_SETTINGS,
    patience: float = NAIVE_PATIENCE,
) -> Summary:
    """Simulate the tasks of the SGPRS scenarios under the naive baseline."""
    pool = naive_pool(published.DEVICE_SMS, contexts, tasks)
    load = identical_tasks(tasks, resnet18(), published.FPS, spread=False)
    return summary(profile_and_simulate(model.gpu(), load, pool, Naive(), patience, settings))


def launch_ahead(
    model: HarnessModel,
    tasks: int,
    settings: SimulationSettings = DEFAULT_SETTINGS,
    policy: SchedulingPolicy = BATCHED_LAUNCH_AHEAD,
    pool: Sequence[ContextSpec] = DARIS_POOL,
) -> Summary:
    """Simulate the tasks of the SGPRS scenarios under launch-ahead, with one process for all contexts."""
    load = identical_tasks(tasks, resnet18(), published.FPS, spread=False)
    return summary(profile_and_simulate(model.gpu(), load, pool, policy, model.patience, settings))


def unmanaged(
    model: HarnessModel, contexts: int, networks: int, settings: SimulationSettings = DEFAULT_SETTINGS
) -> float:
    """Return the frames a second of networks that run back to back without a scheduler."""
    pool = naive_pool(published.DEVICE_SMS, contexts, networks)
    load = identical_tasks(networks, resnet18(), BACK_TO_BACK_FPS, spread=False)
    return summary(profile_and_simulate(model.gpu(), load, pool, Naive(), 1.0, settings)).fps


def single_stream(model: HarnessModel, depth: int, settings: SimulationSettings = DEFAULT_SETTINGS) -> float:
    """Return the frames a second of one stream.

    `depth`: 1 to synchronise after each frame, 2 to launch the next frame while one runs.
    """
    pool = single_pool(published.DEVICE_SMS, depth)
    load = identical_tasks(8, resnet18(), BACK_TO_BACK_FPS)
    return summary(profile_and_simulate(model.gpu(), load, pool, SingleStream(), 1.0, settings)).fps


def batched(model: HarnessModel, max_batch: int, settings: SimulationSettings = DEFAULT_SETTINGS) -> float:
    """Return the frames a second of one stream with batches of up to `max_batch` frames."""
    pool = single_pool(published.DEVICE_SMS, 2)
    load = identical_tasks(4 * max_batch, resnet18(), BACK_TO_BACK_FPS)
    return summary(profile_and_simulate(model.gpu(), load, pool, Batching(max_batch), 1.0, settings)).fps


@dataclass(frozen=True, slots=True)
class SummaryByPriority:
    """Metrics of a run for all tasks and for each priority, as DARIS reports them."""

    overall: Summary
    high: Summary
    low: Summary


def mixed_priorities(
    model: HarnessModel,
    policy: SchedulingPolicy,
    pool: Sequence[ContextSpec],
    tasks: int,
    settings: SimulationSettings = DEFAULT_SETTINGS,
    *,
    shared_process: bool = False,
) -> SummaryByPriority:
    """Simulate tasks of which a third has high priority, with releases spread over the period.

    `shared_process`: one process launches for all contexts; otherwise each context has its own process.
    """
    load = identical_tasks(tasks, resnet18(), published.FPS, high=tasks // 3)
    gpu = model.gpu(shared_process=shared_process)
    trace = profile_and_simulate(gpu, load, pool, policy, model.patience, settings)
    return SummaryByPriority(summary(trace), summary(trace, Priority.HIGH), summary(trace, Priority.LOW))


def daris(model: HarnessModel, tasks: int = 48, settings: SimulationSettings = DEFAULT_SETTINGS) -> SummaryByPriority:
    """Simulate DARIS with its published pool and more low-priority tasks than fit."""
    return mixed_priorities(model, Daris(), DARIS_POOL, tasks, settings)
