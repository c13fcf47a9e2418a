"""Curves from CSV tables and TensorBoard folders: what is read, and every no with its cure."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from podium.curves.wire import diverged
from podium.simulation.recorded import RecordingError
from podium.simulation.sources import Reading, read_all

TABLE = """trial,step,value,seconds,lr,kind
a,1,0.5,10,0.1,relu
b,1,0.4,12,0.2,tanh
a,3,,31,0.1,relu
a,2,0.6,20,0.1,relu
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "own-search.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_is_sorted_by_trial_and_step(tmp_path: Path) -> None:
    (found,) = read_all([written(tmp_path, TABLE)], Reading(maximize=False, metric="loss"))
    assert (found.task, found.family, found.metric, found.maximize) == ("own-search", "own", "loss", False)
    first, second = found.trials
    assert (first.name, first.steps, first.seconds) == ("a", (1.0, 2.0, 3.0), (10.0, 20.0, 31.0))
    assert first.values[:2] == (0.5, 0.6)
    assert diverged(first.values[2])
    assert first.values[2] > 0.0, "not finite = the worst; a loss that is as large as can be"
    assert dict(second.hparams) == {"lr": 0.2, "kind": "tanh"}


NOS = [
    ("trial,step,value\na,1,0.5\n", "has no seconds"),
    ("", "no header; the first line must name trial,step,value,seconds"),
    ("trial,step,value,seconds\n", "a header and no line"),
    ("trial;step;value;seconds\na;1;0.5;1\n", r"header \(trial;step;value;seconds\) has no trial, .* with commas"),
    ("trial,step,value,seconds\n,1,0.5,1\n", "line 2: trial is empty"),
    ("trial,step,value,seconds\na,1,0,5,1\n", "line 2: more fields than the header names"),
    ('trial,step,value,seconds\na,1,"0,5",1\n', "line 2: value '0,5' is no number"),
    ("trial,step,value,seconds\na,1,nan,1\na,2,,2\n", "not one of its values of value is a finite number"),
    ("trial,step,value,seconds\na,x,0.5,1\n", "line 2: step and seconds must be numbers"),
    ("trial,step,value,seconds\na,1,0.5,nan\n", "line 2: step and seconds must be finite"),
    ("trial,step,value,seconds\na,1,0.5,5\na,2,0.5,4\n", "trial a: seconds must increase"),
    ("trial,step,value,seconds\na,1,0.5,5\na,1,0.6,6\n", "trial a: step must increase"),
    ("trial,step,value,seconds\na,0,0.5,0\n", "first evaluation is at 0 seconds"),
]


@pytest.mark.parametrize(("text", "told"), NOS, ids=[row[1][:20] for row in NOS])
def test_every_no_names_the_place(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=told):
        read_all([written(tmp_path, text)], Reading())


def test_a_folder_may_hold_both_formats(tmp_path: Path) -> None:
    written(tmp_path, TABLE)
    line = (
        '{"task": "x", "metric": "m", "goal": "maximize"}\n{"trial": "t", "seconds": [1], "value": [2], "step": [5]}\n'
    )
    (tmp_path / "x.jsonl").write_text(line)
    tasks = read_all([tmp_path], Reading())
    assert [found.task for found in tasks] == ["x", "own-search"]
    assert tasks[0].trials[0].steps == (5.0,)


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"{}\n" * 99)[:-9], b"{}\n", gzip.compress(b"x")[:10] + b"\xff" * 9],
    ids=["cut", "not packed", "broken"],
)
def test_a_gzip_file_that_is_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl.gz").write_bytes(content)
    with pytest.raises(RecordingError, match="no whole gzip file"):
        read_all([tmp_path / "x.jsonl.gz"], Reading())
