"""Metrics of a replay: times, regret, GPU-seconds, waits. docs/benchmarks/policies.md has the definitions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from podium_core.curves.non_finite import diverged
from podium_simulator.replay.history import History, Reached
from podium_simulator.replay.samples import Pool
from podium_simulator.traces.trace import RecordedTrial

NEAR = 0.01  # share of the gap from start to best


@dataclass(frozen=True, slots=True)
class Uses:
    """GPU-seconds until `time_to_best` by use; their sum is `Score.gpu_seconds_to_best`."""

    best: float  # training of the best trial
    completed: float  # training of the other trials that had completed by then
    begun: float  # training of all other trials, including those that the policy had ended
    again: float  # discarded training of trials that the policy had ended and that had to start again
    switches: float


@dataclass(frozen=True, slots=True)
class Score:
    """Score of one run. Times are in seconds."""

    a: float | None  # until a trial reached the target; None: no trial of the sample reaches it
    # until a value within 1 % of the start-to-best gap of the best; None: the sample has no finite value
    a1: float | None
    b: float  # until the trial with the best value has completed
    c: float  # mean regret of the best value so far (0 to 1), over the time that fifo needs for all trials
    gpu: float  # GPU-seconds until `time_to_best`
    plan: float  # GPU-seconds of the policy's own plan
    over: float  # share of the GPU time that switches took
    wait: float
    uses: Uses


def start_value(pool: Pool) -> float | None:
    """Return the median of the trials' first finite values (larger is better).

    An ordinary trial starts there. Trials without a finite value are left out; None where no trial has one.
    """
    firsts = sorted(pool.sign * first for t in pool.trials if (first := _first_finite(t)) is not None)
    if not firsts:
        return None
    middle = len(firsts) // 2
    if len(firsts) % 2:
        return firsts[middle]
    low, high = firsts[middle - 1], firsts[middle]
    return (low + high) / 2 if math.isfinite(low + high) else low / 2 + high / 2


def _first_finite(trial: RecordedTrial) -> float | None:
    return next((value for value in trial.values if not diverged(value)), None)


def near_best(pool: Pool) -> float | None:
    """Return the value that `time_to_near_best` waits for (larger is better); None without finite values."""
    best, start = pool.best_of(pool.trials[pool.winner]), start_value(pool)
    if start is None:
        return None
    gap = best - start
    return best - NEAR * gap if math.isfinite(gap) else (1.0 - NEAR) * best + NEAR * start  # only the gap overflows


def goal_of(pool: Pool) -> float | None:
    """Return the value that `time_to_target` waits for; None where no trial reaches it.

    That is the task's target, or without one the value near the best.
    """
    if pool.target is None:
        return near_best(pool)
    goal = pool.sign * pool.target
    return goal if pool.best_of(pool.trials[pool.winner]) >= goal else None


def first_at(reached: Iterable[Reached], goal: float | None) -> float | None:
    """Return the time of the first finite value that reached `goal`; None: never, or no goal."""
    if goal is None:
        return None
    return next((r.time for r in reached if math.isfinite(r.value) and r.value >= goal), None)


def goals(pool: Pool) -> tuple[int, ...]:
    """Return the trials that reach the target, the value near the best and the best value soonest. For the oracle."""

    def soonest(goal: float) -> int:
        return min(range(len(pool.trials)), key=lambda i: (_first_reach(pool, i, goal), i))

    wanted = (goal_of(pool), near_best(pool))
    return (*(soonest(value) for value in wanted if value is not None), pool.winner)


def _first_reach(pool: Pool, number: int, goal: float) -> float:
    trial = pool.trials[number]
    reached = (s for s, v in zip(trial.seconds, trial.values, strict=True) if not diverged(v) and pool.sign * v >= goal)
    return next(reached, math.inf)


def score(pool: Pool, history: History, makespan: float) -> Score:
    """Return the score. `makespan`: time at which fifo has trained the whole sample."""
    b = history.completed[pool.winner]
    return Score(
        a=first_at(history.reached, goal_of(pool)),
        a1=first_at(history.reached, near_best(pool)),
        b=b,
        c=regret(pool, history.reached, makespan),
        gpu=history.gpu_seconds_until(b),
        plan=history.plan_seconds,
        over=history.switch_seconds / history.gpu_seconds,
        wait=max(history.waits.values(), default=0.0) / pool.horizon,
        uses=uses_until_best(pool, history),
    )


def uses_until_best(pool: Pool, history: History) -> Uses:
    """Return the GPU-seconds until the best trial completed, by use.

    No trial starts again after that, so all of `repeated_seconds` was before.
    """
    b = history.completed[pool.winner]
    best, again = pool.trials[pool.winner].length, history.again_seconds
    switches = history.switch_seconds_until(b)
    done = [number for number, time in history.completed.items() if time <= b and number != pool.winner]
    completed = math.fsum(pool.trials[number].length for number in done)
    rest = history.gpu_seconds_until(b) - best - completed - again - switches  # may be below 0 by rounding
    return Uses(best=best, completed=completed, begun=max(0.0, rest), again=again, switches=switches)


def regret(pool: Pool, reached: Sequence[Reached], makespan: float) -> float:
    """Return the mean over [0, makespan] of (best - best so far) / (best - start), at most 1.

    It is 1 before any finite value. `reached` is sorted by time.
    """
    best, start = pool.best_of(pool.trials[pool.winner]), start_value(pool)
    if start is None:
        return 1.0
    part = 1.0 if math.isfinite(best - start) else 0.5  # use halves where the difference overflows
    gap = part * best - part * start
    area, now, worst = 0.0, 0.0, 1.0
    for r in reached:
        if r.time >= makespan:
            break
        if not math.isfinite(r.value):
            continue
        current = (part * best - part * r.value) / gap if gap > 0.0 else 0.0
        if current < worst:
            area += worst * (r.time - now)
            now, worst = r.time, current
    return (area + worst * (makespan - now)) / makespan
