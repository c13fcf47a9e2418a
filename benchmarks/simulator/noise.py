"""How much of a search depends on near ties: a simulated search against itself with slightly different trial speeds.

A policy that ranks by every second of GPU time decides differently when one trial is a little slower, and everything
after that differs too. A simulation cannot resemble the cluster's run more than it resembles its own repetition. So the
share of repetitions that keep the bars bounds what bench_reality can reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from benchmarks.simulator.comparison import Comparison, Search, compare, ends_of, slices_of, stopped_in
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Scenario
from podium_simulator.traces.trace import RecordedTrial

REPEATS = 10
NOISES = (0.01, 0.02)  # of each trial's speed, standard deviation


@dataclass(frozen=True, slots=True)
class Repeated:
    """A simulated search against itself with slightly different trial speeds, by noise."""

    by_noise: dict[float, tuple[Comparison, ...]]

    def rows(self, number: int) -> list[str]:
        """Return one row of the table for each noise."""
        return [_row(number, noise, comparisons) for noise, comparisons in self.by_noise.items()]


def repeated(search: Search) -> Repeated:
    """Repeat a simulated search with noise. It is deterministic: repetition n has the noise of seed n."""
    first = simulate(search.scenario)
    slices, ends, early = slices_of(first), ends_of(first), stopped_in(first)

    def against(noise: float) -> tuple[Comparison, ...]:
        others = (noisy(search.scenario, noise, seed) for seed in range(REPEATS))
        return tuple(compare(slices, ends, early, simulate(other)) for other in others)

    return Repeated({noise: against(noise) for noise in NOISES})


def noisy(scenario: Scenario, noise: float, seed: int) -> Scenario:
    """Return the scenario with each trial's speed changed by a normal factor of this standard deviation."""
    random = np.random.default_rng(seed)
    jobs = tuple(
        replace(job, curves=tuple(_at(curve, 1.0 + noise * float(random.standard_normal())) for curve in job.curves))
        for job in scenario.jobs
    )
    return replace(scenario, jobs=jobs)


def _at(curve: RecordedTrial, pace: float) -> RecordedTrial:
    return replace(curve, seconds=tuple(pace * second for second in curve.seconds))


def _row(number: int, noise: float, comparisons: Sequence[Comparison]) -> str:
    taus = sorted(one.tau for one in comparisons)
    tau = f"{median(taus):.3f} ({taus[0]:.3f} to {taus[-1]:.3f})"
    worst = f"{median(one.error(0.9) for one in comparisons):.1%}"
    return (
        f"| {number} | {noise:.0%} | {tau} | {worst} | {sum(one.held for one in comparisons)} of {len(comparisons)} |"
    )


def result(searches: Sequence[Repeated]) -> dict[str, object]:
    """Return for each noise in how many repetitions, of all searches together, all bars hold."""
    held = {noise: sum(other.held for one in searches for other in one.by_noise[noise]) for noise in NOISES}
    return {"repeats": REPEATS * len(searches), "held": {f"{noise:g}": count for noise, count in held.items()}}


def section(searches: Sequence[Repeated]) -> list[str]:
    """Return the section of the page."""
    return [
        "\n## How much depends on near ties\n",
        f"Each simulated search against itself, {REPEATS} times, with slightly different trial speeds (standard",
        "deviation given). A simulation cannot resemble a run on the cluster more than that run resembles its own",
        "repetition.\n",
        "| search | speeds | tau, median (range) | p90 error, median | all bars kept |",
        "| --- | --- | --- | --- | --- |",
        *(row for number, one in enumerate(searches) for row in one.rows(number)),
    ]
