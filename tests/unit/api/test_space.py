"""Search spaces in Python become the `spec.parameters` that a YAML file would have."""

from __future__ import annotations

import pytest

from podium_api.errors import SearchError
from podium_api.space import choice, loguniform, parameters, randint, uniform


def test_each_kind_of_parameter() -> None:
    space = {
        "lr": loguniform(1e-4, 1e-1),
        "momentum": uniform(0.5, 0.9, step=0.1),
        "layers": randint(2, 6),
        "width": randint(16, 256, log=True),
        "optimizer": choice(["sgd", "adam"]),
        "batch": [32, 64],
    }
    assert parameters(space) == [
        {"name": "lr", "type": "float", "min": 1e-4, "max": 1e-1, "scale": "log"},
        {"name": "momentum", "type": "float", "min": 0.5, "max": 0.9, "step": 0.1},
        {"name": "layers", "type": "int", "min": 2, "max": 6},
        {"name": "width", "type": "int", "min": 16, "max": 256, "scale": "log"},
        {"name": "optimizer", "values": ["sgd", "adam"]},
        {"name": "batch", "values": [32, 64]},
    ]


@pytest.mark.parametrize("given", [3, "adam", {"min": 1}, None])
def test_a_constant_is_refused_with_the_cure(given: object) -> None:
    with pytest.raises(SearchError, match=r"InvalidSpace: space\['lr'\].*arguments"):
        parameters({"lr": given})  # type: ignore[dict-item]
