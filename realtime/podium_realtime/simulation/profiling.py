"""Profiles the stages of networks on the simulated GPU, as SGPRS does offline: in each context, alone and occupied.

Alone: nothing else runs. Occupied: every other place of the pool runs too. Worst: what no run can exceed, for the
admission test. Pure: the model is asked, no noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from podium_realtime.model.network import Network, Stage
from podium_realtime.model.profile import Profile
from podium_realtime.scheduling.pool import ContextSpec, StreamPriority
from podium_realtime.simulation.gpu import Share, SimulatedGpu


def profile_networks(
    gpu: SimulatedGpu, networks: Iterable[Network], pool: Sequence[ContextSpec]
) -> dict[str, tuple[Profile, ...]]:
    """Profiles of every stage at the SM counts of the pool's contexts."""
    counts = sorted({context.sms for context in pool})
    places = [next(context for context in pool if context.sms == count) for count in counts]
    return {
        network.name: tuple(
            Profile(
                tuple(counts),
                tuple(alone(gpu, stage, count) for count in counts),
                tuple(occupied(gpu, stage, context, pool) for context in places),
            )
            for stage in network.stages
        )
        for network in networks
    }


def alone(gpu: SimulatedGpu, stage: Stage, sms: int) -> float:
    """Seconds of one stage on an idle device."""
    return stage.launches * gpu.exposed + stage.work * gpu.execution(sms)


def occupied(gpu: SimulatedGpu, stage: Stage, context: ContextSpec, pool: Sequence[ContextSpec]) -> float:
    """Seconds of one stage with every place of the pool busy, all in low streams."""
    running = [
        Share(one.number, one.sms, StreamPriority.LOW, 1)
        for one in sorted(pool, key=lambda one: one.number != context.number)
        for _ in range(one.in_flight)
    ]
    rate = gpu.rates(running)[0]
    return stage.launches * gpu.exposed + stage.work / rate


def worst_times(
    gpu: SimulatedGpu, networks: Sequence[Network], pool: Sequence[ContextSpec]
) -> dict[tuple[str, int], list[float]]:
    """Seconds that each stage takes at most, by (network, context), in a pool with one stage in flight per context on
    which none but `networks` run. For the admission test.

    All contexts run; each launch finds the lock taken by the longest launch of every other context and its own thread
    still busy with the longest one; the jitter is at its cut (three standard deviations).
    """
    return {
        (network.name, one.number): _worst(gpu, network, one, networks, pool) for network in networks for one in pool
    }


def _worst(
    gpu: SimulatedGpu,
    network: Network,
    context: ContextSpec,
    networks: Sequence[Network],
    pool: Sequence[ContextSpec],
) -> list[float]:
    most = math.exp(3.0 * gpu.interference.jitter)
    longest = max(stage.launches for one in networks for stage in one.stages)
    others = len(pool) - 1 if gpu.shared_process else 0
    running = [
        Share(one.number, one.sms, StreamPriority.LOW, 1)
        for one in sorted(pool, key=lambda one: one.number != context.number)
    ]
    rate = gpu.rates(running)[0]
    slower = gpu.slowdown(len(pool) if gpu.shared_process else 1)
    wait = longest * (others * gpu.locked + gpu.launch - gpu.exposed)
    return [most * (slower * (wait + stage.launches * gpu.exposed) + stage.work / rate) for stage in network.stages]
