"""What a tick of each policy costs: 1,000 trials, one of which has reported since the tick before.

A part of `make bench-hpo`; alone: `python benchmarks/hpo_speed.py`. Either ends with status 1 where the bar is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from time import process_time

import numpy as np

from podium.domain.phase import TrialPhase
from podium.domain.snapshot import JobView, Point, Snapshot, TrialView
from podium.policies.base import Policy
from podium.policies.registry import NAMES, create
from podium.testing.builders import make_gpu, make_job, make_snapshot, make_trial

TRIALS, POINTS, TICKS = 1000, 40, 60
BAR = 1000  # microseconds


def speed_report(outcome: dict[str, object]) -> str:
    """Markdown."""
    lines = [f"## Cost of a tick ({TRIALS} trials, one new value)\n", "| policy | microseconds a tick (median) |"]
    lines.append("| --- | --- |")
    found: dict[str, int] = {}
    for name in NAMES:
        found[name] = round(1e6 * tick(create(name, {})))
        lines.append(f"| {name} | {found[name]} |")
    outcome["microseconds_a_tick_of_1000_trials"] = found
    over = over_the_bar(outcome)
    lines.append(
        f"\nThe bar of {BAR / 1000:g} ms " + (f"is missed by {', '.join(over)}." if over else "holds for all.")
    )
    return "\n".join(lines) + "\n"


def over_the_bar(outcome: dict[str, object]) -> list[str]:
    """The policies whose tick costs too much; none where nothing was measured."""
    found = outcome.get("microseconds_a_tick_of_1000_trials", {})
    assert isinstance(found, dict)
    return [name for name, micros in found.items() if micros >= BAR]


def main() -> int:
    outcome: dict[str, object] = {}
    print(speed_report(outcome))
    return 1 if over_the_bar(outcome) else 0


def tick(policy: Policy, trials: int = TRIALS) -> float:
    """Median seconds of one `rank` and of reading its first 8 entries, with the board warm."""
    random = np.random.default_rng(0)
    job = make_job(policy=policy.name, max_trials=trials, max_steps=float(4 * POINTS), parallel=trials)
    views = [_trial(number, random) for number in range(trials)]
    gpus = [make_gpu(f"gpu-{i}") for i in range(8)]
    grow = _grower(views, random)
    taken = []
    for number in range(TICKS):
        snapshot = make_snapshot(now=1e4 + number, jobs=[job], trials=views, gpus=gpus)
        start = process_time()
        ranking = policy.rank(job, snapshot.trials, snapshot)
        for place in range(8):
            assert ranking[place].message
        taken.append(process_time() - start)
        grow(int(random.integers(8)), snapshot, job)
    return median(taken[10:])


def _trial(number: int, random: np.random.Generator) -> TrialView:
    """The first eight run, some are new, the others are suspended at different points of their curves."""
    shown = 0 if number % 5 == 4 else int(random.integers(1, POINTS))
    level, speed = random.uniform(0.5, 0.9), random.uniform(0.05, 0.5)
    values = [float(level * (1.0 - np.exp(-speed * (k + 1))) + random.normal(0.0, 0.01)) for k in range(shown)]
    phase = TrialPhase.RUNNING if number < 8 else TrialPhase.SUSPENDED if shown else TrialPhase.GATED
    return make_trial(number, values=values, phase=phase, gpus=["gpu-0"], gpu_seconds=float(shown))


def _grower(views: list[TrialView], random: np.random.Generator) -> Callable[[int, Snapshot, JobView], None]:
    def grow(number: int, snapshot: Snapshot, job: JobView) -> None:
        old = views[number]
        step = old.curve[-1].step + 1.0 if old.curve else 1.0
        value = (old.curve[-1].value if old.curve else 0.3) + float(random.normal(0.005, 0.01))
        curve = (*old.curve, Point(step, value, snapshot.now))
        views[number] = replace(old, curve=curve, gpu_seconds=old.gpu_seconds + 1.0)

    return grow


if __name__ == "__main__":
    sys.exit(main())
