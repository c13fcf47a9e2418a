"""Small loads, devices and pools for the tests of this folder, and hypothesis strategies for random ones."""

from __future__ import annotations

import os
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from podium_realtime.model.network import Network, Stage, chain, resnet18
from podium_realtime.model.profile import Profile
from podium_realtime.model.task import PeriodicTask, Priority
from podium_realtime.record.run import Run
from podium_realtime.scheduling.ahead import LaunchAhead
from podium_realtime.scheduling.base import Policy
from podium_realtime.scheduling.baselines import Batching, Naive, SingleStream, naive_pool, single_pool
from podium_realtime.scheduling.daris import Daris
from podium_realtime.scheduling.pool import ContextSpec, context_pool
from podium_realtime.scheduling.sgprs import Sgprs
from podium_realtime.simulation.engine import simulate
from podium_realtime.simulation.gpu import Interference, published_gpu
from podium_realtime.simulation.profiling import profile_networks

DIAMOND = Network(
    "diamond",
    (
        Stage("in", 0.1, 0.1),
        Stage("left", 0.3, 0.2, (0,)),
        Stage("right", 0.2, 0.2, (0,)),
        Stage("out", 0.1, 0.1, (1, 2)),
    ),
)
# `PODIUM_REALTIME_SETS=10000` is the long search (some minutes, random); `make test` takes few sets and repeats itself
LONG = int(os.environ.get("PODIUM_REALTIME_SETS", "0"))
NETWORKS = (resnet18(), DIAMOND, chain("pair", [("a", 0.2, 0.3), ("b", 0.3, 0.2)]))


@dataclass(frozen=True, slots=True)
class Case:
    """One policy with a pool that suits it. `shared_queue`: see record.invariants."""

    policy: Policy
    pool: tuple[ContextSpec, ...]
    shared_queue: bool = False

    def __str__(self) -> str:
        return f"{self.policy.name}-{len(self.pool)}x{self.pool[0].in_flight}x{self.pool[0].depth}"


CASES = (
    Case(Sgprs(), context_pool(68, 3, 1.5)),
    Case(Sgprs(promote=False), context_pool(68, 2, 1.0)),
    Case(Daris(), context_pool(68, 6, 6.0, high=0, low=1)),
    Case(Daris(), context_pool(68, 2, 1.0, high=0, low=2)),
    Case(LaunchAhead(), context_pool(68, 3, 1.5, high=0, low=2, in_flight=2, depth=2), True),
    Case(LaunchAhead(batch=4), context_pool(68, 4, 2.0, high=0, low=2, in_flight=2, depth=2), True),
    Case(LaunchAhead(shed=False, bind_late=False), context_pool(68, 2, 1.0, high=0, low=1, depth=2)),
    Case(Naive(), naive_pool(68, 3, 12)),
    Case(SingleStream(), single_pool(68, 2)),
    Case(Batching(4), single_pool(68, 1)),
)


def searching(short: int, long: int) -> settings:
    """`short` random examples that are the same each time; in the long search `long` that are not."""
    most, everything = (long if LONG else short), list(HealthCheck)
    return settings(max_examples=most, deadline=None, derandomize=not LONG, suppress_health_check=everything)


def flat(network: Network, seconds: float) -> tuple[Profile, ...]:
    """Every stage takes the same time on any SM count."""
    return tuple(Profile((1,), (seconds,), (seconds,)) for _ in network.stages)


def play(case: Case, tasks: tuple[PeriodicTask, ...], seconds: float, seed: int = 0, patience: float = 0.0) -> Run:
    """On the published device, one process, some noise."""
    gpu = published_gpu(Interference(0.1, 0.95, 13.0, 0.03, jitter=0.05))
    networks = {task.network.name: task.network for task in tasks}.values()
    seen = [network if case.policy.staged else network.fused() for network in networks]
    profiles = profile_networks(gpu, seen, case.pool)
    return simulate(
        gpu, tasks, case.pool, profiles, case.policy, seconds, seed=seed, patience=patience, keep_spans=True
    )


@st.composite
def task_sets(draw: st.DrawFn) -> tuple[PeriodicTask, ...]:
    """One to twelve tasks of three networks, from light loads to far too heavy ones."""
    found = []
    for number in range(draw(st.integers(1, 12))):
        period = draw(st.floats(0.008, 0.06))
        found.append(
            PeriodicTask(
                f"task-{number}",
                draw(st.sampled_from(NETWORKS)),
                period,
                period * draw(st.floats(0.3, 1.0)),
                draw(st.sampled_from(Priority)),
                offset=draw(st.one_of(st.just(0.0), st.floats(0.0, 0.05))),
            )
        )
    return tuple(found)
