"""What a replay was worth: times, regret, GPU seconds, waits. Definitions of ../shared/research/refsim.md section 1,
repeated in docs/benchmarks/policies.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from podium_core.curves.non_finite import diverged
from podium_simulator.replay.history import History, Reached
from podium_simulator.replay.samples import Pool
from podium_simulator.traces.trace import RecordedTrial

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
    a1: float | None  # until a value within 1 % of the start-to-best gap of the best; None: the pool has no finite one
    b: float  # until the trial with the best value has completed
    c: float  # mean regret of the best value so far, over the time that fifo needs for all
    gpu: float  # GPU seconds until b
    plan: float  # GPU seconds of the policy's own plan
    over: float  # share of GPU time that switches took
    wait: float
    uses: Uses


def start_value(pool: Pool) -> float | None:
    """Median of the trials' first finite values, larger is better: what an ordinary trial begins with. Trials without
    one are left out; None where no trial has one.
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
    """The value that a1 waits for, larger is better; None where no trial has a finite value."""
    best, start = pool.best_of(pool.trials[pool.winner]), start_value(pool)
    if start is None:
        return None
    gap = best - start
    return best - NEAR * gap if math.isfinite(gap) else (1.0 - NEAR) * best + NEAR * start  # the gap alone overflows


def goal_of(pool: Pool) -> float | None:
    """The value that metric (a) waits for: the task's target, else near the best; None where no trial reaches it."""
    if pool.target is None:
        return near_best(pool)
    goal = pool.sign * pool.target
    return goal if pool.best_of(pool.trials[pool.winner]) >= goal else None


def first_at(reached: Iterable[Reached], goal: float | None) -> float | None:
    """When a finite value reached `goal`; None: never, or there is no goal."""
    if goal is None:
        return None
    return next((r.time for r in reached if math.isfinite(r.value) and r.value >= goal), None)


def goals(pool: Pool) -> tuple[int, ...]:
    """The trials that serve (a), a1 and (b) soonest: for the oracle."""

    def soonest(goal: float) -> int:
        return min(range(len(pool.trials)), key=lambda i: (_first_reach(pool, i, goal), i))

    wanted = (goal_of(pool), near_best(pool))
    return (*(soonest(value) for value in wanted if value is not None), pool.winner)


def _first_reach(pool: Pool, number: int, goal: float) -> float:
    trial = pool.trials[number]
    reached = (s for s, v in zip(trial.seconds, trial.values, strict=True) if not diverged(v) and pool.sign * v >= goal)
    return next(reached, math.inf)


def score(pool: Pool, history: History, makespan: float) -> Score:
    """`makespan`: when fifo has trained all of the pool."""
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
    """Nothing begins again once the best trial has completed, so all of `again_seconds` was before."""
    b = history.completed[pool.winner]
    best, again = pool.trials[pool.winner].length, history.again_seconds
    switches = history.switch_seconds_until(b)
    done = [number for number, time in history.completed.items() if time <= b and number != pool.winner]
    completed = math.fsum(pool.trials[number].length for number in done)
    rest = history.gpu_seconds_until(b) - best - completed - again - switches  # may be below 0 by rounding
    return Uses(best=best, completed=completed, begun=max(0.0, rest), again=again, switches=switches)


def regret(pool: Pool, reached: Sequence[Reached], makespan: float) -> float:
    """Mean over [0, makespan] of (best - best so far) / (best - start), at most 1, which it is before any finite value.
    `reached` is sorted by time.
    """
    best, start = pool.best_of(pool.trials[pool.winner]), start_value(pool)
    if start is None:
        return 1.0
    part = 1.0 if math.isfinite(best - start) else 0.5  # a difference that overflows is taken of the halves
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
