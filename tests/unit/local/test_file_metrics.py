"""Files with metrics on this machine: growing, cut, replaced and hostile ones, and those of a parent."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from event_files import append, event

from podium_core.curves.growing_curve import Curve, extend
from podium_core.curves.thinning import Grid
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.batch import CHUNK, Position
from podium_local.clock import SteadyClock
from podium_local.metrics.source import Source, open_source, skip_present

START = Position()


def opened(path: Path, position: Position = START, **more: Any) -> Source:
    given = {"metric": "acc", "direction": "maximize", "container": "main", "source": "file", "path": str(path)}
    metrics = MetricsConfig.model_validate(given | more)
    return open_source(metrics, path.parent / "log", position, SteadyClock(), lambda: None)


def texts(source: Source, *, complete: bool = False) -> list[str]:
    found: list[str] = []
    while True:
        batch = source.read(1000.0, complete=complete)
        found += [line.text for line in batch.lines]
        if not batch.more:
            return found


def steps(source: Source) -> list[float]:
    """Return the steps of the curve of what is there."""
    curve, grid = Curve(), Grid(maximize=True)
    while True:
        batch = source.read(1000.0, complete=True)
        curve = extend(curve, batch.lines, source.parse, grid)
        if not batch.more:
            return [point.step for point in curve.points]


def test_a_later_reader_continues_and_a_file_that_shrank_begins_again(tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    source = opened(file)
    assert texts(source) == []
    assert f"metrics.path {file}: the file does not exist" in source.explain()
    file.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert texts(source) == ['{"step": 1}', '{"step": 2}']
    position = source.position
    source.close()
    source = opened(file, position)
    with file.open("a") as more:
        more.write('ep": 3}')
    assert texts(source) == []
    assert texts(source, complete=True) == ['{"step": 3}']
    file.write_text('{"step": 9}\n')
    assert texts(source) == ['{"step": 9}']
    file.unlink()
    assert texts(source) == []
    file.write_text('{"step": 11}\n')
    assert texts(source) == ['{"step": 11}'], "a file that was removed and written again"
    source.close()


def test_a_table_continues_with_its_columns(tmp_path: Path) -> None:
    file = tmp_path / "m.csv"
    file.write_text("acc,step\n0.5,1\n")
    source = opened(file, format="csv")
    assert steps(source) == [1.0]
    later = opened(file, source.position, format="csv")
    with file.open("a") as more:
        more.write("0.75,2\n")
    assert steps(later) == [2.0]
    for one in (source, later):
        one.close()


@pytest.mark.parametrize("how", ["file", "csv", "tensorboard"])
def test_what_a_parent_wrote_is_not_a_value_of_its_child(tmp_path: Path, how: str) -> None:
    path = tmp_path / "copied"
    more: dict[str, Any] = {"format": "csv"} if how == "csv" else {}

    def write(step: int) -> None:
        if how == "tensorboard":
            append(path / "events.out.tfevents.1", event(step, acc=step / 8))
            return
        with path.open("a") as file:
            if how == "csv":
                file.write(("step,acc\n" if file.tell() == 0 else "") + f"{step},{step / 8}\n")
            else:
                file.write(json.dumps({"step": step, "acc": step / 8}) + "\n")

    write(1)
    write(2)
    source = opened(path, source="tensorboard" if how == "tensorboard" else "file", **more)
    skip_present(source, 1000.0)
    write(3)
    assert steps(source) == [3.0]
    source.close()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (os.mkfifo, "is not a regular file"),
        (Path.mkdir, "is not a regular file"),
        (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    ],
    ids=["a FIFO", "a folder", "a loop", "a device"],
)
def test_what_is_not_a_file_is_not_opened(tmp_path: Path, make: Callable[[Path], None], why: str) -> None:
    make(tmp_path / "m.jsonl")
    source = opened(tmp_path / "m.jsonl")
    assert texts(source, complete=True) == []
    assert why in source.explain()


def test_an_endless_file_costs_one_chunk_a_read(tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    with file.open("wb") as hole:
        hole.truncate(1 << 40)
    source = opened(file)
    for _ in range(20):
        batch = source.read(1000.0, complete=False)
        assert sum(len(line.text) for line in batch.lines) <= CHUNK * 20
        assert batch.more
    source.close()


def test_events_have_the_time_of_the_script_but_never_one_to_come(tmp_path: Path) -> None:
    clock = SteadyClock()
    now = clock.now()
    append(tmp_path / "tb" / "events.out.tfevents.1", event(1, now - 50.0, acc=0.5) + event(2, now + 1e6, acc=0.6))
    metrics = {"metric": "acc", "direction": "maximize", "container": "main", "source": "tensorboard"}
    source = open_source(
        MetricsConfig.model_validate(metrics | {"path": str(tmp_path / "tb")}),
        tmp_path / "log",
        Position(),
        clock,
        lambda: None,
    )
    first, second = source.read(now, complete=False).lines
    assert first.time == pytest.approx(now - 50.0, abs=1.0)
    assert second.time == now
    source.close()
