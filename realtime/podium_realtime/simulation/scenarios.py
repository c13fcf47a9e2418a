"""The papers' runs on the simulated GPU: each function is one point of one of their figures.

Called by `figures`, `cells`, `calibration`, the benchmark and `podium realtime simulate`. All loads are ResNet-18 at
30 fps. The SGPRS figures release all tasks at once (their threads start together); DARIS' and ours are also shown with
releases spread over the period.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podium_realtime.model import published
from podium_realtime.model.network import Network, resnet18
from podium_realtime.model.task import PeriodicTask, Priority, identical
from podium_realtime.record.metrics import Summary, summarise
from podium_realtime.record.run import Run
from podium_realtime.scheduling.ahead import LaunchAhead
from podium_realtime.scheduling.base import Policy
from podium_realtime.scheduling.baselines import Batching, Naive, SingleStream, naive_pool, single_pool
from podium_realtime.scheduling.daris import Daris
from podium_realtime.scheduling.pool import ContextSpec, context_pool
from podium_realtime.scheduling.sgprs import Sgprs
from podium_realtime.simulation.engine import simulate
from podium_realtime.simulation.gpu import Interference, SimulatedGpu, published_gpu
from podium_realtime.simulation.profiling import profile_networks

WARM_UP = 0.5
BACK_TO_BACK_FPS = 200.0  # per network: far above what any gets, so a next frame always waits
# nobody manages a naive task's thread: when a frame was late it begins the next one at once (our definition)
NAIVE_PATIENCE = 1.0
DARIS_POOL = context_pool(published.DEVICE_SMS, 6, 6.0, high=0, low=1)  # the paper's best: 6 contexts x 1 stream
# ours in the same contexts: with a process each, launching ahead pays; where one process launches for all of them,
# launches are what is scarce, so batches pay
AHEAD_PROCESSES = context_pool(published.DEVICE_SMS, 6, 6.0, high=0, low=1, depth=2)
AHEAD_BATCHED = LaunchAhead(batch=2)


@dataclass(frozen=True, slots=True)
class Machine:
    """The device and how the harness treats a release whose predecessor is late. `patience`: see Dispatcher."""

    interference: Interference
    patience: float

    def gpu(self, shared_process: bool = True) -> SimulatedGpu:
        return published_gpu(self.interference, shared_process=shared_process)


@dataclass(frozen=True, slots=True)
class Setting:
    """How long and from which seed; one run of 3 s and 30 tasks takes about a second."""

    seconds: float = 3.0
    seed: int = 0


SHORT = Setting()


def play(
    gpu: SimulatedGpu,
    tasks: Sequence[PeriodicTask],
    pool: Sequence[ContextSpec],
    policy: Policy,
    patience: float,
    setting: Setting = SHORT,
) -> Run:
    """Profiles the networks on this pool, as the papers do offline, and runs."""
    networks: dict[str, Network] = {task.network.name: task.network for task in tasks}
    seen = [network if policy.staged else network.fused() for network in networks.values()]
    profiles = profile_networks(gpu, seen, pool)
    return simulate(gpu, tasks, pool, profiles, policy, setting.seconds, seed=setting.seed, patience=patience)


def sgprs(machine: Machine, contexts: int, oversubscription: float, tasks: int, setting: Setting = SHORT) -> Summary:
    """SGPRS' scenarios 1 and 2."""
    pool = context_pool(published.DEVICE_SMS, contexts, oversubscription)
    load = identical(tasks, resnet18(), published.FPS, spread=False)
    return summary(play(machine.gpu(), load, pool, Sgprs(), machine.patience, setting))


def naive(
    machine: Machine, contexts: int, tasks: int, setting: Setting = SHORT, patience: float = NAIVE_PATIENCE
) -> Summary:
    """The same load, every task in a stream of its own."""
    pool = naive_pool(published.DEVICE_SMS, contexts, tasks)
    load = identical(tasks, resnet18(), published.FPS, spread=False)
    return summary(play(machine.gpu(), load, pool, Naive(), patience, setting))


def ahead(
    machine: Machine,
    tasks: int,
    setting: Setting = SHORT,
    policy: Policy = AHEAD_BATCHED,
    pool: Sequence[ContextSpec] = DARIS_POOL,
) -> Summary:
    """Ours on the load and in the single process of SGPRS' scenarios."""
    load = identical(tasks, resnet18(), published.FPS, spread=False)
    return summary(play(machine.gpu(), load, pool, policy, machine.patience, setting))


def unmanaged(machine: Machine, contexts: int, networks: int, setting: Setting = SHORT) -> float:
    """Frames a second of networks that run back to back, nobody managing them."""
    pool = naive_pool(published.DEVICE_SMS, contexts, networks)
    load = identical(networks, resnet18(), BACK_TO_BACK_FPS, spread=False)
    return summary(play(machine.gpu(), load, pool, Naive(), 1.0, setting)).fps


def single_stream(machine: Machine, depth: int, setting: Setting = SHORT) -> float:
    """Frames a second of one network alone: depth 1 synchronises after each frame, 2 launches the next meanwhile."""
    pool = single_pool(published.DEVICE_SMS, depth)
    load = identical(8, resnet18(), BACK_TO_BACK_FPS)
    return summary(play(machine.gpu(), load, pool, SingleStream(), 1.0, setting)).fps


def batched(machine: Machine, most: int, setting: Setting = SHORT) -> float:
    """Frames a second of one stream with batches up to `most`."""
    pool = single_pool(published.DEVICE_SMS, 2)
    load = identical(4 * most, resnet18(), BACK_TO_BACK_FPS)
    return summary(play(machine.gpu(), load, pool, Batching(most), 1.0, setting)).fps


@dataclass(frozen=True, slots=True)
class TwoClasses:
    """A run with tasks of high and of low priority, as DARIS reports it."""

    all: Summary
    high: Summary
    low: Summary


def two_classes(
    machine: Machine,
    policy: Policy,
    pool: Sequence[ContextSpec],
    tasks: int,
    setting: Setting = SHORT,
    *,
    shared_process: bool = False,
) -> TwoClasses:
    """A third of the tasks is of high priority; releases are spread; each context launches in a process of its own
    unless `shared_process`.
    """
    load = identical(tasks, resnet18(), published.FPS, high=tasks // 3)
    run = play(machine.gpu(shared_process=shared_process), load, pool, policy, machine.patience, setting)
    return TwoClasses(summary(run), summary(run, Priority.HIGH), summary(run, Priority.LOW))


def daris(machine: Machine, tasks: int = 48, setting: Setting = SHORT) -> TwoClasses:
    """DARIS as published, with more low-priority work than fits."""
    return two_classes(machine, Daris(), DARIS_POOL, tasks, setting)


def summary(run: Run, priority: Priority | None = None) -> Summary:
    return summarise(run.ends, run.seconds, WARM_UP, priority)
