"""Policy pareto: warm-up, then the front of each trial, then the sparser region; ended trials count."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Costs, TrialView
from podium_core.policies.base import Ranked
from podium_core.policies.pareto import Pareto
from podium_core.testing.builders import change_trial, make_job, make_snapshot, make_trial

UP_AND_DOWN = replace(make_job(policy="pareto", max_steps=10.0), directions=(True, False))
LONG = [0.1, 0.2, 0.3]


def trial(
    number: int,
    values: tuple[float, ...],
    curve: list[float] | None = None,
    phase: TrialPhase = TrialPhase.SUSPENDED,
) -> TrialView:
    made = make_trial(number, values=LONG if curve is None else curve, gpu_seconds=1.0, phase=phase)
    return change_trial(made, objective_values=values)


def ranked(*trials: TrialView, warmup: int = 3) -> list[Ranked]:
    live = [one for one in trials if one.phase is not TrialPhase.SUCCEEDED]
    snapshot = make_snapshot(jobs=[UP_AND_DOWN], trials=trials)
    return list(Pareto(warmup).rank(UP_AND_DOWN, live, snapshot))


def names(ranking: list[Ranked]) -> list[str]:
    return [one.trial.name for one in ranking]


def test_the_front_goes_first_then_what_it_dominates() -> None:
    ranking = ranked(trial(0, (0.5, 9.0)), trial(1, (0.9, 8.0)), trial(2, (0.4, 2.0)), trial(3, (0.4, 10.0)))
    assert names(ranking) == ["job-1", "job-2", "job-0", "job-3"]
    assert [one.reason for one in ranking] == ["NonDominated", "NonDominated", "Dominated", "Dominated"]
    assert ranking[3].message.endswith("it is in front 3 of 3.")


def test_within_a_front_the_sparser_region_goes_first() -> None:
    front = [(0.1, 1.0), (0.2, 2.0), (0.25, 2.5), (0.9, 9.0)]
    ranking = ranked(*(trial(number, values) for number, values in enumerate(front)))
    assert names(ranking) == ["job-0", "job-3", "job-2", "job-1"]


def test_a_trial_that_an_ended_one_dominates_goes_behind_one_that_none_dominates() -> None:
    ended = trial(2, (0.8, 1.0), phase=TrialPhase.SUCCEEDED)
    ranking = ranked(trial(0, (0.7, 1.5)), trial(1, (0.9, 3.0)), ended)
    assert names(ranking) == ["job-1", "job-0"]


def test_the_warm_up_comes_first_and_a_trial_without_a_value_last() -> None:
    ranking = ranked(
        trial(0, (math.nan, 1.0)), trial(1, (0.5, 1.0)), trial(2, (0.9, 1.5), [0.9]), trial(3, (math.nan,) * 2, [])
    )
    assert names(ranking) == ["job-2", "job-3", "job-1", "job-0"]
    assert [one.reason for one in ranking] == ["WarmUp", "WarmUp", "NonDominated", "ValueMissing"]


def test_only_a_better_front_is_worth_a_switch() -> None:
    dense = [(number / 10, float(number)) for number in range(8)]
    front = ranked(*(trial(number, values) for number, values in enumerate([*dense, (0.0, 99.0)])))
    scores = [one.score for one in front if one.reason == "NonDominated"]
    assert 0.0 < max(scores) - min(scores) < Pareto.hysteresis
    assert min(scores) - front[-1].score > Pareto.hysteresis


def test_one_objective_ranks_by_the_last_value() -> None:
    job = make_job(policy="pareto", max_steps=10.0)
    trials = [make_trial(number, values=[0.1, 0.2, last]) for number, last in enumerate((0.3, 0.5, 0.4))]
    assert names(list(Pareto().rank(job, trials, make_snapshot(jobs=[job], trials=trials)))) == [
        "job-1",
        "job-2",
        "job-0",
    ]


def test_a_negative_warm_up_is_refused() -> None:
    with pytest.raises(ValueError, match="warmup: -1 is not a number of points; give 0 or more"):
        Pareto(-1)


def test_time_slices_grow_with_the_costs() -> None:
    assert Pareto().time_slice(Costs(0.0, 0.0, 0.0)) == 2.0
    assert Pareto().time_slice(Costs(1.0, 1.0, 5.0)) == 20.0
