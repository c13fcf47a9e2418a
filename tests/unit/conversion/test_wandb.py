"""Sweeps of W&B: their parameters, commands and limits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from podium_core.acceptance.findings import errors_of, findings
from podium_core.conversion.convert import Converted, convert
from podium_core.conversion.given import Given
from podium_core.schema.manifests import read_manifests

FILES = sorted((Path(__file__).parent / "wandb").glob("*.yaml"))
GIVEN = Given(image="me/train:1")
SWEEP: dict[str, Any] = {
    "program": "train.py",
    "method": "random",
    "run_cap": 9,
    "metric": {"name": "loss"},
    "parameters": {"lr": {"min": 0.1, "max": 1.5}},
}


def converted(given: Given = GIVEN, **changes: Any) -> Converted:
    """Return the conversion of the sweep after changes."""
    (result,) = convert([{**SWEEP, **changes}], given)
    return result


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_sweeps_become_valid_jobs(path: Path) -> None:
    (result,) = convert(read_manifests([path]), GIVEN)
    assert result.refusals == ()
    assert result.job is not None
    assert errors_of(findings(result.job)) == ()


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (
            {"distribution": "log_uniform", "min": 0, "max": 1},
            {"max": pytest.approx(math.e), "scale": "log"},
        ),
        (
            {"distribution": "inv_log_uniform", "min": 0, "max": 1},
            {"min": pytest.approx(1 / math.e)},
        ),
        ({"min": 1, "max": 4}, {"type": "int", "min": 1, "max": 4}),
        ({"min": 1, "max": 4.5}, {"type": "float", "min": 1, "max": 4.5}),
        ({"distribution": "q_uniform", "min": 0, "max": 1, "q": 0.25}, {"type": "float", "step": 0.25}),
        ({"distribution": "normal", "mu": 2, "sigma": 1}, {"min": -1, "max": 5}),
        ({"values": ["a", True, 3]}, {"values": ["a", True, 3]}),
    ],
)
def test_parameters(space: dict[str, Any], expected: dict[str, Any]) -> None:
    result = converted(parameters={"p": space})
    assert result.job is not None, result.refusals
    (parameter,) = result.job["spec"]["parameters"]
    assert {name: parameter[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"run_cap": None}, "run_cap: is missing, which means no limit: add it, or give --max-trials N"),
        ({"metric": None}, "metric: is required"),
        ({"method": "custom"}, "method: custom is code that runs elsewhere"),
        ({"early": 1}, "early: 1 is not a field of W&B"),
        (
            {"parameters": {"net": {"parameters": {"lr": {"value": 1}}}}},
            "parameters.net.parameters: net holds",
        ),
        ({"parameters": {"a": {"value": 1}}}, "every parameter has one value"),
        (
            {"parameters": {"a": {"values": [[1], [2]]}}},
            "parameters.a.values: [1] is not a string",
        ),
        ({"command": ["${args_json}"]}, "command[0]: ${args_json} has no counterpart: read PODIUM_PARAMS"),
        ({"program": None}, "program: is required, since the command names ${program}"),
        ({"early_terminate": {"type": "hyperband", "min_iter": 3}}, "policy asha must know when a trial is complete"),
        ({"scheduler": {"engine": "optuna"}}, "scheduler"),
    ],
)
def test_what_cannot_be_converted_is_refused_by_name(changes: dict[str, Any], says: str) -> None:
    result = converted(**changes)
    assert result.job is None
    assert says in "\n".join(map(str, result.refusals))


def test_the_image_must_be_given() -> None:
    assert "give --image IMAGE" in str(converted(Given()).refusals[0])


def test_constants_are_arguments_and_macros_are_replaced() -> None:
    command = ["${env}", "${interpreter}", "${program}", "${args_no_hyphens}"]
    space = {"lr": {"min": 0.1, "max": 1.5}, "epochs": {"value": 9}}
    result = converted(command=command, parameters=space)
    assert result.job is not None
    (container,) = result.job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "train.py", "lr=$(podium.params.lr)", "epochs=9"]


def test_early_termination_becomes_asha() -> None:
    stop = {"type": "hyperband", "min_iter": 3, "eta": 3}
    result = converted(Given(image="i", max_steps=27), early_terminate=stop)
    assert result.job is not None
    assert result.job["spec"]["policy"] == {"name": "asha", "settings": {"eta": 3, "rungs": 2, "onCut": "stop"}}
