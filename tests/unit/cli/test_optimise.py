"""`podium optimise`: table, JSON and page of a schedule, and every refusal."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from podium_cli import main
from podium_cli.exit_codes import Exit

TASKS = "name,cpu,gpu\nprep,4,\ntrain-<b>,90,6\neval,10,3\nplot,3,2\n"


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    path = tmp_path / "tasks.csv"
    path.write_text(TASKS, encoding="utf-8")
    return str(path)


def makespan(tasks: str, *options: str) -> Exit:
    return main.run(["optimise", "makespan", tasks, "--cpus", "2", "--gpus", "1", *options])


def test_table(tasks: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert makespan(tasks) is Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["MACHINE", "TASKS", "ENDS", "RUNS"]
    assert [line.split()[0] for line in lines[1:4]] == ["cpu-0", "cpu-1", "gpu-0"]
    assert "4 tasks on 2 CPUs and 1 GPU, done after 9 s." in lines[-1]


def test_json_holds_a_whole_schedule(tasks: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert makespan(tasks, "-o", "json", "--method", "milp") is Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["method"], found["makespan"], found["cpus"], found["gpus"]) == ("milp", 9.0, 2, 1)
    assert found["lowerBound"] <= found["makespan"]
    assert found["certifiedRatio"] == pytest.approx(found["makespan"] / found["lowerBound"])
    assert found["seconds"] > 0
    placed = {task["name"]: task for task in found["tasks"]}
    assert set(placed) == {"prep", "train-<b>", "eval", "plot"}
    assert (placed["train-<b>"]["machine"], placed["train-<b>"]["seconds"]) == ("gpu-0", 6.0)


def test_page_is_self_contained_and_draws_every_task(tasks: str, tmp_path: Path) -> None:
    output = tmp_path / "gantt.html"
    assert makespan(tasks, "-o", str(output)) is Exit.OK
    page = output.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert not re.search(r"<script|<link|src=|href=|https?:", page)
    assert "train-&lt;b&gt;" in page
    assert "train-<b>" not in page
    bars = [float(width) for width in re.findall(r'width="([\d.]+)" height="16" class="bar', page)]
    lanes = [float(width) for width in re.findall(r'width="([\d.]+)" height="16" class="lane', page)]
    assert (len(bars), len(lanes)) == (4, 3)
    assert max(bars) <= lanes[0]


def test_a_comparison_of_all_methods(tasks: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert makespan(tasks, "--method", "all") is Exit.OK
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert {"dual", "milp", "heft", "list", "genetic"} <= {row[0] for row in rows}
    ends = [float(row[1]) for row in rows]
    assert ends == sorted(ends)
    assert ends[0] == 9.0


def test_methods(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["optimise", "methods"]) is Exit.OK
    assert re.search(r"^heteroprio +a queue by acceleration", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        (
            ["-o", "gantt.png"],
            Exit.USAGE,
            "InvalidOutput: --output: must be table, json, yaml or FILE.html (got gantt.png)",
        ),
        (["-o", "all.html", "--method", "all"], Exit.USAGE, "InvalidOutput: --output: a page shows one schedule"),
        (["--seed", "-1"], Exit.USAGE, "InvalidSeed: --seed: must be at least 0 (got -1)"),
        (["--method", "magic"], Exit.FAILED, "UnknownMethod: method: 'magic' does not exist; use one of dual"),
        (["--cpus", "0", "--gpus", "0"], Exit.FAILED, "NoMachines: cpus, gpus"),
        (["--cpus", "100000000"], Exit.FAILED, "TooManyMachines: cpus: 100000000"),
        (["--gpus", "-1"], Exit.FAILED, "NoMachines: gpus: -1"),
        (["--cpus", "0"], Exit.FAILED, "NoFittingMachine: task prep: cpu, gpu"),
        (["-o", "/nowhere/gantt.html"], Exit.FAILED, "FileNotWritten: /nowhere/gantt.html"),
    ],
)
def test_every_refusal_has_a_code_and_a_sentence(
    tasks: str, options: list[str], code: Exit, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert makespan(tasks, *options) is code
    assert f"podium: {expected}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("name,cpu,gpu\nprep,-4,1\n", "InvalidTime: task prep: cpu: -4 s"),
        ("name,cpu,gpu\nprep,4,nan\n", "InvalidTime: task prep: gpu: nan s"),
        ("task;cpu\n", "InvalidTable: line 1"),
        ("name,cpu,gpu\n" + "x" * 131_073 + ",4,1\n", "InvalidTable: line 2: the row is not valid CSV"),
    ],
)
def test_bad_files(tmp_path: Path, content: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tasks.csv"
    path.write_text(content, encoding="utf-8")
    assert makespan(str(path)) is Exit.FAILED
    assert f"podium: {expected}" in capsys.readouterr().err


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert makespan("/dev/null") is Exit.NOT_FOUND
    assert "FileUnreadable: /dev/null: a device, which has no end; name a CSV file" in capsys.readouterr().err
    assert makespan(str(tmp_path / "none.csv")) is Exit.NOT_FOUND
    assert "FileUnreadable: " in capsys.readouterr().err
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    assert makespan(str(binary)) is Exit.FAILED
    assert "InvalidTable: " in capsys.readouterr().err


def test_without_the_extra_the_command_line_starts_and_names_the_package(tasks: str) -> None:
    """In a fresh interpreter in which scipy cannot be imported."""
    program = "import sys; sys.modules['scipy'] = None; from podium_cli.main import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", program]
    usage = subprocess.run(
        [*command, "optimise", "makespan", tasks, "--cpus", "1", "--gpus", "1"], capture_output=True, text=True
    )
    assert usage.returncode == Exit.FAILED
    assert "OptimisersNotInstalled: the optimisers need scipy" in usage.stderr
    assert "pip install 'kube-podium[cli,optimisers]'" in usage.stderr
    assert subprocess.run([*command, "validate", "--help"], capture_output=True).returncode == 0
