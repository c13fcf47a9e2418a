"""Statistics of many runs: paired ratios to a baseline, means, worst run, bootstrap intervals.

The benchmarks call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from podium_simulator.replay.metrics import Score

RunKey = tuple[str, int]  # task, seed
METRICS: Mapping[str, Callable[[Score], float | None]] = {
    "time_to_target": lambda s: s.time_to_target,
    "time_to_near_best": lambda s: s.time_to_near_best,
    "time_to_best": lambda s: s.time_to_best,
    "mean_regret": lambda s: s.mean_regret,
    "gpu_seconds_to_best": lambda s: s.gpu_seconds_to_best,
}


@dataclass(frozen=True, slots=True)
class Ratio:
    """Baseline time over the policy's time: above 1 = faster than the baseline.

    `low`, `high`: 95 % bootstrap interval of the geometric mean over runs.
    """

    mean: float
    low: float
    high: float
    worst: float
    best: float
    slower: float  # share of the runs below 1
    runs: int


def ratios(policy_scores: Mapping[RunKey, Score], base: Mapping[RunKey, Score], metric: str) -> dict[RunKey, float]:
    """Return one ratio for each run that both have and where the metric exists."""
    value = METRICS[metric]
    result = {}
    for key, score in policy_scores.items():
        own, base_value = value(score), value(base[key])
        if own is not None and base_value is not None:
            result[key] = base_value / own
    return result


def summary(values: Iterable[float], random: np.random.Generator, draws: int = 1000) -> Ratio | None:
    """Return the summary; None without runs."""
    logs = np.log(np.fromiter(values, dtype=np.float64))
    if not len(logs):
        return None
    means = logs[random.integers(0, len(logs), size=(draws, len(logs)))].mean(axis=1)
    low, high = np.exp(np.quantile(means, [0.025, 0.975]))
    return Ratio(
        mean=float(np.exp(logs.mean())),
        low=float(low),
        high=float(high),
        worst=float(np.exp(logs.min())),
        best=float(np.exp(logs.max())),
        slower=float((logs < 0.0).mean()),
        runs=len(logs),
    )


def by_task(values: Mapping[RunKey, float]) -> dict[str, float]:
    """Return the geometric mean of each task."""
    tasks: dict[str, list[float]] = {}
    for (task, _), value in values.items():
        tasks.setdefault(task, []).append(value)
    return {task: geometric_mean(result) for task, result in tasks.items()}


def geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if values else float("nan")
