"""`podium capacity`: tables and JSON from numbers and traces, every refusal with its code, and no extra at start."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from podium_cli.exit_codes import Exit
from podium_cli.main import run

TRACE = "timestamp,duration,num_gpus\n2026-01-01T00:00:00,100,1\n2026-01-01T00:00:10,100,2\n2026-01-01T00:00:20,5,1\n"


def test_a_table_from_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["capacity", "--rate", "120/h", "--service", "30m", "--wait", "5m"]) is Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "64 GPUs (60.00 busy on average, load 0.938): mean wait at most 300 s."
    assert lines[1] == "Method: Erlang C (M/M/c, exact)."
    assert lines[3].split() == ["GPUS", "LOAD", "WAITS", "MEAN", "WAIT", "P95", "WAIT"]
    assert [line.split()[0] for line in lines[4:]] == ["62", "63", "64", "65", "66"]
    assert lines[5].endswith("too few")
    assert lines[6] == "64    0.938  50.7 %  3 m 48 s   17 m 22 s  <- enough"


@pytest.mark.parametrize(
    ("options", "gpus", "method"),
    [
        (["--rate", "120/h", "--service", "30m", "--wait", "5m"], 64, "Erlang C (M/M/c, exact)"),
        (["--rate", "2/min", "--service", "1800", "--wait", "300s"], 64, "Erlang C (M/M/c, exact)"),
        (["--offered", "60", "--service", "0.5h", "--wait", "5 min"], 64, "Erlang C (M/M/c, exact)"),
        (["--offered", "8", "--service", "1s", "--lost", "0.2356"], 8, "Erlang B (M/G/c/c, exact)"),
        (["--offered", "8", "--service", "1s", "--lost", "0.2355"], 9, "Erlang B (M/G/c/c, exact)"),
        (["--offered", "8", "--service", "1s", "--lost", "0.2356", "--gpus-per-job", "4"], 32, None),
        (["--offered", "3.6", "--service", "1s", "--wait", "1.97s"], 4, None),  # M/M/4 at load 0.9: 1.969383
        (["--offered", "3.6", "--service", "1s", "--wait", "1.96s"], 5, None),
        (["--offered", "3.6", "--service", "1s", "--wait", "1.97s", "--service-c2", "1.1"], 5, None),
        (["--offered", "0.9", "--service", "1s", "--wait", "0", "--share", "0.09"], 1, None),  # 10 % do not wait
    ],
)
def test_json_from_numbers(
    options: list[str], gpus: int, method: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["capacity", *options, "-o", "json"]) is Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert found["gpus"] == gpus
    assert method in (None, found["method"])
    assert next(row for row in found["rows"] if row["gpus"] == gpus)["meets"] is True


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_a_trace_is_replayed(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(TRACE.encode()) if name.endswith("gz") else TRACE.encode())
    # 2 GPUs: the pair waits 90 s for the first job, the third 180 s for the pair; 3: only the third waits, 80 s
    for wait, gpus in (("90s", 2), ("89s", 3), ("26s", 4)):
        assert run(["capacity", "--trace", str(path), "--wait", wait, "-o", "json"]) is Exit.OK
        found = json.loads(capsys.readouterr().out)
        assert found["gpus"] == gpus
        assert found["method"] == "replay of the trace (FCFS, exact; c2 0 of arrivals, 0.43 of run times)"
    by_gpus = {row["gpus"]: row["meanWaitSeconds"] for row in found["rows"]}
    assert by_gpus == pytest.approx({2: 90.0, 3: 80.0 / 3.0, 4: 0.0, 5: 0.0, 6: 0.0})


def test_no_infinity_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["capacity", "--offered", "1", "--service", "1s", "--wait", "9s", "-o", "json"]) is Exit.OK
    assert "Infinity" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        (["--rate", "1/s", "--wait", "1s"], Exit.USAGE, "ServiceTimeRequired: --service"),
        (["--rate", "1/s", "--service", "0s", "--wait", "1s"], Exit.USAGE, "TooSmall: --service"),
        (["--rate", "0/s", "--service", "1s", "--wait", "1s"], Exit.FAILED, "TooSmall: rate"),
        (
            ["--offered", "nan", "--service", "1s", "--wait", "1s"],
            Exit.USAGE,
            "OutOfRange: --offered: must be a finite number greater than 0 (got nan)",
        ),
        (
            ["--offered", "-3", "--service", "1s", "--wait", "1s"],
            Exit.USAGE,
            "OutOfRange: --offered: must be a finite number greater than 0 (got -3)",
        ),
        (
            ["--offered", "inf", "--service", "1s", "--wait", "1s"],
            Exit.USAGE,
            "OutOfRange: --offered: must be a finite number greater than 0 (got inf)",
        ),
        (["--offered", "1", "--service", "1s", "--wait", "0"], Exit.FAILED, "TooSmall: wait"),
        (["--offered", "1", "--service", "1s", "--wait", "1s", "--share", "2"], Exit.FAILED, "OutOfRange: share"),
        (["--offered", "1", "--service", "1s", "--lost", "2"], Exit.FAILED, "OutOfRange: lost"),
        (["--offered", "1", "--service", "1s", "--lost", "0.1", "--share", "0.5"], Exit.USAGE, "OptionUnused: --share"),
        (
            ["--offered", "1", "--service", "1s", "--wait", "1s", "--gpus-per-job", "0"],
            Exit.USAGE,
            "TooSmall: --gpus-per-job: must be at least 1 (got 0)",
        ),
        (["--offered", "1e9", "--service", "1s", "--wait", "1s"], Exit.FAILED, "TooLarge: gpus"),
        (["--trace", "/nowhere.csv", "--wait", "1s"], Exit.NOT_FOUND, "FileUnreadable: /nowhere.csv"),
        (["--trace", "/dev/null", "--wait", "1s"], Exit.NOT_FOUND, "FileUnreadable: /dev/null: a device, which has no"),
        (["--trace", "/nowhere.csv", "--wait", "1s", "--service", "1s"], Exit.USAGE, "OptionUnused: --service"),
        (["--trace", "/nowhere.csv", "--lost", "0.1"], Exit.USAGE, "OptionUnused: --lost"),
        (
            ["--trace", "/nowhere.csv", "--wait", "1s", "--gpus-per-job", "2"],
            Exit.USAGE,
            "OptionUnused: --gpus-per-job",
        ),
    ],
)
def test_every_refusal_has_a_code_and_a_sentence(
    options: list[str], code: Exit, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["capacity", *options]) is code
    assert f"podium: {expected}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"arrival,duration\n0,1\n1,-5\n", "TooSmall: line 3.duration"),
        (b"arrival,duration\n2026-01-31T12:00:00,1\n5,1\n", "MixedTimes: line 3.arrival: '5' differs from the dates"),
        (b"arrival,seconds_of_work\n0,1\n", "ColumnMissing: duration"),
        (b"\xff\xfe\x00", "FileMalformed"),
        (
            b"arrival,duration\n0,1\n1," + b"5" * 131_073,
            "RowMalformed: line 3.row: the row is not valid CSV (field larger",
        ),
    ],
)
def test_a_wrong_trace_names_its_line(
    content: bytes, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    assert run(["capacity", "--trace", str(path), "--wait", "1s"]) is Exit.FAILED
    assert f"podium: {expected}" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["cut off", "changed"])
def test_a_damaged_gzip_names_the_last_readable_line(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "arrival,duration\n" + "".join(f"{number},{number * 7919 % 1013}\n" for number in range(20_000))
    content = gzip.compress(text.encode())
    half = len(content) // 2
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(content[:half] if damage == "cut off" else content[:half] + b"\xff" * 9 + content[half + 9 :])
    assert run(["capacity", "--trace", str(path), "--wait", "1s"]) is Exit.FAILED
    match = re.search(r"podium: FileMalformed: .*: after line (\d+): the gzip data is cut", capsys.readouterr().err)
    assert match is not None
    assert 1000 < int(match[1]) < 20_000


def test_a_file_that_is_not_gzip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_text(TRACE)
    assert run(["capacity", "--trace", str(path), "--wait", "1s"]) is Exit.FAILED
    assert "podium: FileMalformed: trace.csv.gz: after line 0: the gzip data" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--wait", "1s"],
        ["--rate", "5", "--service", "1s", "--wait", "1s"],
        ["--rate", "5/s", "--service", "soon", "--wait", "1s"],
        ["--rate", "5/s", "--service", "1s"],
        ["--rate", "5/s", "--offered", "3", "--service", "1s", "--wait", "1s"],
    ],
)
def test_a_usage_error_has_a_code(options: list[str]) -> None:
    assert run(["capacity", *options]) is Exit.USAGE


def test_the_command_line_starts_without_the_extra_and_names_the_cure() -> None:
    """In a separate process in which the optimisers cannot be imported."""
    script = (
        "import sys; sys.modules['podium_optimisers'] = None\n"
        "from podium_cli.main import run\n"
        "sys.exit(run(['capacity', '--offered', '1', '--service', '1s', '--wait', '1s']))"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == Exit.FAILED
    assert answer.stderr.startswith("podium: ExtraMissing: ")
    assert "pip install 'kube-podium[optimisers]'" in answer.stderr
