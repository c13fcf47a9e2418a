"""CPU time of a tick of each policy: 1,000 trials, some of which have reported since the previous tick.

There are two kinds of search. A young one has whole curves of up to 39 points. A long one has up to 200 evaluations,
thinned as an agent writes them and read again from a status at each new value, and three parameters; none or 200 of its
trials are complete. Ticks follow after 1 and after 8 new values. The bar is for one new value.

A part of bench_hpo; alone: `python -m benchmarks.hpo.speed`. Both end with status 1 where the bar is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import process_time

import numpy as np

from benchmarks.command_line import Parser
from podium_core.curves.curve_table import empty_cache
from podium_core.curves.thinning import Grid, thin
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import JobView, Point, Scalar, Snapshot, TrialView
from podium_core.policies.base import Policy
from podium_core.policies.registry import NAMES, create
from podium_core.testing.builders import change_trial, make_gpu, make_job, make_snapshot, make_trial

TRIALS, RUNNING, TICKS = 1000, 8, 60
BAR = 1000  # microseconds
GRID = Grid(maximize=True)
KEY = "microseconds_per_tick_of_1000_trials"  # in RESULT


@dataclass(frozen=True)
class Search:
    """`steps`: one more than a suspended trial has reported at most; `horizon`: steps of a whole trial.

    `complete`: how many trials are complete.
    """

    steps: int
    horizon: int
    long: bool
    complete: int = 0


YOUNG, LONG, LATE = Search(40, 160, long=False), Search(200, 200, long=True), Search(200, 200, long=True, complete=200)
CASES = {
    "young, 1 new value": (YOUNG, 1),
    "long, 1 new": (LONG, 1),
    f"{LATE.complete} complete, 1 new": (LATE, 1),
    "long, 8 new": (LONG, 8),
    f"{LATE.complete} complete, 8 new": (LATE, 8),
}


def speed_report(outcome: dict[str, object]) -> str:
    """Return the median microseconds of a tick as Markdown; add them to `outcome`."""
    lines = [f"## Cost of a tick ({TRIALS} trials): median microseconds\n"]
    lines += [f"| policy | {' | '.join(CASES)} |", f"| --- |{' --- |' * len(CASES)}"]
    scenes = {search: trials_of(search) for search in (YOUNG, LONG, LATE)}
    micros: dict[str, dict[str, int]] = {case: {} for case in CASES}
    for name in NAMES:
        for case, (search, new) in CASES.items():
            micros[case][name] = round(1e6 * tick(create(name, {}), search, scenes[search], new))
        lines.append(f"| {name} | {' | '.join(str(micros[case][name]) for case in CASES)} |")
    outcome[KEY] = micros
    lines.append(
        f"\nYoung: up to {YOUNG.steps - 1} of {YOUNG.horizon} steps, no parameters. Long: up to {LONG.steps} steps, "
        f"curves thinned to {max(len(trial.curve) for trial in scenes[LATE])} points at most, three parameters."
    )
    over = over_the_bar(outcome)
    lines.append(
        f"The bar of {BAR / 1000:g} ms, for one new value, "
        + (f"is missed by {', '.join(over)}." if over else "holds for all.")
    )
    beyond = sorted({name for case, (_, new) in CASES.items() if new > 1 for name in _slow(micros[case])})
    lines.append(f"After 8 new values at once a tick takes longer than that for {', '.join(beyond) or 'none'}.")
    return "\n".join(lines) + "\n"


def over_the_bar(outcome: dict[str, object]) -> list[str]:
    """Return the policies whose tick after one new value takes too long; none where nothing was measured."""
    measured = outcome.get(KEY, {})
    assert isinstance(measured, dict)
    return sorted({name for case in measured if CASES[case][1] == 1 for name in _slow(measured[case])})


def _slow(by_policy: dict[str, int]) -> list[str]:
    return [name for name, micros in by_policy.items() if micros >= BAR]


def tick(policy: Policy, search: Search, scene: Sequence[TrialView], new: int) -> float:
    """Return the median seconds of one `rank` with a warm cache.

    The result is read whole, as the planner reads it, with 8 messages.
    """
    random = np.random.default_rng(1)
    job = make_job(policy=policy.name, max_trials=TRIALS, max_steps=float(search.horizon), parallel=TRIALS)
    gpus = [make_gpu(f"gpu-{i}") for i in range(RUNNING)]
    views, taken = list(scene), []
    with empty_cache():
        for number in range(TICKS):
            snapshot = make_snapshot(now=1e4 + number, jobs=[job], trials=views, gpus=gpus)
            taken.append(_one_tick(policy, job, snapshot))
            for i in range(RUNNING) if new == RUNNING else random.integers(RUNNING, size=new).tolist():
                views[i] = _with_new_value(views[i], search, random, snapshot.now)
    return median(taken[10:])


def _one_tick(policy: Policy, job: JobView, snapshot: Snapshot) -> float:
    live = [trial for trial in snapshot.trials if trial.phase is not TrialPhase.SUCCEEDED]
    asked = live if len(live) < len(snapshot.trials) else snapshot.trials
    start = process_time()
    ranking = tuple(policy.rank(job, asked, snapshot))
    for i in range(RUNNING):
        assert ranking[i].message
    return process_time() - start


def trials_of(search: Search) -> list[TrialView]:
    """Return the trials of a search.

    The first eight run, some are new or complete, the others are suspended along their curves.
    """
    random = np.random.default_rng(0)
    return [_trial(number, search, random) for number in range(TRIALS)]


def _trial(number: int, search: Search, random: np.random.Generator) -> TrialView:
    reported = 0 if number % 5 == 4 else int(random.integers(1, search.steps))
    phase = TrialPhase.SUSPENDED if reported else TrialPhase.GATED
    if number < RUNNING:
        phase = TrialPhase.RUNNING
        reported = min(reported, search.horizon - TICKS)  # it reports one more step in each tick
    elif number % 5 == 1 and number < RUNNING + 5 * search.complete:
        phase, reported = TrialPhase.SUCCEEDED, search.horizon
    level, speed = random.uniform(0.5, 0.9), random.uniform(0.05, 0.5) * 40 / search.steps
    noise = random.normal(0.0, 0.01, reported)
    values = (level * (1.0 - np.exp(-speed * np.arange(1, reported + 1))) + noise).tolist()
    trial = make_trial(number, values=values, phase=phase, gpus=["gpu-0"], gpu_seconds=float(reported))
    if not search.long:
        return trial
    parameters: dict[str, Scalar] = {
        "batch": int(2 ** random.integers(4, 9)),
        "decay": float(random.uniform(0.0, 0.1)),
        "rate": float(10 ** random.uniform(-5.0, -1.0)),
    }
    return change_trial(trial, curve=thin(trial.curve, GRID), parameters=parameters)


def _with_new_value(trial: TrialView, search: Search, random: np.random.Generator, now: float) -> TrialView:
    last = trial.curve[-1] if trial.curve else Point(0.0, 0.3, now)
    curve = (*trial.curve, Point(last.step + 1.0, last.value + float(random.normal(0.005, 0.01)), now))
    if search.long:  # a status that is read again has points of its own
        curve = tuple(map(replace, thin(curve, GRID)))
    return change_trial(trial, curve=curve, gpu_seconds=trial.usage.gpu_seconds + 1.0)


def main() -> int:
    Parser(__doc__).parse_args()
    outcome: dict[str, object] = {}
    print(speed_report(outcome))
    return 1 if over_the_bar(outcome) else 0


if __name__ == "__main__":
    sys.exit(main())
