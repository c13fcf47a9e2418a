"""Children in population-based training: they lie in the space and near their parent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_core.schema.job import JobSpec
from podium_core.schema.search.conditions import point_problem
from podium_searchers.pbt import propose_child
from podium_searchers.random import RandomSearcher

LR = {"name": "lr", "min": 1e-4, "max": 1e-1, "scale": "log"}
MOMENTUM = {"name": "momentum", "min": -0.9, "max": 0.9}
DROPOUT = {"name": "dropout", "min": 0.0, "max": 0.5, "step": 0.1}
WIDTH = {"name": "width", "type": "int", "min": 16, "max": 96, "step": 16}
UNITS = {"name": "units", "type": "int", "min": 1, "max": 1024, "scale": "log"}
BATCH = {"name": "batch", "values": [16, 32, 64]}
ACTIVATION = {"name": "activation", "values": ["relu", "tanh"]}
NESTEROV = {"name": "nesterov", "type": "boolean"}
HEADS = {"name": "heads", "type": "int", "min": 16, "max": 1024, "step": 16, "scale": "log"}
OPTIMIZER = {"name": "optimizer", "values": ["sgd", "adam"]}
LAYERS = {"name": "layers", "type": "int", "min": 1, "max": 3, "when": {"parameter": "optimizer", "in": ["sgd"]}}
SECOND = {"name": "second", "values": [8, 16], "when": {"parameter": "layers", "in": [2, 3]}}
SPACES: dict[str, tuple[dict[str, Any], ...]] = {
    "all kinds": (LR, MOMENTUM, DROPOUT, WIDTH, UNITS, BATCH, ACTIVATION, NESTEROV),
    "conditions": (SECOND, LR, OPTIMIZER, LAYERS, HEADS),
    "one choice": (ACTIVATION,),
}


def pbt(parameters: tuple[dict[str, Any], ...], **more: Any) -> JobSpec:
    return JobSpec.model_validate(
        {
            "objective": {"metric": "acc", "direction": "maximize"},
            "parameters": list(parameters),
            "search": {"algorithm": "pbt", "seed": 7, "settings": {"interval": 2, **more}},
            "trials": {"max": 100, "maxSteps": 10},
            "template": {"spec": {"containers": [{"name": "main", "image": "i"}]}},
        }
    )


@settings(max_examples=60, deadline=None)
@given(
    space=st.sampled_from(sorted(SPACES)),
    number=st.integers(0, 9999),
    parent=st.integers(0, 999),
    resample=st.sampled_from([0.0, 0.25, 1.0]),
)
def test_children_lie_in_the_space(space: str, number: int, parent: int, resample: float) -> None:
    spec = pbt(SPACES[space], resampleProbability=resample)
    parameters = RandomSearcher().propose(spec, parent) or {}
    child = propose_child(spec, number, parameters)
    assert point_problem(spec, child) is None
    types = {one.name: one.kind for one in spec.parameters}
    assert all(isinstance(child[name], int) for name in child if types[name] == "int")
    assert list(child) == [one.name for one in spec.parameters if one.name in child]
    assert child == propose_child(spec, number, parameters)
    propose_child(spec, number, child)  # a child of a child


@settings(max_examples=60, deadline=None)
@given(number=st.integers(0, 9999), lr=st.floats(1e-4, 1e-1))
def test_a_number_is_multiplied_and_clamped(number: int, lr: float) -> None:
    child = propose_child(pbt((LR,), resampleProbability=0.0), number, {"lr": lr})
    assert child["lr"] in [min(max(lr * factor, 1e-4), 1e-1) for factor in (0.8, 1.2)]


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        (WIDTH, 16, {16, 32}),  # a factor alone would round back to 16
        (WIDTH, 96, {80, 96}),
        (DROPOUT, 0.2, {0.1, 0.3}),
        (UNITS, 1000, {800, 1024}),
        (UNITS, 2, {1, 3}),
        (BATCH, 32, {16, 64}),
        (ACTIVATION, "relu", {"relu", "tanh"}),
    ],
)
def test_values_move_by_at_least_one_step(parameter: dict[str, Any], value: Any, expected: set[Any]) -> None:
    spec = pbt((parameter,), resampleProbability=0.0)
    assert {propose_child(spec, n, {parameter["name"]: value})[parameter["name"]] for n in range(40)} == expected


def test_fixed_parameters_never_change() -> None:
    spec = pbt((LR, WIDTH, BATCH), fixed="width, batch", resampleProbability=1.0)
    made = [propose_child(spec, n, {"lr": 0.01, "width": 48, "batch": 32}) for n in range(20)]
    assert {(one["width"], one["batch"]) for one in made} == {(48, 32)}
    assert len({one["lr"] for one in made}) == 20


def test_a_stored_float_gets_its_type_back() -> None:
    momentum = {"name": "m", "min": 0.0, "max": 1.0}
    child = propose_child(pbt((momentum, LR), fixed="m"), 0, {"m": 1, "lr": 0.1})
    assert isinstance(child["m"], float)
