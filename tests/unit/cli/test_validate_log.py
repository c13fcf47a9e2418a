"""`podium validate --log`: what a job would read from a log, and why other lines yield nothing."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pytest

from podium_cli.exit_codes import Exit
from podium_cli.main import run

ROOT = Path(__file__).parents[3]
JOB = ROOT / "examples" / "digits" / "job.yaml"
LOG = """start
{"epoch": 1, "val_acc": 0.5, "loss": 2}
{"epoch": 2, "val_acc": "1,234"}
{"epoch": 3, "val_acc": 0.75}
{"epoch": 1, "val_acc": 0.875}
"""


def validate(log: Path, *files: Path) -> Exit:
    return run(["validate", *map(str, files or (JOB,)), "--log", str(log)])


def test_the_values_and_the_lines_that_yield_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text(LOG)
    assert validate(log) is Exit.OK
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith(str(log))] == [
        f"{log}: {line}"
        for line in (
            "5 lines, 3 with val_acc; 2 values kept, steps 1 to 3, last 0.75",
            "  line 2: epoch 1, val_acc 0.5",
            "  line 4: epoch 3, val_acc 0.75",
            "  line 5: epoch 1, val_acc 0.875",
            (
                "not kept: 1 value whose epoch is not above an earlier one; print a step that never restarts, "
                "such as the global step"
            ),
            "not read: 1 line without a value of val_acc",
            "  line 3: val_acc is not a key of the JSON object, or its value is not a number: '1,234\"}'",
            '    {"epoch": 2, "val_acc": "1,234"}',
            "additional metric loss: last 2",
        )
    ]


def test_a_log_without_the_metric_fails_and_shows_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text("accuracy 0.5\n\x1b[31mdone\x1b[0m\n")
    assert validate(log) is Exit.FAILED
    out = capsys.readouterr().out
    assert "no line names val_acc; the last lines are:" in out
    assert "additional metrics that no line holds: loss" in out
    assert out.endswith("    done\n")


def test_a_log_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(tmp_path / "missing.log") is Exit.NOT_FOUND
    assert "name a log file" in capsys.readouterr().err
    log = tmp_path / "binary.log"
    log.write_bytes(b"\xff\xfe" * 100)
    assert validate(log) is Exit.FAILED


def test_a_log_that_can_be_read_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A shell passes `<(kubectl logs POD)` as a pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_text, args=(LOG,), daemon=True)
    writer.start()
    assert validate(pipe) is Exit.OK
    writer.join(10)
    assert "5 lines, 3 with val_acc; 2 values kept" in capsys.readouterr().out


def test_one_job_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text(LOG)
    assert validate(log, JOB, JOB) is Exit.USAGE
    assert "name a file with one" in capsys.readouterr().err
