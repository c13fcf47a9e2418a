"""Every command of docs/simulation.md runs, in the order of the page, and writes what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from podium_cli import main
from podium_cli.exit_codes import Exit

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "simulation.md"


def test_every_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(commands) >= 4
    for command in commands:
        assert command[0] == "podium"
        assert main.run(command[1:]) is Exit.OK, shlex.join(command)
    assert {path.name for path in tmp_path.iterdir()} == {"examples", "simulation.html", "last.jsonl"}
    assert "all done after" in capsys.readouterr().out


def test_every_option_of_the_page_exists(capsys: pytest.CaptureFixture[str]) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE.read_text()))
    told = ""
    for command in ("simulate", "plan", "export"):
        with pytest.raises(SystemExit):
            main.run([command, "--help"])
        told += capsys.readouterr().out
    told += (ROOT / "benchmarks" / "bench_reality.py").read_text()
    assert {option for option in named if option not in told} == set()
