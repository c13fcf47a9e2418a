"""Contract of every searcher: proposals lie in the search space and depend on the trial's number alone."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podium_core.schema.job import JobSpec
from podium_core.schema.search.grid import ParameterGrid
from podium_core.schema.search.settings import KNOWN, learns
from podium_core.schema.search.spec import SearchSpec
from podium_core.schema.validation import problems
from podium_searchers.base import Proposal, TrialResult
from podium_searchers.random import RandomSearcher
from podium_searchers.registry import SEARCHERS, missing_packages
from podium_searchers.search import propose

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
HEADS = {"name": "heads", "type": "int", "min": 16, "max": 1024, "step": 16, "scale": "log"}
OPTIMIZER = {"name": "optimizer", "values": ["sgd", "adam"]}
SGD = {"parameter": "optimizer", "in": ["sgd"]}
SGD_MOMENTUM = {"name": "momentum", "min": 0.0, "max": 0.9, "step": 0.3, "when": SGD}
LAYERS = {"name": "layers", "type": "int", "min": 1, "max": 3, "when": SGD}
SECOND = {"name": "second", "values": [8, 16], "when": {"parameter": "layers", "in": [2, 3]}}

has_torch = not missing_packages("gp")

SPACES: dict[str, tuple[dict[str, Any], ...]] = {
    "all kinds": (LR, MOMENTUM, DROPOUT, WIDTH, UNITS, BATCH, ACTIVATION, NESTEROV, MIXED),
    "grid": (DROPOUT, WIDTH, DEPTH, BATCH, ACTIVATION, NESTEROV),
    "one choice": (ACTIVATION,),
    "conditions": (SECOND, LR, SGD_MOMENTUM, OPTIMIZER, LAYERS, HEADS),
    "grid with conditions": (SECOND, SGD_MOMENTUM, OPTIMIZER, LAYERS, NESTEROV),
}
CASES = [
    ("auto", "all kinds"),
    ("auto", "grid"),
    ("auto", "one choice"),
    ("auto", "conditions"),
    ("cmaes", "all kinds"),
    ("cmaes", "grid"),
    ("cmaes", "conditions"),
    ("grid", "grid with conditions"),
    ("pbt", "all kinds"),
    ("pbt", "conditions"),
    ("qmc", "all kinds"),
    ("qmc", "grid"),
    ("qmc", "one choice"),
    ("qmc", "conditions"),
    ("random", "conditions"),
    ("tpe", "conditions"),
    *((("gp", "all kinds"), ("gp", "grid"), ("gp", "one choice"), ("gp", "conditions")) if has_torch else ()),
    ("random", "all kinds"),
    ("random", "grid"),
    ("random", "one choice"),
    ("grid", "grid"),
    ("grid", "one choice"),
    ("tpe", "all kinds"),
    ("tpe", "grid"),
    ("tpe", "one choice"),
]
ENDING = ("grid",)  # searchers that propose None once every point was tried
SETTINGS: dict[str, dict[str, Any]] = {"pbt": {"settings": {"interval": 2}}}  # that an algorithm requires
TRIED = 40  # trials in the history
LIMITS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def make_spec(algorithm: str, parameters: tuple[dict[str, Any], ...], seed: int = 7, **search: Any) -> JobSpec:
    return JobSpec.model_validate(
        {
            "objective": {"metric": "acc", "direction": "maximize"},
            "parameters": list(parameters),
            "search": {"algorithm": algorithm, "seed": seed, **SETTINGS.get(algorithm, {}), **search},
            "checkpoint": {"path": "/ckpt", "volume": {"claimName": "ckpt"}},
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


def is_active(parameter: dict[str, Any], proposal: Mapping[str, Any]) -> bool:
    when = parameter.get("when")
    return when is None or proposal.get(when["parameter"]) in when["in"]


def check(parameters: Sequence[dict[str, Any]], proposal: Mapping[str, Any]) -> None:
    """Check that the proposal holds a value of each active parameter, in the spec's order, and of no other."""
    assert list(proposal) == [one["name"] for one in parameters if is_active(one, proposal)]
    for parameter in parameters:
        if parameter["name"] in proposal:
            assert in_range(parameter, proposal[parameter["name"]]), (parameter, proposal)


