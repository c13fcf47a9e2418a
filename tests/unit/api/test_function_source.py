"""A function is shipped by its source: the script runs alone, and what could not run there is refused here."""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from podium_api.errors import SearchError
from podium_api.function_source import MAX_SOURCE_BYTES, check_signature, container_of, script_of

FACTOR = 2


def train(lr: float, epochs: int = 3) -> None:
    import json

    def double(value: float) -> float:
        return 2 * value

    print(json.dumps({"lr": double(lr), "epochs": epochs}))


def uses_a_constant(lr: float) -> None:
    print(lr * FACTOR)


def uses_a_module(lr: float) -> None:
    print(math.sqrt(lr))


def uses_it_in_a_nested_function(lr: float) -> None:
    def inner() -> float:
        return math.sqrt(lr)

    print(inner())


@functools.lru_cache
def decorated(lr: float) -> None:
    print(lr)


async def coroutine(lr: float) -> None:
    print(lr)


def calls_itself(lr: float, depth: int = 2) -> None:
    if depth:
        calls_itself(lr, depth - 1)
    else:
        print(json_of(lr))


def json_of(value: float) -> str:
    return str(value)


def fails(lr: float) -> None:
    raise RuntimeError(f"no learning rate {lr}")


def _run(container: dict[str, Any], **parameters: Any) -> subprocess.CompletedProcess[str]:
    variables = {one["name"]: one["value"] for one in container["env"]}
    environment = {**os.environ, **variables, "PODIUM_PARAMS": json.dumps(parameters)}
    return subprocess.run(container["command"], env=environment, capture_output=True, text=True, timeout=60)


def test_the_script_calls_the_function_with_arguments_and_parameters() -> None:
    ran = _run(container_of(train, {"epochs": 7}, sys.executable), lr=0.5)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"lr": 1.0, "epochs": 7}


def test_a_parameter_wins_over_an_argument() -> None:
    assert json.loads(_run(container_of(train, {"epochs": 7}, sys.executable), lr=1.0, epochs=9).stdout)["epochs"] == 9


def test_a_local_function_is_dedented() -> None:
    def inside(lr: float) -> None:
        print("ran", lr)

    assert _run(container_of(inside, {}, sys.executable), lr=3).stdout == "ran 3\n"


def test_an_error_shows_its_line() -> None:
    ran = _run(container_of(fails, {}, sys.executable), lr=0.1)
    assert ran.returncode != 0
    assert 'raise RuntimeError(f"no learning rate {lr}")' in ran.stderr
    assert "RuntimeError: no learning rate 0.1" in ran.stderr


def test_characters_that_a_shell_or_kubernetes_would_replace_survive() -> None:
    def prints(lr: float) -> None:
        print("$(HOME) $(podium.args) 'ä' \\ {}", lr)

    assert _run(container_of(prints, {}, sys.executable), lr=1).stdout == "$(HOME) $(podium.args) 'ä' \\ {} 1\n"


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (uses_a_constant, "uses FACTOR from outside"),
        (uses_a_module, "uses math from outside"),
        (uses_it_in_a_nested_function, "uses math from outside"),
        (calls_itself, "uses json_of from outside"),
        (decorated, "not a function that `def` defines"),
        (coroutine, "is a coroutine"),
        (lambda lr: print(lr), "not a function that `def` defines"),
        (print, "not a function that `def` defines"),
    ],
)
def test_what_could_not_run_elsewhere_is_refused(function: Callable[..., Any], expected: str) -> None:
    with pytest.raises(SearchError, match=expected) as raised:
        script_of(function, {})
    assert raised.value.code == "FunctionNotShippable"
    assert ";" in raised.value.message  # names a cure


def test_a_closure_is_refused() -> None:
    factor = 3

    def inside(lr: float) -> None:
        print(lr * factor)

    with pytest.raises(SearchError, match="uses factor from outside"):
        script_of(inside, {})


@pytest.mark.parametrize("value", [{1, 2}, object(), math.nan])
def test_an_argument_that_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(SearchError, match="InvalidArguments"):
        script_of(train, {"epochs": value})


def test_a_long_source_is_refused() -> None:
    with pytest.raises(SearchError, match=f"more than {MAX_SOURCE_BYTES} bytes"):
        script_of(train, {"epochs": "x" * MAX_SOURCE_BYTES})


@pytest.mark.parametrize(("space", "arguments"), [({}, {}), ({"lr": 1, "rate": 1}, {}), ({"lr": 1}, {"width": 3})])
def test_names_that_the_function_does_not_take_are_refused(space: dict[str, Any], arguments: dict[str, Any]) -> None:
    with pytest.raises(SearchError, match="train cannot be called"):
        check_signature(train, space, arguments)
