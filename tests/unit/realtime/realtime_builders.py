"""Small networks, task sets and pools for the tests in this folder, and hypothesis strategies for random task sets."""

from __future__ import annotations

import os
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from podium_realtime.model.network import InferenceNetwork, Stage, chain, resnet18
from podium_realtime.model.profile import Profile
from podium_realtime.model.task import PeriodicTask, Priority
from podium_realtime.results.trace import ScheduleTrace
from podium_realtime.scheduling.baselines import Batching, Naive, SingleStream, naive_pool, single_pool
from podium_realtime.scheduling.daris import Daris
from podium_realtime.scheduling.launch_ahead import LaunchAhead
from podium_realtime.scheduling.policy import SchedulingPolicy
from podium_realtime.scheduling.pool import ContextSpec, context_pool
from podium_realtime.scheduling.sgprs import Sgprs
from podium_realtime.simulation.engine import simulate
from podium_realtime.simulation.gpu import Interference, published_gpu
from podium_realtime.simulation.profiling import profile_networks

DIAMOND = InferenceNetwork(
    "diamond",
    (
        Stage("in", 0.1, 0.1),
        Stage("left", 0.3, 0.2, (0,)),
        Stage("right", 0.2, 0.2, (0,)),
        Stage("out", 0.1, 0.1, (1, 2)),
    ),
)
# number of random task sets in the long search, which takes minutes (PODIUM_REALTIME_SETS=10000); 0: few fixed sets
RANDOM_SETS = int(os.environ.get("PODIUM_REALTIME_SETS", "0"))
NETWORKS = (resnet18(), DIAMOND, chain("pair", [("a", 0.2, 0.3), ("b", 0.3, 0.2)]))


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """A policy with a suitable pool. For `shared_queue` see `results.invariants`."""

    policy: SchedulingPolicy
    pool: tuple[ContextSpec, ...]
    shared_queue: bool = False

    def __str__(self) -> str:
        return f"{self.policy.name}-{len(self.pool)}x{self.pool[0].in_flight}x{self.pool[0].depth}"


CASES = (
    PolicyCase(Sgprs(), context_pool(68, 3, 1.5)),
    PolicyCase(Sgprs(promote=False), context_pool(68, 2, 1.0)),
    PolicyCase(Daris(), context_pool(68, 6, 6.0, high=0, low=1)),
    PolicyCase(Daris(), context_pool(68, 2, 1.0, high=0, low=2)),
    PolicyCase(LaunchAhead(), context_pool(68, 3, 1.5, high=0, low=2, in_flight=2, depth=2), True),
    PolicyCase(LaunchAhead(max_batch=4), context_pool(68, 4, 2.0, high=0, low=2, in_flight=2, depth=2), True),
    PolicyCase(LaunchAhead(shedding=False, late_binding=False), context_pool(68, 2, 1.0, high=0, low=1, depth=2)),
    PolicyCase(Naive(), naive_pool(68, 3, 12)),
    PolicyCase(SingleStream(), single_pool(68, 2)),
    PolicyCase(Batching(4), single_pool(68, 1)),
)


def hypothesis_settings(short: int, long: int) -> settings:
    """Return settings for `short` examples that never change, or for `long` random ones in the long search."""
    examples = long if RANDOM_SETS else short
    checks = list(HealthCheck)
    return settings(max_examples=examples, deadline=None, derandomize=not RANDOM_SETS, suppress_health_check=checks)


def constant_profiles(network: InferenceNetwork, seconds: float) -> tuple[Profile, ...]:
    """Return profiles in which every stage takes the same time on any number of SMs."""
    return tuple(Profile((1,), (seconds,), (seconds,)) for _ in network.stages)


def simulate_case(
    case: PolicyCase, tasks: tuple[PeriodicTask, ...], seconds: float, seed: int = 0, patience: float = 0.0
) -> ScheduleTrace:
    """Simulate on the published device with one process and some noise."""
    gpu = published_gpu(Interference(0.1, 0.95, 13.0, 0.03, jitter=0.05))
    networks = {task.network.name: task.network for task in tasks}.values()
    scheduled = [network if case.policy.schedules_stages else network.fused() for network in networks]
    profiles = profile_networks(gpu, scheduled, case.pool)
    return simulate(
        gpu, tasks, case.pool, profiles, case.policy, seconds, seed=seed, patience=patience, keep_executions=True
    )


@st.composite
def task_sets(draw: st.DrawFn) -> tuple[PeriodicTask, ...]:
    """Draw one to twelve tasks of three networks, from light to far too heavy loads."""
    tasks = []
    for number in range(draw(st.integers(1, 12))):
        period = draw(st.floats(0.008, 0.06))
        tasks.append(
            PeriodicTask(
                f"task-{number}",
                draw(st.sampled_from(NETWORKS)),
                period,
                period * draw(st.floats(0.3, 1.0)),
                draw(st.sampled_from(Priority)),
                offset=draw(st.one_of(st.just(0.0), st.floats(0.0, 0.05))),
            )
        )
    return tuple(tasks)
