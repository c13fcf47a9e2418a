"""Command line without a cluster: exit codes, messages, help, files."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer

from podium import __version__
from podium_cli.command_group import load
from podium_cli.command_table import COMMANDS, CommandEntry
from podium_cli.exit_codes import Exit
from podium_cli.main import run
from podium_cli.options import names


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["report"], Exit.USAGE, "JobNameRequired"),
        (["get", "trials"], Exit.USAGE, "JobNameRequired"),
        (["best"], Exit.USAGE, "JobNameRequired"),
        (["watch", "x", "--kubeconfig", "/nowhere/config"], Exit.USAGE, "KubeconfigMissing"),
        (["report", "--from-files", "/nowhere"], Exit.NOT_FOUND, "FolderNotFound"),
        (["report", "--sample", "-o", "/nowhere/report.html"], Exit.FAILED, "FileNotWritten"),
        (["report", "--sample", "other"], Exit.NOT_FOUND, "JobNotFound"),
        (["validate", "/nowhere/job.yaml"], Exit.NOT_FOUND, "FileUnreadable"),
        (["validate", "/dev/null"], Exit.NOT_FOUND, "FileUnreadable"),
    ],
)
def test_every_refusal_has_a_code_and_a_sentence(
    arguments: list[str], code: Exit, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) is code
    assert f"podium: {message}: " in capsys.readouterr().err


def test_the_help_of_all_commands_imports_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together the commands import nearly all of Podium, which takes most of a second."""
    monkeypatch.setenv("COLUMNS", "200")
    program = "import sys; from podium_cli.main import run; run(sys.argv[1:]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=True)
    *shown, modules = done.stdout.splitlines()
    for entry in COMMANDS:
        assert any(entry.name in line and entry.summary in line for line in shown)
    assert not {"pydantic", "kubernetes", "aiohttp", "numpy", "optuna", "scipy", "jinja2"} & set(modules.split())


def test_a_command_imports_only_what_it_needs() -> None:
    program = "import sys; from podium_cli.main import run; run(sys.argv[1:]); print(*sys.modules)"
    command = [sys.executable, "-c", program, "watch", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not {"optuna", "scipy", "jinja2", "podium_cli.commands.report"} & set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_the_list_of_commands_has_the_first_sentence_of_each(entry: CommandEntry) -> None:
    command = load(entry.name)
    assert command.name == entry.name
    assert command.help.split("\n\n")[0] == entry.summary


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["wach"], "No such command 'wach'. Did you mean 'watch'?"),
        (["bset"], "No such command 'bset'. Did you mean 'best'?"),
        (["log"], "No such command 'log'. Did you mean 'logs'?"),
        (["get", "trails"], "No such command 'trails'. Did you mean 'trials'?"),
        (["watch", "x", "--until-don"], "No such option: --until-don. Did you mean '--until-done'?"),
        (["simulate", "--polcy", "envelope"], "No such option: --polcy. Did you mean '--policy'?"),
        (["get", "trials", "x", "--sortby", "value"], "No such option: --sortby. Did you mean '--sort-by'?"),
    ],
)
def test_a_mistyped_word_is_refused_with_a_suggestion(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) is Exit.USAGE
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["logs"], ["suspend"]])
def test_a_missing_job_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) is Exit.USAGE
    assert "Missing argument '" in capsys.readouterr().err


def test_an_unreachable_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config"
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "t"}}
    content = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "x"}
    config.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **content}))
    assert run(["watch", "x", "--kubeconfig", str(config)]) is Exit.CLUSTER
    assert "Unreachable" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nonsense"], ["thaw"], ["thaw", "node-a", "--all"], ["watch"], []])
def test_a_usage_error_has_a_code(arguments: list[str]) -> None:
    assert run(arguments) is Exit.USAGE


@pytest.mark.parametrize("time", ["-1", "nan", "5m"])
@pytest.mark.parametrize("arguments", [["drain", "n", "--wait"], ["thaw", "n", "--wait"], ["watch", "x", "--timeout"]])
def test_an_invalid_time_is_refused_with_its_option(
    arguments: list[str], time: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, time]) is Exit.USAGE
    assert f"Invalid value for '{arguments[-1]}': seconds must be at least 0 (got {time})" in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) is Exit.OK
    assert capsys.readouterr().out == f"podium {__version__}\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_a_success(unbuffered: str) -> None:
    program = "import sys; from podium_cli.main import main; main()"
    command = [sys.executable, "-c", program, "summary", "--sample"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        started.stdout.close()
        assert started.stderr.read() == b""
    assert started.returncode == Exit.OK


def every(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield the command and all commands below it, with the words that call them."""
    yield name, command
    for inner in getattr(command, "commands", {}).values():
        yield from every(f"{name} {inner.name}", inner)


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_help_of_every_command_has_examples_and_fits_a_terminal(
    entry: CommandEntry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words, command in every(f"podium {entry.name}", load(entry.name)):
        assert run([*words.split()[1:], "--help"]) is Exit.OK
        text = capsys.readouterr().out
        examples = text.partition("Examples:")[2]
        assert f"  {words}" in examples or f"&& {words}" in examples or f"| {words}" in examples
        assert "Exit codes:" in examples
        assert [line for line in text.splitlines() if len(line) > 80] == []
        for example in command.epilog.partition("\n\n")[0].splitlines():
            assert example in [line[1:].rstrip() for line in text.splitlines()], "an example is in one line"
        assert [one.name for one in command.params if not one.help] == [], words


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("podium dr", ["drain"]),
        ("podium get ", ["jobs", "trials", "gpus", "queues"]),
        ("podium get trials digits --sort-by s", ["steps", "suspensions"]),
        ("podium b", ["best"]),
        ("podium best digits -o ", ["table", "json", "yaml", "args"]),
        ("podium logs digits-3 --prev", ["--previous"]),
        ("podium simulate --policy h", ["hermes", "hyperband"]),
        ("podium simulate --method cuda", ["cuda-checkpoint"]),
        ("podium plan job.yaml -o ", ["table", "json", "yaml"]),
        ("podium watch --until", ["--until-done"]),
    ],
)
def test_shells_complete_commands_options_and_values(
    words: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_PODIUM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - (not words.endswith(" "))))
    assert run([]) is Exit.OK
    assert capsys.readouterr().out.split() == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_shown(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_PODIUM_COMPLETE", f"source_{shell}")
    assert run([]) is Exit.OK
    assert "_PODIUM_COMPLETE" in capsys.readouterr().out


def test_job_names_are_completed_from_the_cluster_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async def known(session: object, resource: object) -> list[str]:
        return ["digits", "sweep"]

    async def silent(session: object, resource: object) -> list[str]:
        await asyncio.sleep(60)
        return ["digits"]

    context = SimpleNamespace(params={"namespace": None, "kubeconfig": None, "context": None})
    monkeypatch.setattr(logging, "disable", lambda: None)
    monkeypatch.setattr(names, "_list", known)
    assert names.job_names(cast(typer.Context, context), "d") == ["digits"]
    assert names.node_names(cast(typer.Context, context), "") == ["digits", "sweep"]
    monkeypatch.setattr(names, "SECONDS", 0.01)
    monkeypatch.setattr(names, "_list", silent)
    assert names.trial_names(cast(typer.Context, context), "") == []
