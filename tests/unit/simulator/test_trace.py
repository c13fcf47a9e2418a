"""Values that a line of a trace may hold besides plain numbers, and errors for those that it may not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from podium_core.policies.registry import NAMES, create
from podium_simulator.replay.engine import replay
from podium_simulator.replay.samples import Machine, draw_sample
from podium_simulator.traces.trace import Trace, TraceError, parse, trace_lines

HEADER = {"task": "t", "metric": "m", "goal": "maximize", "target": None}
TRIAL = {"trial": "a", "hparams": {}, "seconds": [1, 2], "value": [0.1, 0.2]}
LONG = 10**400  # a whole number that no float can be


def read(*trials: dict[str, Any], header: dict[str, Any] = HEADER) -> Trace:
    return parse([json.dumps(line) for line in (header, *trials)], "x.jsonl")


def test_a_value_that_is_not_a_scalar_counts_as_its_json_text() -> None:
    given = {"layers": [64, 64], "head": {"b": 1, "a": None}, "seed": LONG, "lr": 0.1, "act": "relu", "skip": None}
    found = read(TRIAL | {"hparams": given})
    message = {"layers": "[64, 64]", "head": '{"a": null, "b": 1}', "seed": str(LONG), "lr": 0.1, "act": "relu"}
    assert dict(found.trials[0].hparams) == message | {"skip": None}
    assert parse(trace_lines(found), "x.jsonl") == found


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_accepts_such_parameters(name: str) -> None:
    layers: list[Any] = [[64], [64, 64], {"deep": True}, LONG]
    found = read(*(TRIAL | {"trial": str(i), "hparams": {"layers": one}} for i, one in enumerate(layers)))
    assert replay(draw_sample(found, 0), create(name, {}), Machine(1)).completed


ERRORS = [
    ({"seconds": "12"}, "x.jsonl, line 2: seconds is '12'; seconds, value and step must be arrays of numbers"),
    ({"value": "12"}, "x.jsonl, line 2: value is '12'; seconds, value and step must be arrays of numbers"),
    ({"value": {"1": 1, "2": 2}}, "x.jsonl, line 2: value is {'1': 1, '2': 2}; seconds, value and"),
    ({"seconds": [1, 1.1e8]}, "x.jsonl, line 2: 1.1e+08 seconds are more than three years; give 1e+08 at most"),
    ({"step": "12"}, "x.jsonl, line 2: step is '12'; seconds, value and step must be arrays of numbers"),
    ({"value": [0, True]}, "x.jsonl, line 2: value[1] is True; seconds, value and step must be arrays"),
    ({"value": [0, "high"]}, "x.jsonl, line 2: value[1] is 'high'; seconds, value and step must be arrays"),
    ({"seconds": [1, None]}, "x.jsonl, line 2: seconds[1] is None; seconds, value and step must be arrays"),
    ({"trial": {"id": 1}}, "x.jsonl, line 2: trial is {'id': 1}; give a name or a number"),
    ({"value": [0, LONG]}, "x.jsonl, line 2: value[1] is beyond 1.8e308; give a smaller number, or null"),
    ({"seconds": [1, LONG]}, "x.jsonl, line 2: seconds[1] is beyond 1.8e308"),
    ({"step": [-1, 0]}, "x.jsonl, line 2: step is -1, less than 0; give the steps since the trial began"),
    ({"step": [1, LONG]}, "x.jsonl, line 2: step[1] is beyond 1.8e308"),
    ({"observations": [{"metric": "m", "step": 1, "latest": LONG}]}, "x.jsonl, line 2: observations must be"),
]


@pytest.mark.parametrize(("given", "message"), ERRORS, ids=[str(list(row[0])) + str(i) for i, row in enumerate(ERRORS)])
def test_values_that_are_not_arrays_of_numbers(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(TRIAL | given)
    assert str(caught.value).startswith(message)


def test_the_number_of_trials_left_out_is_read_back_and_defaults_to_none() -> None:
    found = read(TRIAL, TRIAL | {"trial": "again"}, header=HEADER | {"left_out": 18})
    assert found.left_out == found.distinct().left_out == 18
    assert parse(trace_lines(found), "x.jsonl") == found
    whole = read(TRIAL)
    assert whole.left_out == 0
    assert "left_out" not in next(trace_lines(whole))


@pytest.mark.parametrize("wrong", [-1, 1.0, "1", True, None, 10**9 + 1, LONG], ids=lambda wrong: str(wrong)[:12])
def test_an_invalid_number_of_trials_left_out(wrong: object) -> None:
    with pytest.raises(TraceError, match=r"x.jsonl: left_out is .*; give how many trials of the search are not in"):
        read(TRIAL, header=HEADER | {"left_out": wrong})


@pytest.mark.parametrize("target", [LONG, float("inf"), float("nan")], ids=["long", "inf", "nan"])
def test_a_target_that_is_not_finite(target: float) -> None:
    with pytest.raises(TraceError, match=r"x.jsonl: target is .*; give a number"):
        read(TRIAL, header=HEADER | {"target": target})


def test_a_line_of_nested_brackets() -> None:
    with pytest.raises(TraceError, match=r"x.jsonl, line 1: not JSON"):
        parse(["[" * 100_000, "{}"], "x.jsonl")


@pytest.mark.parametrize("text", ["\\ud800", "a\\uDFFFb", "\\udc00\\ud83d"])
@pytest.mark.parametrize("place", ["trial", "hparams", "task"])
def test_half_of_a_surrogate_pair_is_refused(place: str, text: str) -> None:
    header = '{"task": "%s", "metric": "acc", "goal": "maximize"}' % (text if place == "task" else "t")
    hparams = '{"lr": "%s"}' % (text if place == "hparams" else "x")
    name = text if place == "trial" else "a"
    trial = f'{{"trial": "{name}", "hparams": {hparams}, "seconds": [1], "value": [1]}}'
    with pytest.raises(TraceError, match=r"x.jsonl, line \d: half of a surrogate pair") as refused:
        parse([header, trial], "x.jsonl")
    str(refused.value).encode()


def test_a_whole_surrogate_pair_is_read() -> None:
    header = '{"task": "t", "metric": "acc", "goal": "maximize"}'
    trace = parse([header, '{"trial": "\\ud83d\\ude00", "seconds": [1], "value": [1]}'], "x.jsonl")
    assert trace.trials[0].name == "😀"
