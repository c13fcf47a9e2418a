"""Curves from CSV tables and TensorBoard folders: what is read, and every error with its cure."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from podium_core.curves.non_finite import diverged
from podium_simulator.traces.sources import ReadOptions, needs_goal, read_all
from podium_simulator.traces.trace import TraceError

TABLE = """trial,step,value,seconds,lr,kind
a,1,0.5,10,0.1,relu
b,1,0.4,12,0.2,tanh
a,3,,31,0.1,relu
a,2,0.6,20,0.1,relu
"""
LINES = '{"task": "x", "metric": "m", "goal": "maximize"}\n{"trial": "t", "seconds": [1], "value": [2], "step": [5]}\n'
REAL = Path(__file__).parent / "event_files"


def written(folder: Path, text: str) -> Path:
    path = folder / "own-search.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_is_sorted_by_trial_and_step(tmp_path: Path) -> None:
    (found,) = read_all([written(tmp_path, TABLE)], ReadOptions(maximize=False, metric="loss"))
    assert (found.task, found.family, found.metric, found.maximize) == ("own-search", "own", "value", False)
    first, second = found.trials
    assert (first.name, first.steps, first.seconds) == ("a", (1.0, 2.0, 3.0), (10.0, 20.0, 31.0))
    assert first.values[:2] == (0.5, 0.6)
    assert diverged(first.values[2])
    assert first.values[2] > 0.0, "not finite = the worst; a loss that is as large as can be"
    assert dict(second.hparams) == {"lr": 0.2, "kind": "tanh"}


ERRORS = [
    ("trial,step,value\na,1,0.5\n", "has no seconds"),
    ("", "no header; the first line must name trial,step,value,seconds"),
    ("trial,step,value,seconds\n", "a header and no line"),
    ("trial|step|value|seconds\na|1|0.5|1\n", r"header \(trial\|step\|value\|seconds\) has no trial, .* with commas"),
    ("trial,step,value,seconds\n,1,0.5,1\n", "line 2: trial is empty"),
    ("trial,step,value,seconds\na,1,0,5,1\n", "line 2: more fields than the header names"),
    ('trial,step,value,seconds\na,1,"0,5",1\n', "line 2: value '0,5' is not a number"),
    ("trial,step,value,seconds\na,1,nan,1\na,2,,2\n", "^own-search.csv: not one of its values of value is a finite"),
    (
        "trial,step,value,seconds\na,x,0.5,1\n",
        "line 2: step: 'x' is not a number; write one such as 0.5: step and seconds must be numbers",
    ),
    ("trial,step,value,seconds\na,1,0.5,nan\n", "line 2: seconds is 'nan'; step and seconds must be finite"),
    (
        "trial,step,value,seconds\na,1,0.5,5\na,2,0.5,4\n",
        "trial a: seconds are 5 at step 1, 4 at step 2 and must increase",
    ),
    (
        "trial,step,value,seconds\na,1,0.5,5\na,2,0.5,5\n",
        "trial a: seconds are 5 at step 1, 5 at step 2 and must increase",
    ),
    (
        "trial,step,value,seconds\na,1,0.5,5\na,2,0.5,0\n",
        "trial a: seconds are 5 at step 1, 0 at step 2 and must increase",
    ),
    (
        "trial,step,value,seconds\na,2,0.5,5\na,1,0.5,6\n",
        "trial a: seconds are 6 at step 1, 5 at step 2 and must increase",
    ),
    ("trial,step,value,seconds\na,1,0.5,5\na,1,0.6,6\n", "trial a: step 1 is there twice; keep one line of each step"),
    ("trial,step,value,seconds\na,1,0.5,5\na,1,0.5,5\n", "trial a: step 1 is there twice"),
    ("trial,step,value,seconds\na,0,0.5,-5\na,1,0.6,6\n", "line 2: seconds is -5, less than 0; give the seconds of tr"),
    ("trial,step,value,seconds\na,1,0.5,5\na,-2,0.6,6\n", "line 3: step is -2, less than 0; give the steps since"),
    (
        "trial,step,value,seconds\na,0,0.5,0\na,1,0.5,0\n",
        "trial a: every evaluation is at 0 seconds; training took time",
    ),
    ("trial,step,value,seconds,lr,lr\na,1,0.5,5,1,2\n", "its header names lr more than once; give each column a name"),
    ("trial,step,value,seconds,value\na,1,0.5,5,1\n", "its header names value more than once"),
]


@pytest.mark.parametrize(("text", "message"), ERRORS, ids=[row[1][:50] for row in ERRORS])
def test_every_error_names_the_place(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=message):
        read_all([written(tmp_path, text)], ReadOptions())


def test_evaluations_before_training_are_left_out_and_counted(tmp_path: Path) -> None:
    said: list[str] = []
    table = TABLE + "b,0,0.1,0\na,0,0.1,0.0\n"
    (found,) = read_all([written(tmp_path, table)], ReadOptions(), said.append)
    assert found == read_all([written(tmp_path, TABLE)], ReadOptions(), said.append)[0]
    assert said == ["own-search.csv: 4 of 6 evaluations were read; at 0 seconds, before any training: 2"]


def test_a_spreadsheets_unnamed_columns_are_not_duplicates(tmp_path: Path) -> None:
    (found,) = read_all([written(tmp_path, "trial,step,value,seconds,,\na,1,0.5,5,,\n")], ReadOptions())
    assert dict(found.trials[0].hparams) == {}


def test_impossible_training_times(tmp_path: Path) -> None:
    table = TABLE.replace("a,3,,31", "a,3,,3e300")
    with pytest.raises(TraceError, match=r"csv, trial a: 3e\+300 seconds are more than three years; give 1e\+08 at"):
        read_all([written(tmp_path, table)], ReadOptions())


def test_a_folder_may_hold_both_formats(tmp_path: Path) -> None:
    written(tmp_path, TABLE)
    (tmp_path / "x.jsonl").write_text(LINES)
    tasks = read_all([tmp_path], ReadOptions())
    assert [found.task for found in tasks] == ["x", "own-search"]
    assert tasks[0].trials[0].steps == (5.0,)


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"{}\n" * 99)[:-9], b"{}\n", gzip.compress(b"x")[:10] + b"\xff" * 9],
    ids=["cut", "not packed", "broken"],
)
def test_a_file_that_is_not_gzip(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl.gz").write_bytes(content)
    with pytest.raises(TraceError, match="not a complete gzip file"):
        read_all([tmp_path / "x.jsonl.gz"], ReadOptions())


def test_upper_case_names_and_packed_tables(tmp_path: Path) -> None:
    (tmp_path / "LOSS.CSV").write_text(TABLE)
    (tmp_path / "ok.csv.gz").write_bytes(gzip.compress(TABLE.encode()))
    (tmp_path / "X.JSONL.GZ").write_bytes(gzip.compress(LINES.encode()))
    assert [found.task for found in read_all([tmp_path], ReadOptions())] == ["x", "LOSS", "ok"]
    for name in ("LOSS.CSV", "ok.csv.gz", "X.JSONL.GZ"):
        assert len(read_all([tmp_path / name], ReadOptions())) == 1
    (tmp_path / "X.jsonl.csv").write_text(TABLE)
    assert [found.task for found in read_all([tmp_path], ReadOptions())] == ["x", "LOSS", "X.jsonl", "ok"], "each once"
    assert needs_goal([tmp_path])
    assert not needs_goal([tmp_path / "X.JSONL.GZ"])


def test_a_truncated_packed_table(tmp_path: Path) -> None:
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(TABLE.encode())[:-9])
    with pytest.raises(TraceError, match=r"x.csv.gz: after line \d+: .* not a complete gzip file"):
        read_all([tmp_path / "x.csv.gz"], ReadOptions())


def test_a_file_of_another_kind_is_rejected_with_the_supported_kinds(tmp_path: Path) -> None:
    (tmp_path / "ok.txt").write_text(TABLE)
    with pytest.raises(TraceError, match=r"ok.txt, line 1: not JSON .*; files that are read: .*\.csv\.gz"):
        read_all([tmp_path / "ok.txt"], ReadOptions())
    (tmp_path / "lines.txt").write_text(LINES)
    assert read_all([tmp_path / "lines.txt"], ReadOptions())[0].task == "x", (
        "what is in it counts, where it can be read"
    )


def test_an_event_file_is_rejected_with_its_folder_named() -> None:
    file = next((REAL / "pytorch").rglob("*tfevents*"))
    with pytest.raises(TraceError, match=f"an event file of TensorBoard; name its folder, {file.parent}"):
        read_all([file], ReadOptions())


@pytest.mark.parametrize("name", ["own.csv", "own.jsonl"])
def test_a_folder_of_two_kinds_is_rejected_with_both_named(name: str, tmp_path: Path) -> None:
    shutil.copytree(REAL / "pytorch", tmp_path / "runs")
    (tmp_path / name).write_text(TABLE if name.endswith("csv") else LINES)
    with pytest.raises(TraceError, match=f"it holds {name} and TensorBoard's runs/.*; name the files, or a sub"):
        read_all([tmp_path], ReadOptions(metric="val_acc"))
    found = read_all([tmp_path / "runs", tmp_path / name], ReadOptions(metric="val_acc"))
    assert [len(recording.trials) for recording in found] == [3, 2 if name.endswith("csv") else 1]