def test_every_searcher_is_covered() -> None:
    assert {algorithm for algorithm, _ in CASES} == set(SEARCHERS) - (set() if has_torch else {"gp"})
    assert set(KNOWN) == set(SEARCHERS) == set(get_args(SearchSpec.model_fields["algorithm"].annotation))


@pytest.mark.parametrize(("algorithm", "space"), CASES)
def test_proposals_lie_in_the_space(algorithm: str, space: str) -> None:
    spec = make_spec(algorithm, SPACES[space])
    tried = history(spec)
    for number in range(60):
        proposal = SEARCHERS[algorithm].propose(spec, number, tried[:number])
        if proposal is None:
            assert algorithm in ENDING
            break
        check(SPACES[space], proposal)


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


@pytest.mark.parametrize(("algorithm", "space"), CASES)
def test_the_order_of_the_results_does_not_matter(algorithm: str, space: str) -> None:
    spec = make_spec(algorithm, SPACES[space])
    searcher, tried = SEARCHERS[algorithm], history(spec)
    assert searcher.propose(spec, TRIED, tried) == searcher.propose(spec, TRIED, tried[::-1])


@pytest.mark.parametrize("algorithm", sorted({algorithm for algorithm, _ in CASES} - {*ENDING}))
@given(data=st.data())
@LIMITS
def test_proposals_lie_in_any_space(algorithm: str, data: st.DataObject) -> None:
    """Ranges of both types and scales, with and without steps, choices, and conditions on a choice."""
    parameters = data.draw(st.lists(ranges(), min_size=1, max_size=4))
    parameters = [{**one, "name": f"p{number}"} for number, one in enumerate(parameters)]
    parameters += [{"name": "c", "values": ["a", "b"]}, {"name": "d", "type": "boolean"}]
    for one in parameters[1:-2]:
        parent, values = data.draw(st.sampled_from([("c", ["a"]), ("d", [True]), ("", [])]))
        if parent:
            one["when"] = {"parameter": parent, "in": values}
    order = data.draw(st.permutations(parameters))
    spec = make_spec(algorithm, tuple(order), data.draw(st.integers(0, 9)))
    assert not problems(manifest(spec)), problems(manifest(spec))
    size = data.draw(st.integers(0, 30))
    tried = history(spec)[:size]
    proposal = SEARCHERS[algorithm].propose(spec, size, tried)
    assert proposal is not None
    check(order, proposal)


@st.composite
def ranges(draw: st.DrawFn) -> dict[str, Any]:
    """Return a valid range."""
    if draw(st.booleans()):
        low, points, step = draw(st.integers(1, 50)), draw(st.integers(1, 200)), draw(st.integers(1, 50))
        one: dict[str, Any] = {"type": "int", "min": low, "max": low + points * step + draw(st.integers(0, step - 1))}
    else:
        low, step = draw(st.sampled_from([0.001, 0.1, 0.25, 1.0, 3.0])), draw(st.sampled_from([0.001, 0.1, 0.25]))
        one = {"min": low, "max": low + draw(st.sampled_from([0.3, 1.0, 7.5]))}
    one["scale"] = draw(st.sampled_from(["linear", "log"]))
    if draw(st.booleans()) and (one["scale"] == "linear" or step <= low):
        one["step"] = step
    return one


def manifest(spec: JobSpec) -> dict[str, Any]:
    return {"metadata": {"name": "job"}, "spec": spec.model_dump(by_alias=True, mode="json", exclude_none=True)}


@pytest.mark.parametrize(("algorithm", "space"), [case for case in CASES if case[0] not in ENDING])
@given(stop=st.integers(1, 24))
@settings(max_examples=2, deadline=None)
def test_a_restart_at_any_trial_changes_no_proposal(algorithm: str, space: str, stop: int) -> None:
    """The results are read from the stored trials again: their floats may have become integers."""
    spec = make_spec(algorithm, SPACES[space])

    def stored(one: TrialResult) -> TrialResult:
        wire = json.loads(json.dumps(dict(one.parameters)))
        floats = {name: int(v) if isinstance(v, float) and v.is_integer() else v for name, v in wire.items()}
        return replace(one, parameters=floats)

    def run(restart: int | None) -> list[Proposal]:
        tried: list[TrialResult] = []
        for number in range(25):
            if number == restart:
                tried = [stored(one) for one in tried]
            proposal = propose(spec, number, tried)
            assert proposal is not None
            tried.append(TrialResult(number, proposal, step=5.0, value=1.0 / (1 + number % 7), completed=True))
        return [one.parameters for one in tried]

    assert run(stop) == run(None)


