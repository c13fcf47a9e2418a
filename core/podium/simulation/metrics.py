"""What a replay was worth: times, regret, GPU seconds, waits. Definitions of ../shared/research/refsim.md section 1,
repeated in docs/algorithms.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from podium.curves.wire import diverged
from podium.simulation.history import History, Reached
from podium.simulation.pools import Pool

NEAR = 0.01  # of the gap from start to best


@dataclass(frozen=True, slots=True)
class Uses:
    """GPU seconds until (b) by what they were used for; together they are `Score.gpu`."""

    best: float  # the training of the best trial
    completed: float  # the training of those that had completed by then
    begun: float  # the training of all others: those that the policy had ended are among them
    again: float  # thrown away: the training of trials that the policy had ended and that had to begin again
    switches: float


@dataclass(frozen=True, slots=True)
class Score:
    """One run. Times in seconds; `c` is a mean of regret from 0 to 1; `wait` in units of H."""

    a: float | None  # until a trial reached the target; None: the pool has none that does
    a1: float  # until a value within 1 % of the start-to-best gap of the best
    b: float  # until the trial with the best value has completed
    c: float  # mean regret of the best value so far, over the time that fifo needs for all
    gpu: float  # GPU seconds until b
    plan: float  # GPU seconds of the policy's own plan
    over: float  # share of GPU time that switches took
    wait: float
    uses: Uses


def start_value(pool: Pool) -> float:
    """Median first value, larger is better: what an ordinary trial begins with."""
    firsts = sorted(-math.inf if diverged(t.values[0]) else pool.sign * t.values[0] for t in pool.trials)
    middle = len(firsts) // 2
    return firsts[middle] if len(firsts) % 2 else (firsts[middle - 1] + firsts[middle]) / 2


def near_best(pool: Pool) -> float:
    best = pool.best_of(pool.trials[pool.winner])
    return best - NEAR * (best - start_value(pool))


def goal_of(pool: Pool) -> float | None:
    """The value that metric (a) waits for: the task's target, else near the best; None where no trial reaches it."""
    if pool.target is None:
        return near_best(pool)
    goal = pool.sign * pool.target
    return goal if pool.best_of(pool.trials[pool.winner]) >= goal else None


def goals(pool: Pool) -> tuple[int, ...]:
    """The trials that serve (a), a1 and (b) soonest: for the oracle."""

    def soonest(goal: float) -> int:
        return min(range(len(pool.trials)), key=lambda i: (_first_reach(pool, i, goal), i))

    wanted = [near_best(pool)]
    goal = goal_of(pool)
    if goal is not None:
        wanted.insert(0, goal)
    return (*(soonest(value) for value in wanted), pool.winner)


def _first_reach(pool: Pool, number: int, goal: float) -> float:
    trial = pool.trials[number]
    reached = (s for s, v in zip(trial.seconds, trial.values, strict=True) if not diverged(v) and pool.sign * v >= goal)
    return next(reached, math.inf)


def score(pool: Pool, history: History, makespan: float) -> Score:
    """`makespan`: when fifo has trained all of the pool."""
    b = history.completed[pool.winner]
    goal, near = goal_of(pool), near_best(pool)
    return Score(
        a=None if goal is None else _time_of(history, lambda value: value >= goal),
        a1=_time_of(history, lambda value: value >= near),
        b=b,
        c=regret(pool, history.reached, makespan),
        gpu=history.gpu_seconds_until(b),
        plan=history.plan_seconds,
        over=history.switch_seconds / history.gpu_seconds,
        wait=max(history.waits.values(), default=0.0) / pool.horizon,
        uses=uses_until_best(pool, history),
    )


def uses_until_best(pool: Pool, history: History) -> Uses:
    """Nothing begins again once the best trial has completed, so all of `again_seconds` was before."""
    b = history.completed[pool.winner]
    best, again = pool.trials[pool.winner].length, history.again_seconds
    switches = history.switch_seconds_until(b)
    done = [number for number, time in history.completed.items() if time <= b and number != pool.winner]
    completed = math.fsum(pool.trials[number].length for number in done)
    rest = history.gpu_seconds_until(b) - best - completed - again - switches  # may be below 0 by rounding
    return Uses(best=best, completed=completed, begun=max(0.0, rest), again=again, switches=switches)


def _time_of(history: History, reached: Callable[[float], bool]) -> float:
    return next(r.time for r in history.reached if reached(r.value))


def regret(pool: Pool, reached: Sequence[Reached], makespan: float) -> float:
    """Mean over [0, makespan] of (best - best so far) / (best - start), at most 1, which it is before any value.
    `reached` is sorted by time.
    """
    best, start = pool.best_of(pool.trials[pool.winner]), start_value(pool)
    gap = best - start
    area, now, worst = 0.0, 0.0, 1.0
    for r in reached:
        if r.time >= makespan:
            break
        current = (best - r.value) / gap if gap > 0.0 else 0.0
        if current < worst:
            area += worst * (r.time - now)
            now, worst = r.time, current
    return (area + worst * (makespan - now)) / makespan
