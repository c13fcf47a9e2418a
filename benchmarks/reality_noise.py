"""How much of a search hangs on near ties? A simulated search against itself, with other speeds of its trials.

Used by bench_reality. A policy that ranks by every second of GPU time decides otherwise when a trial is a little
slower, and all that follows is another course. What the simulation of a search does to its own repetition no
simulation can do better to the cluster's: the share of repetitions that keep the bars is the bound of what to expect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from reality_compare import Comparison, Search, ends_of, likened, stopped_in, turns_of

from podium_simulator.system.engine import simulate
from podium_simulator.system.scenario import Scenario
from podium_simulator.traces.trace import RecordedTrial

REPEATS = 10
NOISES = (0.01, 0.02)  # of each trial's speed, standard deviation


@dataclass(frozen=True, slots=True)
class Repeated:
    """The simulation of a search, against itself with each trial's speed a little other; by noise."""

    again: dict[float, tuple[Comparison, ...]]

    def rows(self, number: int) -> list[str]:
        return [_row(number, noise, found) for noise, found in self.again.items()]


def repeated(search: Search) -> Repeated:
    """Deterministic: the noise of the n-th repetition is that of seed n."""
    first = simulate(search.scenario)
    turns, ends, early = turns_of(first), ends_of(first), stopped_in(first)

    def against(noise: float) -> tuple[Comparison, ...]:
        others = (noisy(search.scenario, noise, seed) for seed in range(REPEATS))
        return tuple(likened(turns, ends, early, simulate(other)) for other in others)

    return Repeated({noise: against(noise) for noise in NOISES})


def noisy(scenario: Scenario, noise: float, seed: int) -> Scenario:
    random = np.random.default_rng(seed)
    jobs = tuple(
        replace(job, curves=tuple(_at(curve, 1.0 + noise * float(random.standard_normal())) for curve in job.curves))
        for job in scenario.jobs
    )
    return replace(scenario, jobs=jobs)


def _at(curve: RecordedTrial, pace: float) -> RecordedTrial:
    return replace(curve, seconds=tuple(pace * second for second in curve.seconds))


def _row(number: int, noise: float, found: Sequence[Comparison]) -> str:
    taus = sorted(one.tau for one in found)
    tau = f"{median(taus):.3f} ({taus[0]:.3f} to {taus[-1]:.3f})"
    worst = f"{median(one.error(0.9) for one in found):.1%}"
    return f"| {number} | {noise:.0%} | {tau} | {worst} | {sum(one.held for one in found)} of {len(found)} |"


def result(found: Sequence[Repeated]) -> dict[str, object]:
    """By noise: of how many repetitions, of all searches together, all bars hold."""
    held = {noise: sum(other.held for one in found for other in one.again[noise]) for noise in NOISES}
    return {"repeats": REPEATS * len(found), "held": {f"{noise:g}": count for noise, count in held.items()}}


def section(found: Sequence[Repeated]) -> list[str]:
    """Markdown."""
    return [
        "\n## How much hangs on near ties\n",
        f"Each simulated search against itself, {REPEATS} times, with each trial's speed a little other (standard",
        "deviation given): no simulation can be more like a run on the cluster than that run is like its repetition.\n",
        "| search | speeds | tau, median (range) | p90 error, median | all bars kept |",
        "| --- | --- | --- | --- | --- |",
        *(row for number, one in enumerate(found) for row in one.rows(number)),
    ]
