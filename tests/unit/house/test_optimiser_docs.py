"""The optimisers' pages work: Python blocks and `podium` commands run, and shown output is real."""

from __future__ import annotations

import gzip
import re
import shlex
from pathlib import Path

import pytest

from podium_cli import main
from podium_cli.exit_codes import Exit

DOCS = Path(__file__).parents[3] / "docs"
HOW_TO = ("schedule-tasks", "plan-capacity", "compute-fair-shares", "schedule-arriving-tasks", "simulate-a-workload")
PAGES = [
    *sorted((DOCS / "explanation" / "optimisers").glob("*.md")),
    *(DOCS / "how-to" / f"{name}.md" for name in (*HOW_TO, "train-a-policy")),
]
TASKS = "name,cpu,gpu\nprep,4,\ntrain,90,6\neval,10,3\nplot,3,2\n"
TRACE = "arrival,duration,gpus\n0,600,1\n30,1200,2\n45,60,1\n600,300,4\n"


def blocks(language: str) -> list[tuple[str, str]]:
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [(page.name, block) for page in PAGES for block in fence.findall(page.read_text())]


def commands() -> list[str]:
    lines = [line for _, block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("podium ")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with the files that the pages use."""
    (tmp_path / "tasks.csv").write_text(TASKS)
    (tmp_path / "philly.csv.gz").write_bytes(gzip.compress(TRACE.encode()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("page", "block"), blocks("python"), ids=[page for page, _ in blocks("python")])
def test_python_blocks_run(page: str, block: str, folder: Path) -> None:
    exec(compile(block, page, "exec"), {"__name__": page})


@pytest.mark.parametrize("command", commands())
def test_podium_commands_run(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(shlex.split(command, comments=True)[1:]) is Exit.OK
    assert capsys.readouterr().out.strip()


def test_the_page_shows_the_output_of_capacity(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / "how-to" / "plan-capacity.md").read_text()
    command = next(command for command in commands() if command.startswith("podium capacity"))
    shown = page.split("The first command prints\n\n```\n")[1].split("```")[0]
    assert main.run(shlex.split(command)[1:]) is Exit.OK
    assert capsys.readouterr().out == shown
