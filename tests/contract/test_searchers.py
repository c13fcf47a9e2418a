"""Contract of every searcher: proposals lie in the search space and depend on the trial's number alone."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pytest

from podium_core.schema.job import JobSpec, Search
from podium_core.schema.search_settings import KNOWN, learns
from podium_searchers.base import TrialResult
from podium_searchers.random import RandomSearcher
from podium_searchers.registry import SEARCHERS

LR = {"name": "lr", "min": 1e-4, "max": 1e-1, "scale": "log"}
MOMENTUM = {"name": "momentum", "min": 0.0, "max": 0.9}
DROPOUT = {"name": "dropout", "min": 0.0, "max": 0.5, "step": 0.1}
WIDTH = {"name": "width", "type": "int", "min": 16, "max": 96, "step": 16}
UNITS = {"name": "units", "type": "int", "min": 1, "max": 1024, "scale": "log"}
DEPTH = {"name": "depth", "type": "int", "min": 1, "max": 4}
BATCH = {"name": "batch", "values": [16, 32, 64]}
ACTIVATION = {"name": "activation", "values": ["relu", "tanh"]}
NESTEROV = {"name": "nesterov", "type": "boolean"}
MIXED = {"name": "dropAt", "values": [0.5, "never", True, 3]}

SPACES: dict[str, tuple[dict[str, Any], ...]] = {
    "all kinds": (LR, MOMENTUM, DROPOUT, WIDTH, UNITS, BATCH, ACTIVATION, NESTEROV, MIXED),
    "grid": (DROPOUT, WIDTH, DEPTH, BATCH, ACTIVATION, NESTEROV),
    "one choice": (ACTIVATION,),
}
CASES = [
    ("random", "all kinds"),
    ("random", "grid"),
    ("random", "one choice"),
    ("grid", "grid"),
    ("grid", "one choice"),
    ("tpe", "all kinds"),
    ("tpe", "grid"),
    ("tpe", "one choice"),
]
TRIED = 40  # trials in the history


def make_spec(algorithm: str, parameters: tuple[dict[str, Any], ...], seed: int = 7) -> JobSpec:
    return JobSpec.model_validate(
        {
            "objective": {"metric": "acc", "direction": "maximize"},
            "parameters": list(parameters),
            "search": {"algorithm": algorithm, "seed": seed},
            "trials": {"max": 100, "maxSteps": 10},
            "template": {"spec": {"containers": [{"name": "main", "image": "i"}]}},
        }
    )


def in_range(parameter: dict[str, Any], value: Any) -> bool:
    if "values" in parameter:
        return any(value == choice and type(value) is type(choice) for choice in parameter["values"])
    if parameter.get("type") == "boolean":
        return isinstance(value, bool)
    if parameter.get("type") == "int" and not (isinstance(value, int) and not isinstance(value, bool)):
        return False
    if not parameter["min"] <= value <= parameter["max"] + 1e-12:
        return False
    if "step" not in parameter:
        return True
    steps = (value - parameter["min"]) / parameter["step"]
    return math.isclose(steps, round(steps), abs_tol=1e-9)


def history(spec: JobSpec) -> list[TrialResult]:
    """Return trials in every possible state, at points of the space."""
    trials = []
    for number in range(TRIED):
        parameters = RandomSearcher().propose(spec, number) or {}
        trial = TrialResult(
            number, parameters, step=float(number % 9), value=None if number % 9 == 0 else 1.0 / (1 + number)
        )
        trials.append(replace(trial, completed=number % 3 == 1, failed=number % 7 == 2))
    return trials


def test_every_searcher_is_covered() -> None:
    assert {algorithm for algorithm, _ in CASES} == set(SEARCHERS)
    assert set(KNOWN) == set(SEARCHERS) == set(get_args(Search.model_fields["algorithm"].annotation))


@pytest.mark.parametrize(("algorithm", "space"), CASES)
def test_proposals_lie_in_the_space(algorithm: str, space: str) -> None:
    spec = make_spec(algorithm, SPACES[space])
    tried = history(spec)
    for number in range(60):
        proposal = SEARCHERS[algorithm].propose(spec, number, tried[:number])
        if proposal is None:
            assert algorithm == "grid"
            break
        assert list(proposal) == [parameter["name"] for parameter in SPACES[space]]
        for parameter in SPACES[space]:
            assert in_range(parameter, proposal[parameter["name"]]), (parameter, proposal)


@pytest.mark.parametrize(("algorithm", "space"), CASES)
def test_a_proposal_does_not_depend_on_earlier_calls(algorithm: str, space: str) -> None:
    """A restarted operator requests trial 5 first; an operator that kept running requested 0 to 4 before."""
    spec = make_spec(algorithm, SPACES[space])
    searcher, tried = SEARCHERS[algorithm], history(spec)
    forwards = [searcher.propose(spec, number, tried) for number in range(12)]
    backwards = [searcher.propose(spec, number, tried) for number in reversed(range(12))]
    assert forwards == list(reversed(backwards))


@pytest.mark.parametrize(("algorithm", "space"), CASES)
def test_only_learning_searchers_use_earlier_trials(algorithm: str, space: str) -> None:
    spec = make_spec(algorithm, SPACES[space])
    searcher, tried = SEARCHERS[algorithm], history(spec)
    numbers = range(TRIED, TRIED + 12)
    with_them = [searcher.propose(spec, number, tried) for number in numbers]
    assert (with_them != [searcher.propose(spec, number) for number in numbers]) == learns(spec)


def test_random_proposals_differ_by_number_and_seed() -> None:
    def drawn(seed: int) -> list[tuple[Any, ...]]:
        spec = make_spec("random", (LR, MOMENTUM), seed)
        return [tuple((SEARCHERS["random"].propose(spec, n) or {}).values()) for n in range(200)]

    assert len(set(drawn(1))) == 200
    assert not set(drawn(1)) & set(drawn(2))


def test_random_fills_a_log_range_evenly() -> None:
    spec = make_spec("random", (LR,))
    decades = [math.floor(math.log10(float((SEARCHERS["random"].propose(spec, n) or {})["lr"]))) for n in range(600)]
    counts = [decades.count(decade) for decade in (-4, -3, -2)]
    assert min(counts) > 150, counts


def test_random_proposals_never_change() -> None:
    """A version of Optuna that draws differently would change the trials of a running search."""
    spec = make_spec("random", (LR, WIDTH, BATCH, ACTIVATION))
    known = {"lr": 0.020559531210705438, "width": 32, "batch": 64, "activation": "relu"}
    assert SEARCHERS["random"].propose(spec, 3) == known


def test_grid_proposes_every_combination_once_in_a_fixed_order() -> None:
    spec = make_spec("grid", (DEPTH, ACTIVATION, NESTEROV))
    searcher = SEARCHERS["grid"]
    size = searcher.size(spec)
    assert size == 16
    proposals = [tuple((searcher.propose(spec, number) or {}).values()) for number in range(size)]
    assert proposals == list(product([1, 2, 3, 4], ["relu", "tanh"], [False, True]))
    assert searcher.propose(spec, size) is None
    assert searcher.propose(spec, size + 5) is None


@pytest.mark.parametrize(
    ("parameter", "points"),
    [
        ({"name": "x", "min": 0.0, "max": 0.3, "step": 0.1}, [0.0, 0.1, 0.2, 0.3]),
        ({"name": "x", "min": 0.0, "max": 1.0, "step": 0.4}, [0.0, 0.4, 0.8]),
        ({"name": "x", "type": "int", "min": 2, "max": 7, "step": 2}, [2, 4, 6]),
        ({"name": "x", "type": "int", "min": 3, "max": 3}, [3]),
    ],
)
def test_grid_points_of_a_range_are_its_steps(parameter: dict[str, Any], points: list[float]) -> None:
    spec = make_spec("grid", (parameter,))
    searcher = SEARCHERS["grid"]
    size = searcher.size(spec)
    assert size == len(points)
    assert [(searcher.propose(spec, n) or {})["x"] for n in range(size)] == pytest.approx(points)
