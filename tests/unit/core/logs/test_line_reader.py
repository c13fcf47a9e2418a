"""Lines as people's scripts print them, and lines made to hurt: what is read, and that the work stays within limits."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from podium_core.logs.budget import Budget
from podium_core.logs.filters import MAX_FILTERED, compiled, filter_error, matches
from podium_core.logs.line_reader import ParsedLine, line_reader
from podium_core.logs.records import records
from podium_core.logs.screen import MAX_ESCAPES, MAX_LINE, MAX_PIECES, pieces
from podium_core.schema.metrics_config import MetricsConfig

MIB = 1 << 20


def read(form: str, line: str, **more: object) -> list[tuple[float | None, float | None]]:
    settings = {"metric": "val_acc", "direction": "maximize", "stepKey": "epoch", "container": "train", "format": form}
    found: list[ParsedLine] = line_reader(MetricsConfig.model_validate(settings | more))(line)
    return [(one.step, one.value) for one in found]


PRINTED = [
    ("text", "\x1b[32mINFO\x1b[0m epoch \x1b[1m3\x1b[0m val_acc=\x1b[33m0.81\x1b[0m", [(3, 0.81)]),
    ("text", "\x1b[01;31m\x1b[Kval_acc\x1b[m\x1b[K=0.81", [(None, 0.81)]),
    ("text", "Epoch 3 finished with val_acc: 0.81.", [(3, 0.81)]),
    ("text", "epoch: 3, val_acc: 0,81", [(3, 0.81)]),
    ("text", "epoch=1,000 val_acc=1,234.5", [(1000, 1234.5)]),
    ("text", "epoch=3 val_acc=np.float64(0.81)", [(3, 0.81)]),
    ("text", "epoch=3 val_acc=tensor(0.81, device='cuda:0')", [(3, 0.81)]),
    ("text", "epoch=3 val_acc=81%", [(3, 81.0)]),
    ("text", "val_acc: nanobots found", []),
    ("text", "val_acc: 1,234", []),
    ("text", '"val_acc": 0.81', [(None, 0.81)]),
    ("text", "Epoch 3:   1%|\u258f| 1/99, val_acc=0.1\rEpoch 3: 100%|\u2588| 99/99, val_acc=0.81", [(3, 0.81)]),
    ("text", "1/99 val_acc: 0.1\x08\x08\x08\x0899/99 val_acc: 0.81", [(None, 0.81)]),
    ("text", "epoch 1 val_acc=0.5\x1b[1A\x1b[2Kepoch 1 val_acc=0.6", [(1, 0.6)]),
    ("text", "epoch=1 val_acc=0.5\repoch=2 val_acc=0.6", [(1, 0.5), (2, 0.6)]),
    ("json", '{"epoch": 1, "val_acc": 0.5}{"epoch": 2, "val_acc": 0.6}', [(1, 0.5), (2, 0.6)]),
    ("json", '{broken {"epoch": 1, "val_acc": 0.5}', [(1, 0.5)]),
    ("json", '{"note": "\\"val_acc\\": 9 }", "val_acc": 0.5}', [(None, 0.5)]),
    ("json", '{"eval": {"val_acc": 0.1}, "val_acc": 0.5}', [(None, 0.5)]),
    ("json", '{"eval": {"val_acc": 0.1}}', []),
    ("json", '{"list": [{"val_acc": 0.1}], "epoch": 2}', []),
    ("json", '{"val_acc": 1,5}', []),
    ("json", '\x1b[32m{"epoch": 1, "val_acc": 0.5}\x1b[0m', [(1, 0.5)]),
    ("huggingface", "{'val_acc': np.float64(0.81), 'epoch': 1.0}", [(1, 0.81)]),
    ("huggingface", "{'val_acc': tensor(0.81, device='cuda:0'), 'epoch': 1.0}", [(1, 0.81)]),
    ("huggingface", "{'note': 'a nan was seen', 'val_acc': 0.5, 'epoch': 1}", [(1, 0.5)]),
    ("huggingface", "it's done {'val_acc': 0.5, 'epoch': 1} it's late", [(1, 0.5)]),
    ("huggingface", "{'val_acc': [0.1, 0.2], 'epoch': 1}", []),
]


@pytest.mark.parametrize(("form", "line", "expected"), PRINTED)
def test_a_line_as_scripts_print_it(form: str, line: str, expected: list[tuple[float | None, float | None]]) -> None:
    assert read(form, line) == expected


def test_a_filter_never_cuts_a_number() -> None:
    pattern = r"(?P<name>\w+) is (?P<value>\d+)"
    assert read("text", "val_acc is 0,73", filter=pattern) == []
    assert read("text", "val_acc is 0.73", filter=pattern) == []
    assert read("text", "val_acc is 73%", filter=pattern) == [(None, 73.0)]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"(?P<name>a)(?=b)(?P<value>.)", "look-around"),
        (r"(?P<name>a)(?P<value>b)\1", "back-references"),
        (r"(?P<name>(\w{1,1000}){1,1000})(?P<value>.)", "repetition"),
        ("(", "missing"),
        (r"(?P<name>a)", "no group value"),
    ],
)
def test_what_re2_cannot_take_is_refused_with_the_reason(pattern: str, words: str) -> None:
    assert words in str(filter_error(pattern))


def test_a_filter_with_nested_repetitions_is_evaluated_in_linear_time() -> None:
    """A backtracking engine would need longer than the age of the universe for this line."""
    pattern = r"(?P<name>(?:\w+\s?)+):\s*(?P<value>[\d.]+)"
    assert filter_error(pattern) is None
    assert read("text", "a" * 10_000 + "!", filter=pattern) == []
    assert read("text", "val_acc: 0.5", filter=pattern) == [(None, 0.5)]


RANDOM = random.Random(1)
HOSTILE: dict[str, Callable[[], str]] = {
    "dots": lambda: "." * MIB + "val_acc",
    "base64": lambda: "val_acc" + "".join(RANDOM.choices("ABCDEFabcdef0123456789-_", k=MIB)),
    "names": lambda: "val_acc=" * (MIB // 8),
    "pairs": lambda: "val_acc=1 " * (MIB // 10),
    "rewritten": lambda: '{"val_acc": 1}\r' * (MIB // 15),
    "braces": lambda: "{" * MIB + "val_acc",
    "empty records": lambda: "{}" * (MIB // 2) + "val_acc",
    "nested": lambda: '{"val_acc":' * (MIB // 11),
    "open text": lambda: '{"val_acc":"' + "\\'" * (MIB // 2),
    "lists": lambda: '{"val_acc":[' + "[]," * (MIB // 3),
    "escapes": lambda: "\x1b[0m" * (MIB // 4) + "val_acc",
    "digits": lambda: '{"val_acc":' + "1" * MIB + "}",
    "calls": lambda: "{'val_acc': tensor(" * (MIB // 19),
}


@pytest.mark.parametrize("form", ["json", "huggingface", "text"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_line_of_a_mebibyte_is_read_to_its_end(form: str, kind: str) -> None:
    """`benchmarks/agent/bench_lines.py` measures what it costs; without limits some would take hours."""
    assert len(read(form, HOSTILE[kind]())) <= MAX_PIECES


def test_the_budget_of_a_line_ends_the_scan() -> None:
    budget = Budget()
    assert len(records("{}" * MIB, {("a",): False}, budget)) < 1000
    assert budget.tokens <= 0
    budget = Budget()
    assert sum(1 for _ in matches(compiled("a(?:.*b)?"), "a" * MAX_FILTERED, budget)) < Budget().matches
    assert budget.scanned < 0, "each match looks for b up to the end"


def test_the_last_pieces_of_a_rewritten_line_are_kept() -> None:
    many = [str(number) for number in range(MAX_PIECES * 2)]
    assert pieces("\r".join(many)) == many[-MAX_PIECES:]
    assert pieces("x" * (MAX_LINE + 5)) == ["x" * MAX_LINE]
    assert pieces("first" + "\x1b[0m" * (MAX_ESCAPES + 1) + "last") == ["last"]
    assert pieces("") == pieces("\r\r") == []
