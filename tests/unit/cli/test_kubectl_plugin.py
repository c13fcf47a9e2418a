"""`kubectl podium`: the real kubectl finds the command in $PATH, and completes its words."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from podium_cli.command_table import COMMANDS
from podium_cli.main import run

ROOT = Path(__file__).parents[3]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
CACHED = Path.home() / ".cache/podium/bin"  # of `podium-devcluster`


def kubectl() -> str | None:
    """Return the path of a kubectl: an installed one, or one that the dev cluster has downloaded or built."""
    return shutil.which("kubectl") or next(map(str, sorted(CACHED.glob("**/kubectl"))), None)


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A folder with the two programs, as pip would install them."""
    for name in ("kubectl-podium", "kubectl_complete-podium"):
        module, _, function = SCRIPTS[name].partition(":")
        script = tmp_path / name
        script.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
        script.chmod(0o755)
    return tmp_path


def call(plugin: Path, *words: str) -> tuple[int, str]:
    program = kubectl()
    assert program is not None
    environment = os.environ | {"PATH": f"{plugin}:{os.environ['PATH']}", "COLUMNS": "80"}
    done = subprocess.run([program, *words], capture_output=True, text=True, env=environment, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(kubectl() is None, reason="needs kubectl")
def test_kubectl_runs_the_command_and_completes_its_words(plugin: Path) -> None:
    assert call(plugin, "podium", "best", "--sample", "-o", "args") == (
        0,
        "--lr=0.005406 --width=64 --batch=64 --activation=tanh\n",
    )
    code, text = call(plugin, "podium", "get", "--help")
    assert code == 0
    assert "Usage: kubectl podium get [OPTIONS] COMMAND" in text
    assert "  kubectl podium get jobs" in text
    assert not re.search(r"(?<!kubectl )podium get", text), "every example can be pasted"
    code, text = call(plugin, "podium", "gte", "jobs")
    assert code == 2
    assert "Try 'kubectl podium --help'" in text
    assert "Did you mean 'get'?" in text
    assert "jobs\n" in call(plugin, "__complete", "podium", "get", "")[1]
    assert "--until-done\n" in call(plugin, "__complete", "podium", "watch", "--until")[1]
    assert call(plugin, "podium", "best")[0] == 2, "the exit code is that of the command"


def test_the_help_shows_the_name_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(program: str, *words: str) -> str:
        assert run([*words, "--help"], program) == 0
        return " ".join(capsys.readouterr().out.replace("│", " ").split())

    for words in ([], *([entry.name] for entry in COMMANDS), ["get", "jobs"]):
        plain, plugin = shown("podium", *words), shown("kubectl podium", *words)
        assert "kubectl podium" not in plain
        assert re.findall(r"(?<!kubectl )\bpodium (?:get|watch|run|simulate|drain|realtime) ", plugin) == []
        assert plugin.replace("kubectl podium", "podium") == plain
    assert "$(kubectl podium best digits -o args)" in shown("kubectl podium", "best")
    assert "`kubectl podium COMMAND --help`" in shown("kubectl podium")
