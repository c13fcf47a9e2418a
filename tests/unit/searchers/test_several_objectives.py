"""Proposals for a job with several objectives: the learning algorithms find the trade-off, the others do not change."""

from __future__ import annotations

import math
from typing import Any

import pytest

from podium_core.schema.job import JobSpec
from podium_searchers.base import Proposal, TrialResult
from podium_searchers.registry import SEARCHERS, missing_packages
from podium_searchers.search import propose

PAIR = [{"metric": "acc", "direction": "maximize"}, {"metric": "podium.dev/gpu-seconds", "direction": "minimize"}]
LEARNING = [name for name in ("auto", "tpe") if not missing_packages(name)]
ALL = [name for name in ("auto", "grid", "qmc", "random", "tpe") if not missing_packages(name)]


def spec(algorithm: str, **changes: Any) -> JobSpec:
    step = {"step": 0.125} if algorithm == "grid" else {}
    return JobSpec.model_validate(
        {
            "objectives": PAIR,
            "policy": {"name": "pareto"},
            "parameters": [{"name": name, "min": 0.0, "max": 1.0, **step} for name in ("x", "y")],
            "search": {"algorithm": algorithm, "seed": 1},
            "trials": {"max": 80, "maxSteps": 10},
            "template": {"spec": {"containers": [{"name": "train"}]}},
            **changes,
        }
    )


def result(number: int, point: Proposal) -> TrialResult:
    """Return a completed trial: x trades accuracy for cost, and y away from 0.5 makes both worse."""
    x, off = float(point["x"]), abs(float(point["y"]) - 0.5)
    return TrialResult(number, point, step=10.0, value=x - off, completed=True, values=(x - off, 50.0 * (x + off)))


def run(job: JobSpec, trials: int) -> list[tuple[float, float]]:
    tried: list[TrialResult] = []
    for number in range(trials):
        point = propose(job, number, tried)
        assert point is not None
        tried.append(result(number, point))
    return [(float(one.parameters["x"]), float(one.parameters["y"])) for one in tried]


@pytest.mark.parametrize("algorithm", LEARNING)
def test_an_algorithm_that_learns_approaches_the_front_and_keeps_its_width(algorithm: str) -> None:
    late = run(spec(algorithm), 60)[30:]
    assert sum(abs(y - 0.5) for _, y in late) / len(late) < 0.15, "random points have a mean of 0.25"
    assert max(x for x, _ in late) - min(x for x, _ in late) > 0.5


@pytest.mark.parametrize("algorithm", ALL)
def test_the_same_results_give_the_same_proposals(algorithm: str) -> None:
    assert run(spec(algorithm), 12) == run(spec(algorithm), 12)


@pytest.mark.parametrize("algorithm", LEARNING)
def test_unfinished_failed_and_incomplete_trials_do_not_break_a_proposal(algorithm: str) -> None:
    job = spec(algorithm, search={"algorithm": algorithm, "settings": {"startupTrials": 2}})
    done = [result(number, {"x": number / 8, "y": 0.4}) for number in range(6)]
    others = [
        TrialResult(6, {"x": 0.5, "y": 0.5}),
        TrialResult(7, {"x": 0.5, "y": 0.1}, step=3.0, value=0.2, values=(0.2, math.nan)),
        TrialResult(8, {"x": 0.5, "y": 0.2}, step=3.0, value=0.2, failed=True, values=(math.nan, math.nan)),
        TrialResult(9, {"x": 0.9, "y": 0.9}, step=10.0, value=0.2, completed=True, values=(0.2, math.nan)),
        TrialResult(10, {"x": 3.0, "y": 0.9}, step=10.0, value=0.2, completed=True, values=(0.2, 1.0)),
    ]
    point = SEARCHERS[algorithm].propose(job, 11, [*done, *others])
    assert point is not None
    assert all(0.0 <= float(value) <= 1.0 for value in point.values())


def test_auto_never_takes_cmaes() -> None:
    tried = [result(number, {"x": number % 8 / 8, "y": number % 7 / 7}) for number in range(60)]
    assert SEARCHERS["auto"].propose(spec("auto"), 60, tried) == SEARCHERS["tpe"].propose(spec("tpe"), 60, tried)
