"""Profiles stages on the partitions of the CPU back-end, as SGPRS does offline.

Each stage runs with warm-ups and repeats, first alone and then with all other streams busy.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from podium_realtime.model.profile import Profile
from podium_realtime.runtime.cpu import CpuSession, CpuTask
from podium_realtime.runtime.worker import WHOLE_NETWORK
from podium_realtime.scheduling.pool import ContextSpec

WARM_UPS = 5
REPEATS = 25  # as in the SGPRS repository
_NEIGHBOUR = 1 << 20  # first batch number of the load on neighbour streams


def profile_stages(
    session: CpuSession,
    tasks: Sequence[CpuTask],
    pool: Sequence[ContextSpec],
    *,
    schedules_stages: bool = True,
    occupied: bool = True,
) -> dict[str, tuple[Profile, ...]]:
    """Return the median seconds of every stage of every network at each core count of the pool.

    `schedules_stages`: profile each stage; otherwise the network as one stage.
    `occupied`: measure with busy neighbours too; otherwise the occupied times are measured alone as well.
    """
    counts = sorted({context.sms for context in pool})
    contexts = [next(context.number for context in pool if context.sms == count) for count in counts]
    profiles = {}
    for task in {task.net.name: task for task in tasks}.values():
        stages = range(len(session.nets[task.net.name].network.stages)) if schedules_stages else [WHOLE_NETWORK]
        alike = [task.name, *(other.name for other in tasks if other.net.name == task.net.name and other is not task)]
        profiles[task.net.name] = tuple(
            Profile(
                tuple(counts),
                tuple(_measure(session, [task.name], stage, context, []) for context in contexts),
                tuple(
                    _measure(session, alike, stage, context, _other_streams(pool, context) if occupied else [])
                    for context in contexts
                ),
            )
            for stage in stages
        )
    return profiles


def _other_streams(pool: Sequence[ContextSpec], measured: int) -> list[tuple[int, int]]:
    """Return (context, stream) of all streams in use but the one that is measured."""
    return [
        (context.number, stream)
        for context in pool
        for stream in range(context.in_flight)
        if (context.number, stream) != (measured, 0)
    ]


def _measure(
    session: CpuSession, tasks: Sequence[str], stage: int, context: int, neighbours: Sequence[tuple[int, int]]
) -> float:
    """Return the median seconds of a stage of the first task.

    Meanwhile the neighbours run the whole network repeatedly. They use the activations of other tasks if there are any:
    two workers that write the same memory would slow each other down, which does not happen in a run.
    """
    task = tasks[0]
    neighbour_tasks = tasks[1:] or tasks
    busy_neighbours = 0
    for number, (neighbour, stream) in enumerate(neighbours):
        neighbour_task = neighbour_tasks[number % len(neighbour_tasks)]
        session.request(neighbour, stream, _NEIGHBOUR + number, neighbour_task, WHOLE_NETWORK)
        busy_neighbours += 1
    times: list[float] = []
    runs = 0
    session.request(context, 0, runs, task, stage)
    while True:
        for done in session.wait(1.0):
            if done.number >= _NEIGHBOUR:
                if runs < WARM_UPS + REPEATS:
                    index = done.number - _NEIGHBOUR
                    neighbour_task = neighbour_tasks[index % len(neighbour_tasks)]
                    session.request(*neighbours[index], done.number, neighbour_task, WHOLE_NETWORK)
                else:
                    busy_neighbours -= 1
                continue
            runs += 1
            if runs > WARM_UPS:
                times.append(done.finished - done.started)
            if runs < WARM_UPS + REPEATS:
                session.request(context, 0, runs, task, stage)
        if runs >= WARM_UPS + REPEATS and busy_neighbours == 0:
            return statistics.median(times)