@pytest.mark.parametrize("algorithm", sorted({algorithm for algorithm, _ in CASES} - {*ENDING}))
def test_initial_trials_come_first_and_are_completed(algorithm: str) -> None:
    entries = [{"lr": 0.01, "optimizer": "adam", "heads": 64}, {"optimizer": "sgd", "layers": 2}]
    spec = make_spec(algorithm, SPACES["conditions"], initialTrials=entries)
    first, second, third = (propose(spec, number) or {} for number in range(3))
    assert first == {"lr": 0.01, "optimizer": "adam", "heads": 64}
    assert second.items() >= entries[1].items()
    for proposal in (first, second, third):
        check(SPACES["conditions"], proposal)
    plain = make_spec(algorithm, SPACES["conditions"])
    assert third == SEARCHERS[algorithm].propose(plain, 0)


def test_initial_trials_of_a_grid_are_not_tried_twice() -> None:
    entries = [{"depth": 3, "activation": "tanh"}, {"depth": 1, "activation": "relu"}]
    spec = make_spec("grid", (DEPTH, ACTIVATION), initialTrials=entries)
    proposals = [propose(spec, number) or {} for number in range(8)]
    assert proposals[:2] == entries
    assert {tuple(one.values()) for one in proposals} == set(product([1, 2, 3, 4], ["relu", "tanh"]))
    assert propose(spec, 8) is None


def test_a_grid_multiplies_a_conditional_parameter_only_where_it_is_active() -> None:
    spec = make_spec("grid", SPACES["grid with conditions"])
    size = SEARCHERS["grid"].size(spec)
    proposals = [SEARCHERS["grid"].propose(spec, number) or {} for number in range(size or 0)]
    assert size == 2 * (1 + 4 * (1 + 2 + 2))  # nesterov x (adam, or sgd with momentum and layers)
    assert len({tuple(one.items()) for one in proposals}) == size
    for one in proposals:
        check(SPACES["grid with conditions"], one)
    grid = ParameterGrid(spec)
    assert [grid.index(one) for one in proposals] == list(range(size or 0))


def test_a_number_that_is_no_choice_of_the_parent_does_not_activate_a_parameter() -> None:
    """In Python 1 equals True."""
    parent = {"name": "parent", "values": [1, True]}
    child = {"name": "child", "type": "boolean", "when": {"parameter": "parent", "in": [True]}}
    spec = make_spec("random", (parent, child))
    proposals = [SEARCHERS["random"].propose(spec, number) or {} for number in range(30)]
    assert {("child" in one, type(one["parent"])) for one in proposals} == {(True, bool), (False, int)}


def test_qmc_fills_the_space_more_evenly_than_random() -> None:
    def emptiest(algorithm: str) -> int:
        spec = make_spec(algorithm, (LR, MOMENTUM))
        cells: Counter[tuple[int, int]] = Counter()
        for number in range(64):
            proposal = SEARCHERS[algorithm].propose(spec, number) or {}
            row = math.floor((math.log10(float(proposal["lr"])) + 4) / 3 * 8)
            cells[row, math.floor(float(proposal["momentum"]) / 0.9 * 8)] += 1
        return len(cells)

    assert emptiest("qmc") == 64  # a Sobol sequence: one point in each of the 8 x 8 cells
    assert emptiest("random") < 56


@pytest.mark.parametrize("algorithm", ["cmaes", "tpe", "auto"])
def test_old_trials_do_not_slow_a_proposal_down(algorithm: str) -> None:
    """Only the latest 1,000 trials count, or whole generations of them: the values of older ones change nothing."""
    spec = make_spec(algorithm, (LR, MOMENTUM))
    tried = [
        TrialResult(n, RandomSearcher().propose(spec, n) or {}, step=9.0, value=n % 17 / 17, completed=True)
        for n in range(1100)
    ]
    begin = [replace(one, value=0.9) if 10 <= one.number < 80 else one for one in tried]
    assert SEARCHERS[algorithm].propose(spec, 1100, tried) == SEARCHERS[algorithm].propose(spec, 1100, begin)


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
