"""Profiles of networks on the simulated GPU, without noise: alone, occupied and in the worst case.

Alone: nothing else runs. Occupied: all other contexts run at their limit, as in the offline profiling of SGPRS. Worst
case: an upper bound for every run, for the admission test.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from podium_realtime.model.network import InferenceNetwork, Stage
from podium_realtime.model.profile import Profile
from podium_realtime.scheduling.pool import ContextSpec, StreamPriority
from podium_realtime.simulation.gpu import RunningStage, SimulatedGpu


def profile_networks(
    gpu: SimulatedGpu, networks: Iterable[InferenceNetwork], pool: Sequence[ContextSpec]
) -> dict[str, tuple[Profile, ...]]:
    """Return the profiles of every stage at the SM counts of the pool's contexts."""
    counts = sorted({context.sms for context in pool})
    contexts = [next(context for context in pool if context.sms == count) for count in counts]
    return {
        network.name: tuple(
            Profile(
                tuple(counts),
                tuple(time_alone(gpu, stage, count) for count in counts),
                tuple(time_occupied(gpu, stage, context, pool) for context in contexts),
            )
            for stage in network.stages
        )
        for network in networks
    }


def time_alone(gpu: SimulatedGpu, stage: Stage, sms: int) -> float:
    """Return the seconds of one stage on an idle device."""
    return stage.launches * gpu.exposed_launch_time + stage.work * gpu.execution_time(sms)


def time_occupied(gpu: SimulatedGpu, stage: Stage, context: ContextSpec, pool: Sequence[ContextSpec]) -> float:
    """Return the seconds of one stage while every context runs its largest number of low-priority stages."""
    running = [
        RunningStage(other.number, other.sms, StreamPriority.LOW, 1)
        for other in _with_first(context, pool)
        for _ in range(other.in_flight)
    ]
    rate = gpu.rates(running)[0]
    return stage.launches * gpu.exposed_launch_time + stage.work / rate


def worst_case_times(
    gpu: SimulatedGpu, networks: Sequence[InferenceNetwork], pool: Sequence[ContextSpec]
) -> dict[tuple[str, int], list[float]]:
    """Return the worst-case seconds of each stage, by (network, context).

    The bound holds for a pool with one stage in flight per context that runs only `networks`. It assumes that all
    contexts run, that each launch waits for the longest launch of every other context and of its own thread, and that
    the jitter is at its limit of three standard deviations.
    """
    return {
        (network.name, context.number): _worst_case(gpu, network, context, networks, pool)
        for network in networks
        for context in pool
    }


def _worst_case(
    gpu: SimulatedGpu,
    network: InferenceNetwork,
    context: ContextSpec,
    networks: Sequence[InferenceNetwork],
    pool: Sequence[ContextSpec],
) -> list[float]:
    max_jitter = math.exp(3.0 * gpu.interference.jitter)
    longest_launch = max(stage.launches for other in networks for stage in other.stages)
    others = len(pool) - 1 if gpu.shared_process else 0
    running = [RunningStage(other.number, other.sms, StreamPriority.LOW, 1) for other in _with_first(context, pool)]
    rate = gpu.rates(running)[0]
    slowdown = gpu.launch_slowdown(len(pool) if gpu.shared_process else 1)
    wait = longest_launch * (others * gpu.locked_launch_time + gpu.launch_time - gpu.exposed_launch_time)
    return [
        max_jitter * (slowdown * (wait + stage.launches * gpu.exposed_launch_time) + stage.work / rate)
        for stage in network.stages
    ]


def _with_first(context: ContextSpec, pool: Sequence[ContextSpec]) -> list[ContextSpec]:
    """Return the pool with this context first."""
    return sorted(pool, key=lambda other: other.number != context.number)
