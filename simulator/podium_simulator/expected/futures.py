"""Samples of what is not known of a search: the rest of each curve, and how long its steps take. Pure and seeded.

- Pace. The logarithms of the seconds of a step are taken as normal. Their mean and spread come from the trials that
  have made steps, together with `PRIOR_WEIGHT` imagined ones of `PRIOR_SPREAD`: few trials give wide intervals. A
  trial keeps its own pace, which varies by `OWN_SPREAD`. `COMMON_SPREAD` varies all paces of a sample together.
- Length. A trial ends at maxSteps. If trials have ended by themselves, it ends where a random one of those did.
- Values. The rest of a curve continues like that of a random trial that is further. Beyond the furthest one it
  flattens. Values matter only for what the policy does with a trial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.non_finite import diverged
from podium_core.domain.phase import TrialPhase
from podium_simulator.expected.histories import SearchHistory, TrialHistory
from podium_simulator.traces.trace import RecordedTrial

PRIOR_SPREAD = 0.25  # of the logarithm of a step's seconds, between trials of one search
PRIOR_WEIGHT = 3
OWN_SPREAD = 0.03  # of the logarithm of a trial's own pace, between its past and its future
# of the logarithm of all paces of a sample: what a simulation misses; forecasts of real searches were up to 15 % off
COMMON_SPREAD = 0.05
FURTHER = 0.1  # share of the rest of a trial's training by which another trial must be further to lend its curve
SHORTEST = 1e-6  # seconds between two evaluations: they must increase
Random = np.random.Generator
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pace:
    """Distribution of the logarithm of a step's seconds between the trials of a search.

    `known`: number of paces that it comes from.
    """

    mean: float
    spread: float
    known: int


def pace_of(search: SearchHistory, step_seconds: float | None) -> Pace | None:
    """Return the paces of a search; None if no trial has made a step and `step_seconds` is not given."""
    logs = [math.log(pace) for pace in search.paces]
    if not logs:
        return None if step_seconds is None else Pace(math.log(step_seconds), 0.0, 0)
    count, mean = len(logs), math.fsum(logs) / len(logs)
    squares = math.fsum((one - mean) ** 2 for one in logs)
    return Pace(mean, math.sqrt((squares + PRIOR_WEIGHT * PRIOR_SPREAD**2) / (count - 1 + PRIOR_WEIGHT)), count)


def ends_at(search: SearchHistory) -> tuple[float, ...]:
    """Return the steps at which a trial may end; empty if that is not known."""
    own = [t.steps[-1] for t in search.trials if t.ended is TrialPhase.SUCCEEDED and t.steps]
    most = search.view.max_steps
    if most is None:
        return tuple(own)
    return tuple(min(one, most) for one in own) or (most,)


def draw_futures(
    search: SearchHistory, pace: Pace, ends: Sequence[float], points: int, random: Random
) -> tuple[RecordedTrial, ...]:
    """Return the whole curve of each trial by number: what is known of it, then a sample of the rest.

    `points`: number of evaluations of a whole trial.
    """
    by_number = {trial.number: trial for trial in search.trials}
    common = COMMON_SPREAD * float(random.standard_normal())
    mean = pace.mean + common
    if pace.known:
        freedom = pace.known - 1 + PRIOR_WEIGHT
        mean += float(random.standard_t(freedom)) * pace.spread / math.sqrt(pace.known)
    donors = [t for t in search.trials if len(t.steps) > 1 and not any(map(diverged, t.values))]
    curves = []
    for number in range(max([search.view.limits.max_trials, *(n + 1 for n in by_number)])):
        trial = by_number.get(number, TrialHistory(number))
        if trial.ended is not None:
            curves.append(_known(trial, (), (), ()))
            continue
        own = trial.pace
        if own is None:
            rate = math.exp(mean + pace.spread * float(random.standard_normal()))
        else:
            rate = own * math.exp(common + OWN_SPREAD * float(random.standard_normal()))
        end = ends[int(random.integers(len(ends)))]
        curves.append(_future(trial, search, donors, (end, rate, points), random))
    return tuple(curves)


def _future(
    trial: TrialHistory,
    search: SearchHistory,
    donors: Sequence[TrialHistory],
    shape: tuple[float, float, int],
    random: Random,
) -> RecordedTrial:
    """Return the curve of a live trial with a sampled rest. `shape`: its last step, pace and number of points."""
    end, rate, points = shape
    done = trial.steps[-1] if trial.steps else 0.0
    since = trial.trained - (trial.seconds[-1] if trial.seconds else 0.0)  # training since its last value
    end = max(end, done + max(SHORTEST, since / rate * 1.01) if rate > 0.0 else done + SHORTEST)
    count = max(1, round(points * (end - done) / end))
    steps = [done + (end - done) * (index + 1) / count for index in range(count)]
    values = _values(trial, np.array(steps), donors, search.view.maximize, random)
    begin = trial.seconds[-1] if trial.seconds else (search.start_seconds or 0.0)
    seconds = [
        max(begin + (step - done) * rate, trial.trained + SHORTEST * place) for place, step in enumerate(steps, 1)
    ]
    return _known(trial, steps, values.tolist(), seconds)


def _known(
    trial: TrialHistory, steps: Sequence[float], values: Sequence[float], seconds: Sequence[float]
) -> RecordedTrial:
    """Return the known part of a curve, continued; its seconds strictly increase."""
    raw = [*trial.seconds, *seconds] or [max(SHORTEST, trial.trained)]
    rising = [max(SHORTEST, raw[0])]
    for one, after in pairwise(raw):
        rising.append(max(after, rising[-1] + min(SHORTEST, abs(after - one) or SHORTEST)))
    return RecordedTrial(
        name=trial.name or str(trial.number),
        hparams=MappingProxyType(dict(trial.parameters or {})),
        seconds=tuple(rising),
        values=(*trial.values, *values) or (0.0,),
        steps=(*trial.steps, *steps) or (1.0,),
    )


def _values(
    trial: TrialHistory, steps: Floats, donors: Sequence[TrialHistory], maximize: bool, random: Random
) -> Floats:
    """Return sampled values at these steps, which continue the trial's own curve."""
    if trial.values and diverged(trial.values[-1]):
        return np.full(len(steps), trial.values[-1])
    done = trial.steps[-1] if trial.steps else 0.0
    further = [d for d in donors if d is not trial and d.steps[-1] >= done + FURTHER * (steps[-1] - done)]
    fade = float(random.uniform(0.3, 1.2))
    if further:
        donor = further[int(random.integers(len(further)))]
        grown = _extended(donor, np.concatenate(([done], steps)), fade)
        start = trial.values[-1] if trial.values else grown[0]
        return np.asarray(start + grown[1:] - grown[0])
    if len(trial.steps) > 1:
        return _extended(trial, steps, fade)
    # nothing is known of any curve: some curve that improves
    height = float(random.uniform(0.5, 1.0)) * (1.0 if maximize else -1.0)
    start = trial.values[-1] if trial.values else 0.0
    return np.asarray(start + height * (1.0 - 1.0 / (1.0 + steps)))


def _extended(donor: TrialHistory, steps: Floats, fade: float) -> Floats:
    """Return a curve at any steps: interpolated, and beyond its end flattening from its last doubling of steps."""
    known, values = np.array(donor.steps), np.array(donor.values)
    last, value = known[-1], values[-1]
    gain = value - float(np.interp(last / 2.0, known, values))
    inside = np.interp(steps, known, values)
    beyond: Floats = value + fade * gain * (1.0 - last / np.maximum(steps, last))
    rest: Floats = np.where(steps <= last, inside, beyond)
    return rest
