"""Values of several objectives for one trial, and the Pareto front of a job."""

from __future__ import annotations

import math
from typing import Any

import pytest

from podium_core.curves.non_finite import to_wire
from podium_core.domain.phase import TrialPhase
from podium_core.objectives.front import Candidate, pareto_front
from podium_core.objectives.values import Measured, directions, objective_values
from podium_core.schema.job import GPU_SECONDS, JobSpec
from podium_core.schema.job_status import MAX_FRONT

P = TrialPhase


def spec(*objectives: tuple[str, str], max_steps: float | None = 10.0) -> JobSpec:
    manifest: dict[str, Any] = {
        "objectives": [{"metric": metric, "direction": direction} for metric, direction in objectives],
        "policy": {"name": "pareto"},
        "parameters": [{"name": "lr", "min": 0.1, "max": 1.0}],
        "trials": {"max": 4, "maxSteps": max_steps},
        "template": {"spec": {"containers": [{"name": "train"}]}},
    }
    return JobSpec.model_validate(manifest)


COST = spec(("acc", "maximize"), (GPU_SECONDS, "minimize"))
SIZE = spec((GPU_SECONDS, "minimize"), ("params", "minimize"), ("acc", "maximize"))


def measured(phase: TrialPhase = P.RUNNING, step: float | None = 5.0, value: float | None = 0.8) -> Measured:
    return Measured(phase, step, value, gpu_seconds=20.0, additional={"acc": 0.7})


def test_the_curve_is_that_of_the_first_printed_objective_and_the_others_are_additional() -> None:
    assert COST.objective.metric == "acc"
    assert COST.objective.additional_metrics == []
    assert SIZE.objective.metric == "params"
    assert SIZE.objective.additional_metrics == ["acc"]
    assert SIZE.objective.target is None
    assert directions(SIZE) == (False, False, True)


def test_values_are_in_the_order_of_the_objectives_and_the_cost_is_that_of_a_whole_trial() -> None:
    assert objective_values(COST, measured()) == (0.8, 40.0)
    assert objective_values(SIZE, measured()) == (40.0, 0.8, 0.7)
    assert objective_values(COST, measured(P.SUCCEEDED)) == (0.8, 20.0), "it ended before maxSteps, by itself"
    assert objective_values(COST, measured(step=12.0)) == (0.8, 20.0), "it is beyond maxSteps"


@pytest.mark.parametrize("phase", [P.RUNNING, P.SUSPENDED, P.EARLY_STOPPED])
def test_without_max_steps_the_cost_is_not_known_before_the_trial_succeeds(phase: TrialPhase) -> None:
    """A barely started trial would otherwise be the cheapest, and in the front for good."""
    endless = spec(("acc", "maximize"), (GPU_SECONDS, "minimize"), max_steps=None)
    begun = Measured(phase, last_step=1.0, last_value=0.1, gpu_seconds=1.0)
    assert objective_values(endless, begun) == (0.1, pytest.approx(math.nan, nan_ok=True))
    assert objective_values(endless, measured(P.SUCCEEDED)) == (0.8, 20.0)
    both = [Candidate.of(endless, "begun", begun), Candidate.of(endless, "whole", measured(P.SUCCEEDED))]
    assert [one.trial for one in pareto_front(endless, both)] == ["whole"]


@pytest.mark.parametrize(
    ("seen", "known"),
    [
        (Measured(P.GATED, None, None, gpu_seconds=0.0), (False, False)),
        (measured(value=math.nan), (False, True)),
        (measured(value=to_wire(math.inf, maximize=True)), (False, True)),
        (measured(P.FAILED), (False, False)),
        (measured(P.KILLED), (False, False)),
        (measured(P.EARLY_STOPPED), (True, True)),
    ],
)
def test_what_is_not_known_is_nan(seen: Measured, known: tuple[bool, bool]) -> None:
    assert tuple(map(math.isfinite, objective_values(COST, seen))) == known


def test_a_job_with_one_objective_has_neither_values_nor_a_front() -> None:
    manifest = COST.model_dump(by_alias=True, exclude_none=True, exclude={"objectives", "policy"})
    one = JobSpec.model_validate({**manifest, "objective": {"metric": "acc", "direction": "maximize"}})
    assert objective_values(one, measured()) == ()
    assert directions(one) == ()
    assert pareto_front(one, [Candidate.of(one, "a", measured())]) == []


def test_the_front_lists_what_nothing_dominates_the_best_in_the_first_objective_first() -> None:
    trials = [
        Candidate("a", 5.0, (0.8, 40.0)),
        Candidate("b", 5.0, (0.9, 60.0)),
        Candidate("c", 5.0, (0.7, 50.0)),
        Candidate("d", 0.0, (0.99, math.nan)),
        Candidate("e", 9.0, (0.6, 10.0)),
    ]
    front = pareto_front(COST, trials)
    assert [(one.trial, one.step, one.values) for one in front] == [
        ("b", 5.0, [0.9, 60.0]),
        ("a", 5.0, [0.8, 40.0]),
        ("e", 9.0, [0.6, 10.0]),
    ]


def test_a_long_front_keeps_its_ends_and_the_most_spread() -> None:
    dense = [Candidate(f"d{number}", 1.0, (0.5 + number / 1e4, 50.0 + number / 100)) for number in range(100)]
    sparse = [Candidate(f"s{number}", 1.0, (0.51 + number / 100, 60.0 + number)) for number in range(1, 40)]
    front = pareto_front(COST, [*dense, *sparse])
    kept = {one.trial for one in front}
    assert len(front) == MAX_FRONT
    assert {"d0", "s39"} <= kept
    assert {one.name for one in sparse} <= kept
