"""Parameters as words of a command line."""

from __future__ import annotations

import pytest

from podium_core.attempts.substitution import Substitution, text

WORDS = Substitution({"lr": 0.001, "act": "re lu", "deep": True, "n": 3}, "/ckpt")
BARE = Substitution({"lr": 1e-05}, None)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.001, "0.001"),
        (1e-05, "1e-05"),
        (0.1 + 0.2, "0.30000000000000004"),
        (True, "true"),
        (False, "false"),
        (3, "3"),
        ("a", "a"),
    ],
)
def test_text_of_a_value(value: str | bool | int | float, written: str) -> None:
    assert text(value) == written


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["python", "t.py", "$(podium.args)"], ["python", "t.py", "--lr=0.001", "--act=re lu", "--deep=true", "--n=3"]),
        (["sh", "-c", "t $(podium.args)"], ["sh", "-c", "t --lr=0.001 '--act=re lu' --deep=true --n=3"]),
        (["--x=$(podium.params.lr)/$(podium.params.n)"], ["--x=0.001/3"]),
        (["--from=$(podium.checkpoint)"], ["--from=/ckpt"]),
        (["$(HOME)", "$$(podium", "$(podium.args"], ["$(HOME)", "$$(podium", "$(podium.args"]),
        ([], []),
    ],
)
def test_words_of_a_command(given: list[str], wanted: list[str]) -> None:
    assert WORDS.command(given) == wanted


def test_a_value_from_a_secret_is_not_changed() -> None:
    variables = [
        {"name": "A", "value": "$(podium.params.n)"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "C"},
    ]
    assert WORDS.environment(variables) == [{"name": "A", "value": "3"}, *variables[1:]]


def test_an_unknown_placeholder_is_an_error() -> None:
    with pytest.raises(KeyError, match="checkpoint"):
        BARE.command(["$(podium.checkpoint)"])


LACKING = Substitution({"lr": 0.01, "optimizer": "adam"}, None, {"momentum", "nesterov"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["t", "--momentum=$(podium.params.momentum)", "x"], ["t", "x"]),
        (["t", "--momentum", "$(podium.params.momentum)", "x"], ["t", "x"]),
        (["t", "$(podium.params.momentum)", "x"], ["t", "x"]),
        (["t", "optimizer.momentum=$(podium.params.momentum)"], ["t"]),
        (["t", "--flag", "--momentum=$(podium.params.momentum)"], ["t", "--flag"]),
        (["t", "--opt=$(podium.params.optimizer)", "--momentum", "$(podium.params.lr)"], None),
        (["t", "$(podium.args)"], ["t", "--lr=0.01", "--optimizer=adam"]),
    ],
    ids=["one word", "two words", "bare", "hydra", "another option before", "active", "all"],
)
def test_an_argument_that_names_an_inactive_parameter_is_left_out(given: list[str], expected: list[str] | None) -> None:
    assert LACKING.command(given) == (expected or ["t", "--opt=adam", "--momentum", "0.01"])


def test_a_variable_that_names_an_inactive_parameter_is_not_set() -> None:
    given = [
        {"name": "LR", "value": "$(podium.params.lr)"},
        {"name": "M", "value": "m=$(podium.params.momentum)"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    assert LACKING.environment(given) == [{"name": "LR", "value": "0.01"}, given[2]]


def test_a_parameter_that_is_not_conditional_must_have_a_value() -> None:
    with pytest.raises(KeyError):
        LACKING.command(["$(podium.params.other)"])
