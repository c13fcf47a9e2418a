"""From log files to curves: formats, partial lines, rotation, and an agent that dies between any two reads."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from podium_agent.observe.logs.cri import Assembler
from podium_agent.observe.logs.tail import Tail
from podium_core.curves.growing_curve import Curve, extend
from podium_core.curves.non_finite import diverged
from podium_core.curves.thinning import Grid
from podium_core.logs.line_reader import AdditionalValue, ParsedLine, line_reader
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.batch import LogLine, Position

GRID = Grid(maximize=True)


def reading(form: str = "json", **more: object) -> MetricsConfig:
    return MetricsConfig.model_validate(
        {"metric": "acc", "direction": "maximize", "stepKey": "epoch", "format": form, "container": "train", **more}
    )


def cri(text: str, flag: str = "F", stream: str = "stdout", at: int = 0) -> bytes:
    return f"2026-11-21T02:54:{at % 60:02d}.{at:09d}Z {stream} {flag} {text}\n".encode()


def step_lines(first: int, last: int) -> bytes:
    return b"".join(cri(f'{{"epoch": {n}, "acc": {n / 1000}}}', at=n) for n in range(first, last + 1))


NAN = math.nan
LINES = [
    ("json", '{"epoch": 3, "acc": 0.5}', [(3, 0.5)]),
    ("json", 'INFO {"epoch": 3, "acc": "0.5"} done', [(3, 0.5)]),
    ("json", '{"acc": 0.5}', [(None, 0.5)]),
    ("json", '{"epoch": 1, "acc": NaN}', [(1, NAN)]),
    ("json", '10%\r20%\r{"epoch": 2, "acc": 0.25}', [(2, 0.25)]),
    ("json", '{"epoch": 1, "loss": 0.5}', []),
    ("json", '{"epoch": 1, "acc": true}', []),
    ("json", '{"epoch": 1, "acc": ', []),
    ("json", "[1, 2]", []),
    ("json", '{"acc": -1' + "0" * 400 + "}", [(None, -math.inf)]),
    ("json", '{"acc": 1.5e308}', [(None, 1.5e308)]),
    ("json", "{" * 5000, []),
    ("text", "epoch=3 acc=0.5", [(3, 0.5)]),
    ("text", "Epoch 3/10: acc: 5e-1, loss=2", [(3, 0.5)]),
    ("text", "epoch=4", [(4, None)]),
    ("text", "acc = -inf", [(None, -math.inf)]),
    ("text", "accuracy=0.9 macc=1", []),
    ("huggingface", "{'loss': 1.5, 'acc': 0.5, 'epoch': 0.25}", [(0.25, 0.5)]),
    ("huggingface", " 33%|## | 1/3 [00:10<00:20]{'acc': nan, 'epoch': 1.0}", [(1, NAN)]),
    ("huggingface", "{'acc': '0.5', 'epoch': '1.0'}", [(1, 0.5)]),
    ("huggingface", "{'acc': __import__('os')}", []),
]


@pytest.mark.parametrize(("form", "line", "expected"), LINES)
def test_the_values_of_a_line(form: str, line: str, expected: list[tuple[float | None, float | None]]) -> None:
    assert repr(line_reader(reading(form))(line)) == repr(
        [ParsedLine(None if s is None else float(s), None if v is None else float(v)) for s, v in expected]
    )


OTHERS = [
    ("json", '{"epoch": 3, "acc": 0.5, "loss": 2, "x": 1}', [ParsedLine(3, 0.5, (AdditionalValue("loss", 3, 2),))]),
    (
        "json",
        '{"epoch": 3, "eval": {"f1": 0.25}, "loss": 2}',
        [ParsedLine(None, None, (AdditionalValue("loss", 3, 2), AdditionalValue("eval.f1", 3, 0.25)))],
    ),
    ("json", '{"loss": NaN}', [ParsedLine(None, None, (AdditionalValue("loss", None, NAN),))]),
    ("json", '{"epoch": 3, "acc": 0.5, "loss": null}', [ParsedLine(3, 0.5)]),
    ("json", '{"loss": "low", "eval.f1": true}', []),
    ("json", '{"loss": 1}\r{"loss": 2}', [ParsedLine(None, None, (AdditionalValue("loss", None, 2),))]),
    ("text", "epoch=3 loss=0.5", [ParsedLine(3, None, (AdditionalValue("loss", 3, 0.5),))]),
    (
        "text",
        "Epoch 3/10: acc: 5e-1, loss=inf eval.f1=1",
        [ParsedLine(3, 0.5, (AdditionalValue("loss", 3, math.inf), AdditionalValue("eval.f1", 3, 1)))],
    ),
    ("text", "loss=2 then loss=1", [ParsedLine(None, None, (AdditionalValue("loss", None, 1),))]),
    ("text", "gloss=2 loss_2=1 loss=high", []),
    ("huggingface", "{'loss': 1.5, 'epoch': 0.25}", [ParsedLine(None, None, (AdditionalValue("loss", 0.25, 1.5),))]),
    (
        "huggingface",
        "9%{'eval.f1': nan, 'acc': 1, 'epoch': 2}",
        [ParsedLine(2, 1, (AdditionalValue("eval.f1", 2, NAN),))],
    ),
]


@pytest.mark.parametrize(("form", "line", "expected"), OTHERS)
def test_the_additional_metrics_of_a_line(form: str, line: str, expected: list[ParsedLine]) -> None:
    found = line_reader(reading(form, additional=["loss", "eval.f1"]))(line)
    assert repr(found) == repr([floats(one) for one in expected])


def floats(seen: ParsedLine) -> ParsedLine:
    """As a reader gives them: no whole numbers."""
    others = tuple(
        AdditionalValue(o.metric, None if o.step is None else float(o.step), float(o.value)) for o in seen.additional
    )
    return ParsedLine(
        None if seen.step is None else float(seen.step), None if seen.value is None else float(seen.value), others
    )


def test_a_filter_without_its_groups_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no group value"):
        line_reader(reading("text", filter=r"(?P<name>\w+) is .*"))


def test_a_filter_of_the_user() -> None:
    read = line_reader(reading("text", filter=r"(?P<name>\w+) is (?P<value>[\d.]+)"))
    assert read("epoch is 2 and acc is 0.75") == [ParsedLine(2.0, 0.75)]
    both = line_reader(reading("text", filter=r"(?P<name>\w+) is (?P<value>[\d.]+)", additional=["loss"]))
    assert both("epoch is 2, loss is 3 and acc is 0.75") == [
        ParsedLine(2.0, 0.75, (AdditionalValue("loss", 2.0, 3.0),))
    ]


def test_pieces_are_put_together_per_stream_and_a_restart_begins_before_them() -> None:
    data = [cri("a", "P"), cri("x", "P", "stderr"), cri("b", "F"), cri("y", "F", "stderr"), cri("tail", "P")]
    assembler = Assembler(100)
    lines = [line for piece in data for line in assembler.feed(piece)]
    assert [(line.stream, line.text) for line in lines] == [("stdout", "ab"), ("stderr", "xy")]
    assert assembler.safe == 100 + sum(map(len, data[:4]))
    assert lines[0].time == pytest.approx(1795229640.0, abs=1)


def test_bytes_may_come_in_any_pieces() -> None:
    data = step_lines(1, 5)
    assembler = Assembler(0)
    lines = [line for byte in data for line in assembler.feed(bytes([byte]))]
    assert len(lines) == 5
    assert assembler.safe == len(data)


@pytest.fixture
def follow(request: pytest.FixtureRequest) -> Callable[..., Tail]:
    """A tail that is closed after the test."""

    def make(folder: Path, position: Position | None = None) -> Tail:
        tail = Tail(folder, position or Position())
        request.addfinalizer(tail.close)
        return tail

    return make


def lines_of(tail: Tail) -> list[LogLine]:
    lines: list[LogLine] = []
    while True:
        batch = tail.read()
        lines += batch.lines
        if not batch.more:
            return lines


def write(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def rotate(folder: Path, stamp: str, pack: str | None = None) -> None:
    (folder / "0.log").rename(folder / f"0.log.{stamp}")
    if pack is not None:
        old = folder / f"0.log.{pack}"
        with gzip.open(f"{old}.gz", "wb") as file:
            file.write(old.read_bytes())
        old.unlink()


SCRIPT = [
    lambda f: write(f / "0.log", step_lines(1, 7)),
    lambda f: write(f / "0.log", step_lines(8, 9)),
    lambda f: (write(f / "0.log", step_lines(10, 12)), rotate(f, "20261121-020000")),
    lambda f: write(f / "0.log", step_lines(13, 15)),
    lambda f: (write(f / "0.log", step_lines(16, 18)), rotate(f, "20261121-020010", pack="20261121-020000")),
    lambda f: write(f / "0.log", step_lines(19, 20) + cri('{"epoch": 21,', "P")),
    lambda f: write(f / "0.log", cri(' "acc": 0.9}')),
    lambda f: rotate(f, "20261121-020020", pack="20261121-020010"),
    lambda f: write(f / "0.log", step_lines(22, 25)),
]


@pytest.mark.parametrize("dies_after", [*range(len(SCRIPT)), None, "always"])
def test_no_line_is_lost_or_read_twice_whenever_the_agent_dies(
    tmp_path: Path, dies_after: int | str | None, follow: Callable[..., Tail]
) -> None:
    """The saved pair is (curve, position), as in one patch; what was read after it is forgotten with the agent."""
    read = line_reader(reading())
    saved = (Curve(), Position())
    tail = follow(tmp_path, saved[1])
    curve = saved[0]
    for number, act in enumerate(SCRIPT):
        act(tmp_path)
        if number == dies_after:
            lines_of(tail)  # read, but never written down
            tail.close()
            curve, tail = saved[0], follow(tmp_path, saved[1])
            continue
        while True:
            batch = tail.read()
            curve = extend(curve, batch.lines, read, GRID)
            saved = (curve, batch.position)
            if dies_after == "always":
                tail.close()
                tail = follow(tmp_path, saved[1])
            if not batch.more:
                break
    for line in lines_of(tail):
        curve = extend(curve, [line], read, GRID)
    assert [point.step for point in curve.points] == [float(n) for n in range(1, 26)]
    assert curve.lines == 25
    assert curve.repeated == 0


def test_a_log_deleted_before_it_was_read_counts_as_lost(tmp_path: Path, follow: Callable[..., Tail]) -> None:
    write(tmp_path / "0.log", step_lines(5, 6))
    tail = follow(tmp_path, Position("0.log", "fingerprint-of-a-file-that-is-gone", 100))
    assert [line.text[:11] for line in lines_of(tail)] == ['{"epoch": 5', '{"epoch": 6']
    assert tail.lost == 1


def test_an_open_log_is_read_to_its_end_although_it_was_deleted(tmp_path: Path, follow: Callable[..., Tail]) -> None:
    write(tmp_path / "0.log", step_lines(1, 2))
    tail = follow(tmp_path, Position())
    assert len(lines_of(tail)) == 2
    write(tmp_path / "0.log", step_lines(3, 4))
    (tmp_path / "0.log").unlink()
    assert len(lines_of(tail)) == 2


def test_a_compressed_log_larger_than_its_text_has_an_end(tmp_path: Path, follow: Callable[..., Tail]) -> None:
    write(tmp_path / "0.log", step_lines(1, 1))
    rotate(tmp_path, "20261121-020000", pack="20261121-020000")
    write(tmp_path / "0.log", step_lines(2, 2))
    tail = follow(tmp_path, Position())
    batches = [tail.read() for _ in range(4)]
    assert [line.end for batch in batches for line in batch.lines] == [len(step_lines(1, 1))] * 2
    assert not batches[-1].more


def test_no_folder_and_no_whole_line_yet(tmp_path: Path, follow: Callable[..., Tail]) -> None:
    tail = follow(tmp_path / "none", Position())
    assert lines_of(tail) == []
    write(tmp_path / "0.log", b"2026-11-21T02:54:00Z stdout F {")
    tail = follow(tmp_path, Position())
    assert lines_of(tail) == []


def test_a_container_that_never_started_is_skipped(tmp_path: Path, follow: Callable[..., Tail]) -> None:
    """A kubelet restarted after it made a container and before it started it makes another: `0.log` stays empty."""
    write(tmp_path / "0.log", b"")
    tail = follow(tmp_path, Position())
    assert lines_of(tail) == []
    write(tmp_path / "1.log", step_lines(1, 3))
    assert len(lines_of(tail)) == 3
    write(tmp_path / "2.log", b"")
    write(tmp_path / "3.log", step_lines(4, 5))
    assert len(lines_of(tail)) == 2


def test_non_finite_values_are_passed_on_and_counted() -> None:
    lines = [LogLine(float(n), "stdout", f'{{"epoch": {n}, "acc": {v}}}', n, n) for n, v in ((1, "0.5"), (2, "NaN"))]
    curve = extend(Curve(), lines, line_reader(reading()), GRID)
    assert [diverged(point.value) for point in curve.points] == [False, True]
    assert curve.diverged == 1


@pytest.mark.parametrize(
    ("texts", "steps"),
    [
        (["acc=0.1", "acc=0.2"], [1, 2]),
        (["epoch=5", "acc=0.1", "epoch=6", "acc=0.2"], [5, 6]),
        (["epoch=5 acc=0.1", "epoch=5 acc=0.2", "epoch=4 acc=0.3"], [5]),
    ],
)
def test_steps_that_are_missing_announced_or_repeated(texts: list[str], steps: list[float]) -> None:
    lines = [LogLine(0.0, "stdout", text, 0, 0) for text in texts]
    assert [point.step for point in extend(Curve(), lines, line_reader(reading("text")), GRID).points] == steps


@pytest.mark.parametrize(
    ("begins_at", "again", "steps", "repeated", "back"),
    [
        (3.0, range(1, 5), [1, 2, 3, 4], 3, 3.0),  # it started from the beginning despite its checkpoint
        (2.0, range(3, 5), [1, 2, 3, 4], 1, 0.0),  # it went on from it
    ],
)
@pytest.mark.parametrize("texts", [("epoch={n}", "acc={v}"), ("epoch={n} acc={v}",)], ids=["two lines", "one line"])
def test_announced_steps_repeated_by_a_later_attempt_are_not_new(
    texts: tuple[str, ...], begins_at: float, again: range, steps: list[float], repeated: int, back: float
) -> None:
    def printed(numbers: range) -> list[LogLine]:
        return [LogLine(0.0, "stdout", t.format(n=n, v=n / 10), 0, 0) for n in numbers for t in texts]

    before = extend(Curve(), printed(range(1, 4)), line_reader(reading("text")), GRID)
    fresh = replace(before, current_step=begins_at, awaiting_first_value=True, step_pending=None)
    curve = extend(fresh, printed(again), line_reader(reading("text")), GRID)
    assert [(point.step, point.value) for point in curve.points] == [(n, n / 10) for n in steps]
    assert (curve.repeated, curve.repeated_steps) == (repeated, back)


@pytest.mark.parametrize(
    ("saved", "steps", "repeated"),
    [
        (1.0, [1, 2, 3, 4], 2),  # two of three are done again
        (1000.0, [1, 2, 3, 4, 5, 6], 0),  # the checkpoint counts iterations, which were not printed
    ],
)
def test_a_value_without_a_step_is_one_step_after_the_last_of_its_attempt(
    saved: float, steps: list[float], repeated: int
) -> None:
    lines = [LogLine(0.0, "stdout", "acc=0.1", 0, 0)] * 3
    before = extend(Curve(), lines, line_reader(reading("text")), GRID)
    curve = extend(
        replace(before, current_step=saved, awaiting_first_value=True), lines, line_reader(reading("text")), GRID
    )
    assert [point.step for point in curve.points] == steps
    assert curve.repeated == repeated
