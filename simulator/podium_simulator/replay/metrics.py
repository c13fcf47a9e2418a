"""Metrics of a replay: times, regret, GPU-seconds, waits. docs/benchmarks/policies.md has the definitions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from podium_core.curves.non_finite import diverged
from podium_simulator.replay.history import Evaluation, History
from podium_simulator.replay.samples import Sample
from podium_simulator.traces.trace import RecordedTrial

NEAR = 0.01  # share of the gap from start to best


@dataclass(frozen=True, slots=True)
class Uses:
    """GPU-seconds until `time_to_best` by use; their sum is `Score.gpu_seconds_to_best`."""

    best: float  # training of the best trial
    completed: float  # training of the other trials that had completed by then
    unfinished: float  # training of all other trials, including those that the policy had ended
    repeated: float  # discarded training of trials that the policy had ended and that had to start again
    switches: float


@dataclass(frozen=True, slots=True)
class Score:
    """Score of one run. Times are in seconds."""

    time_to_target: float | None  # until a trial reached the target; None: no trial of the sample reaches it
    # until a value within 1 % of the start-to-best gap of the best; None: the sample has no finite value
    time_to_near_best: float | None
    time_to_best: float  # until the trial with the best value has completed
    mean_regret: float  # mean regret of the best value so far (0 to 1), over the time that fifo needs for all trials
    gpu_seconds_to_best: float  # GPU-seconds until `time_to_best`
    plan_gpu_seconds: float  # GPU-seconds of the policy's own plan
    switch_share: float  # share of the GPU time that switches took
    longest_wait: float  # in units of the horizon H
    uses: Uses


def start_value(sample: Sample) -> float | None:
    """Return the median of the trials' first finite values (larger is better).

    An ordinary trial starts there. Trials without a finite value are left out; None where no trial has one.
    """
    firsts = sorted(sample.sign * first for t in sample.trials if (first := _first_finite(t)) is not None)
    if not firsts:
        return None
    middle = len(firsts) // 2
    if len(firsts) % 2:
        return firsts[middle]
    low, high = firsts[middle - 1], firsts[middle]
    return (low + high) / 2 if math.isfinite(low + high) else low / 2 + high / 2


def _first_finite(trial: RecordedTrial) -> float | None:
    return next((value for value in trial.values if not diverged(value)), None)


def near_best_value(sample: Sample) -> float | None:
    """Return the value that `time_to_near_best` waits for (larger is better); None without finite values."""
    best, start = sample.best_of(sample.trials[sample.winner]), start_value(sample)
    if start is None:
        return None
    gap = best - start
    return best - NEAR * gap if math.isfinite(gap) else (1.0 - NEAR) * best + NEAR * start  # only the gap overflows


def target_value(sample: Sample) -> float | None:
    """Return the value that `time_to_target` waits for; None where no trial reaches it.

    That is the task's target, or without one the value near the best.
    """
    if sample.target is None:
        return near_best_value(sample)
    goal = sample.sign * sample.target
    return goal if sample.best_of(sample.trials[sample.winner]) >= goal else None


def first_time_at(reached: Iterable[Evaluation], goal: float | None) -> float | None:
    """Return the time of the first finite value that reached `goal`; None: never, or no goal."""
    if goal is None:
        return None
    return next((r.time for r in reached if math.isfinite(r.value) and r.value >= goal), None)


def goal_trials(sample: Sample) -> tuple[int, ...]:
    """Return the trials that reach the target, the value near the best and the best value soonest.

    For the oracle.
    """

    def soonest(goal: float) -> int:
        return min(range(len(sample.trials)), key=lambda i: (_first_reach(sample, i, goal), i))

    wanted = (target_value(sample), near_best_value(sample))
    return (*(soonest(value) for value in wanted if value is not None), sample.winner)


def _first_reach(sample: Sample, number: int, goal: float) -> float:
    trial = sample.trials[number]
    reached = (
        s for s, v in zip(trial.seconds, trial.values, strict=True) if not diverged(v) and sample.sign * v >= goal
    )
    return next(reached, math.inf)


def score(sample: Sample, history: History, makespan: float) -> Score:
    """Return the score. `makespan`: time at which fifo has trained the whole sample."""
    time_to_best = history.completed[sample.winner]
    return Score(
        time_to_target=first_time_at(history.reached, target_value(sample)),
        time_to_near_best=first_time_at(history.reached, near_best_value(sample)),
        time_to_best=time_to_best,
        mean_regret=regret(sample, history.reached, makespan),
        gpu_seconds_to_best=history.gpu_seconds_until(time_to_best),
        plan_gpu_seconds=history.plan_seconds,
        switch_share=history.switch_seconds / history.gpu_seconds,
        longest_wait=max(history.waits.values(), default=0.0) / sample.horizon,
        uses=uses_until_best(sample, history),
    )


def uses_until_best(sample: Sample, history: History) -> Uses:
    """Return the GPU-seconds until the best trial completed, by use.

    No trial starts again after that, so all of `repeated_seconds` was before.
    """
    time_to_best = history.completed[sample.winner]
    best, repeated = sample.trials[sample.winner].length, history.repeated_seconds
    switches = history.switch_seconds_until(time_to_best)
    done = [number for number, time in history.completed.items() if time <= time_to_best and number != sample.winner]
    completed = math.fsum(sample.trials[number].length for number in done)
    rest = (
        history.gpu_seconds_until(time_to_best) - best - completed - repeated - switches
    )  # may be below 0 by rounding
    return Uses(best=best, completed=completed, unfinished=max(0.0, rest), repeated=repeated, switches=switches)


def regret(sample: Sample, reached: Sequence[Evaluation], makespan: float) -> float:
    """Return the mean over [0, makespan] of (best - best so far) / (best - start), at most 1.

    It is 1 before any finite value. `reached` is sorted by time.
    """
    best, start = sample.best_of(sample.trials[sample.winner]), start_value(sample)
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
