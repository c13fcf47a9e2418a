"""Lines as people's scripts print them, and lines made to hurt: what is read, and that the work stays within limits."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from podium_core.logs.budget import LineBudget
from podium_core.logs.filters import MAX_FILTERED, compiled, filter_error, matches
from podium_core.logs.line_reader import ParsedLine, line_reader
from podium_core.logs.records import records
from podium_core.logs.screen import MAX_ESCAPES, MAX_LINE, MAX_PIECES, pieces
from podium_core.schema.metrics.config import MetricsConfig

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
    ("text", "epoch 3 val_acc: 0.91 best val_acc: 0.95", [(3, 0.91)]),
    ("text", "epoch 3 val_acc: 0.91 (Best val_acc: 0.95)", [(3, 0.91)]),
    ("text", "epoch 3 best_val_acc: 0.95 val_acc: 0.91", [(3, 0.91)]),
    ("text", "epoch 3 val_acc: 0.91 (Max val_acc: 0.95)", [(3, 0.91)]),
    ("text", "epoch 3 val_acc: 0.91, min val_acc: 0.1, previous val_acc: 0.9", [(3, 0.91)]),
    ("text", "epoch 3 max_val_acc: 0.95 val_acc: 0.91", [(3, 0.91)]),
    ("text", "Target val_acc=0.99", []),
    ("text", "best epoch: 2 val_acc: 0.5", [(2, 0.5)]),
    ("text", "epoch 3 val_acc: 0.345 --> 0.321, saving", [(3, None)]),
    ("text", "epoch 3 -> val_acc: 0.5", [(3, 0.5)]),
    ("text", "epoch 3 val_acc: 9912 / 10000 (99%)", [(3, None)]),
    ("text", "epoch 3 val_acc: 0.5 / loss: 0.6", [(3, 0.5)]),
    ("text", "epoch 3 val_acc: 0.5 d1: 0.9 m50: 0.4 h: 3", [(3, 0.5)]),
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


# What frameworks print, the metric and the step key that read it, and what is read.
FRAMEWORKS = [
    ("Epoch 3: 100%|\u2588| 469/469 [00:12<00:00, 37.2it/s, v_num=0, val_acc=0.956]", "val_acc", "epoch", [(3, 0.956)]),
    ("Epoch 3, global step 1876: 'val_acc' reached 0.95600 (best 0.95600)", "val_acc", "epoch", [(3, None)]),
    (
        "469/469 \u2501\u2501 2s 4ms/step - loss: 0.3012 - val_accuracy: 0.9567",
        "val_accuracy",
        "epoch",
        [(None, 0.9567)],
    ),
    ("Epoch 2: val_accuracy improved from 0.95670 to 0.96120", "val_accuracy", "epoch", [(2, None)]),
    ("[10]\ttrain-auc:0.90\tvalidation-auc:0.81234", "validation-auc", "iteration", [(None, 0.81234)]),
    ("[10]\tvalid_0's auc: 0.81\ttraining's auc: 0.99", "valid_0's auc", "iteration", [(None, 0.81)]),
    ("10:\tlearn: 0.5012\ttest: 0.5234\tbest: 0.5234 (10)\ttotal: 123ms", "test", "iteration", [(None, 0.5234)]),
    ("       3/10      2.35G      1.123      1.456      1.234        215        640", "box_loss", "epoch", []),
    ("iter 100: loss 2.34, time 12.3ms", "loss", "iter", [(100, None)]),
    (
        " iteration      100/  500000 | lm loss: 6.523412E+00 | loss scale: 1.0 |",
        "lm loss",
        "iteration",
        [(100, 6.523412)],
    ),
    ("steps: 10 loss: 2.3456 iter time (s): 0.123 samples/sec: 123.4", "loss", "steps", [(10, 2.3456)]),
    ("step 100 loss=Array(0.345, dtype=float32)", "loss", "step", [(100, 0.345)]),
    ("Train Epoch: 3 [25600/60000 (43%)]\tLoss: 0.123456", "Loss", "Epoch", [(3, 0.123456)]),
    ("Test set: Average loss: 0.0264, Accuracy: 9912/10000 (99%)", "Accuracy", "Epoch", []),
    ("Validation loss decreased (0.345 --> 0.321).  Saving model ...", "Validation loss", "Epoch", []),
    (
        "[01/01 12:00:00 d2]:  eta: 1:02:03  iter: 1999  total_loss: 0.71  loss_cls: 0.2",
        "total_loss",
        "iter",
        [(1999, 0.71)],
    ),
    (
        "Epoch [3][50/7330]\tlr: 1.978e-03, eta: 1 day, 2:03:04, loss_cls: 0.4, loss: 0.8123",
        "loss",
        "Epoch",
        [(3, 0.8123)],
    ),
]


@pytest.mark.parametrize(("line", "metric", "step_key", "expected"), FRAMEWORKS)
def test_a_line_as_frameworks_print_it(
    line: str, metric: str, step_key: str, expected: list[tuple[float | None, float | None]]
) -> None:
    assert read("text", line, metric=metric, stepKey=step_key) == expected


def test_a_metric_may_be_called_best() -> None:
    line = "epoch 3 val_acc: 0.91 best val_acc: 0.95"
    assert read("text", line, metric="best val_acc") == [(3, 0.95)]
    assert read("text", line, additional=["best val_acc"]) == [(3, 0.91)]


def test_a_filter_reads_what_no_sign_follows() -> None:
    """The examples of docs/reference/log-formats.md."""
    pattern = r"(?P<name>val loss) (?P<value>[^,\s]+)"
    line = "step 2000: train loss 1.7648, val loss 1.8857"
    assert read("text", line, filter=pattern, metric="val loss", stepKey="step") == [(2000, 1.8857)]
    pattern = r"\* (?P<name>Acc@1) (?P<value>\S+)"
    assert read("text", " * Acc@1 76.130 Acc@5 92.862", filter=pattern, metric="Acc@1") == [(None, 76.13)]


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
    budget = LineBudget()
    assert len(records("{}" * MIB, {("a",): False}, budget)) < 1000
    assert budget.tokens <= 0
    budget = LineBudget()
    assert sum(1 for _ in matches(compiled("a(?:.*b)?"), "a" * MAX_FILTERED, budget)) < LineBudget().matches
    assert budget.scanned < 0, "each match looks for b up to the end"


def test_the_last_pieces_of_a_rewritten_line_are_kept() -> None:
    many = [str(number) for number in range(MAX_PIECES * 2)]
    assert pieces("\r".join(many)) == many[-MAX_PIECES:]
    assert pieces("x" * (MAX_LINE + 5)) == ["x" * MAX_LINE]
    assert pieces("first" + "\x1b[0m" * (MAX_ESCAPES + 1) + "last") == ["last"]
    assert pieces("") == pieces("\r\r") == []
