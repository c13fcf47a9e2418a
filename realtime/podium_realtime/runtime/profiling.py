"""Profiles real stages on the CPU back-end's partitions, as SGPRS does offline: warm-ups, then repeats, alone and with
every other place busy. Called before a run by `podium realtime run` and by the benchmark.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from podium_realtime.model.profile import Profile
from podium_realtime.runtime.cpu import CpuSession, CpuTask
from podium_realtime.runtime.worker import WHOLE
from podium_realtime.scheduling.pool import ContextSpec

WARM_UPS = 5
REPEATS = 25  # as in the SGPRS repository
_NEIGHBOUR = 1 << 20  # numbers of the works that only keep neighbours busy


def profile_stages(
    session: CpuSession,
    tasks: Sequence[CpuTask],
    pool: Sequence[ContextSpec],
    *,
    staged: bool = True,
    occupied: bool = True,
) -> dict[str, tuple[Profile, ...]]:
    """Median seconds of every stage of every network at each core count of the pool. `staged` False: of the
    whole. `occupied` False: neighbours stay idle, and the occupied times are those alone.
    """
    counts = sorted({context.sms for context in pool})
    places = [next(context.number for context in pool if context.sms == count) for count in counts]
    found = {}
    for task in {task.net.name: task for task in tasks}.values():
        stages = range(len(session.nets[task.net.name].network.stages)) if staged else [WHOLE]
        alike = [task.name, *(one.name for one in tasks if one.net.name == task.net.name and one is not task)]
        found[task.net.name] = tuple(
            Profile(
                tuple(counts),
                tuple(_measure(session, [task.name], stage, place, []) for place in places),
                tuple(
                    _measure(session, alike, stage, place, _others(pool, place) if occupied else []) for place in places
                ),
            )
            for stage in stages
        )
    return found


def _others(pool: Sequence[ContextSpec], place: int) -> list[tuple[int, int]]:
    return [
        (context.number, stream)
        for context in pool
        for stream in range(context.in_flight)
        if (context.number, stream) != (place, 0)
    ]


def _measure(
    session: CpuSession, tasks: Sequence[str], stage: int, place: int, neighbours: Sequence[tuple[int, int]]
) -> float:
    """Median of REPEATS; neighbours run the whole network over and over meanwhile, on the arenas of other tasks where
    there are any: two workers that write the same memory would slow one another down as no run does.
    """
    task = tasks[0]
    company = tasks[1:] or tasks
    under_way = 0
    for number, (context, stream) in enumerate(neighbours):
        session.order(context, stream, _NEIGHBOUR + number, company[number % len(company)], WHOLE)
        under_way += 1
    times: list[float] = []
    runs = 0
    session.order(place, 0, runs, task, stage)
    while True:
        for done in session.wait(1.0):
            if done.number >= _NEIGHBOUR:
                if runs < WARM_UPS + REPEATS:
                    index = done.number - _NEIGHBOUR
                    session.order(*neighbours[index], done.number, company[index % len(company)], WHOLE)
                else:
                    under_way -= 1
                continue
            runs += 1
            if runs > WARM_UPS:
                times.append(done.ended - done.began)
            if runs < WARM_UPS + REPEATS:
                session.order(place, 0, runs, task, stage)
        if runs >= WARM_UPS + REPEATS and under_way == 0:
            return statistics.median(times)
