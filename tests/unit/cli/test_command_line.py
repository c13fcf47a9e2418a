"""Command line without a cluster: exit codes, messages, help, files."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import certifi
import pytest
import typer
from kubernetes.aio.config import incluster_config

from podium import __version__
from podium_cli import samples
from podium_cli.command_group import load
from podium_cli.command_table import COMMANDS, CommandEntry
from podium_cli.commands.explain import lines as explanation
from podium_cli.commands.get import ORDERS
from podium_cli.commands.thaw import suspended_trials
from podium_cli.exit_codes import Exit
from podium_cli.main import run
from podium_cli.objects import snapshot_of
from podium_cli.options import names
from podium_cluster import kubeconfig
from podium_core.domain.migration import MigrationPhase
from podium_core.schema.trial import Migration

JOB = """
apiVersion: podium.dev/v1alpha1
kind: HyperParamJob
metadata: {name: sweep, namespace: default}
spec:
  objective: {metric: val_acc, direction: maximize}
  parameters: [{name: lr, min: 1e-4, max: 1e-1, scale: log}]
  trials: {max: 8, parallel: 4, maxSteps: 10}
  template: {spec: {containers: [{name: train, image: "example.invalid/train:1", args: [$(podium.args)]}]}}
"""


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["report"], Exit.USAGE, "JobNameRequired"),
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


@pytest.mark.parametrize("arguments", [["get", "trials"], ["watch"], ["suspend"]])
def test_a_missing_job_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) is Exit.USAGE
    assert "Missing argument 'JOB'." in capsys.readouterr().err


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


def test_a_closed_pipe_is_a_success() -> None:
    program = "import sys; from podium_cli.main import main; main()"
    command = [sys.executable, "-c", program, "summary", "--sample"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
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
        ("podium get ", ["trials", "gpus"]),
        ("podium get trials digits --sort-by s", ["steps", "suspensions"]),
        ("podium simulate --policy h", ["hermes", "hyperband"]),
        ("podium simulate --method cuda", ["cuda-checkpoint"]),
        ("podium plan job.yaml -o ", ["table", "json"]),
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


def test_sample_report_and_summary_need_no_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "sample.html"
    assert run(["report", "--sample", "-o", str(output)]) is Exit.OK
    assert output.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert run(["summary", "--sample"]) is Exit.OK
    assert "digits-9" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["list.json", "many.yaml", "typed-list.json"])
def test_report_from_saved_files(form: str, tmp_path: Path) -> None:
    objects = samples.search_at(600)
    if form == "list.json":
        (tmp_path / form).write_text(json.dumps({"kind": "List", "items": objects}))
    elif form == "many.yaml":
        (tmp_path / form).write_text("\n---\n".join(json.dumps(one) for one in objects))
    else:
        for kind in ("HyperParamJob", "HyperParamTrial", "GPUNode"):
            items = [
                {key: one[key] for key in ("metadata", "spec", "status")} for one in objects if one["kind"] == kind
            ]
            (tmp_path / f"{kind}.json").write_text(json.dumps({"kind": f"{kind}List", "items": items}))
    output = tmp_path / "out.html"
    assert run(["report", "digits", "--from-files", str(tmp_path), "-o", str(output)]) is Exit.OK
    assert "digits-9" in output.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "code", "expected"),
    [
        (("", ""), Exit.OK, "valid"),
        (("name: sweep", "name: Größe"), Exit.FAILED, 'metadata.name: "Größe" is not a valid name'),
        (("name: sweep, ", ""), Exit.FAILED, "metadata.name: is required"),
        (("direction: maximize", "direction: up"), Exit.FAILED, "objective.direction"),
        (("max: 8,", "max: 0,"), Exit.FAILED, "trials.max"),
        (("trials:", "policy: {name: hermes, settings: {nope: 1}}\n  trials:"), Exit.FAILED, "UnknownPolicySetting"),
        (("min: 1e-4", "min: 1"), Exit.FAILED, "lr"),
        (("parameters:", "parameter:"), Exit.FAILED, "parameters"),
        (("template:", "colour: red\n  template:"), Exit.FAILED, "colour"),
    ],
)
def test_validate(
    change: tuple[str, str], code: Exit, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace(*change) if change[0] else JOB)
    assert run(["validate", str(path)]) is code
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: [", "FileMalformed"),
        (b"hello", 'FileMalformed: {path}: document 1 is "hello", not an object with apiVersion and kind'),
        (b"\xff\xfe", "FileMalformed: {path}: not UTF-8 text (byte 0)"),
        (b"", "NothingToValidate: no HyperParamJob in {path}; one starts with apiVersion: podium.dev/v1alpha1"),
        (b"kind: Pod\nmetadata: {name: x}\n", "NothingToValidate"),
    ],
)
def test_validate_a_file_without_a_job(
    content: bytes, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(content)
    assert run(["validate", str(path)]) is Exit.FAILED
    assert expected.format(path=path) in capsys.readouterr().err


def test_validate_reads_the_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(JOB))
    assert run(["validate", "-"]) is Exit.OK
    assert capsys.readouterr().out == "-: sweep: valid\n"


@pytest.mark.parametrize("word", ["017", "yes", "1_0"])
def test_validate_reads_numbers_and_words_as_kubectl_does(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("max: 8,", f"max: {word},"))
    taken = run(["validate", str(path)])
    assert (taken is Exit.OK) is (word != "yes"), capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "ClusterUnreachable: there is no kubeconfig at {path}; name a cluster with --kubeconfig or $KUBECONFIG"),
        ("", "ClusterUnreachable: {path} is not a kubeconfig; "),
        ("[1, 2]", "ClusterUnreachable: {path} is not a kubeconfig; "),
        ("a: [b", "ClusterUnreachable: {path}: while parsing"),
        ("clusters: []", "ClusterUnreachable: {path}: Invalid kube-config file. Expected key current-context"),
    ],
)
def test_an_invalid_kubeconfig_is_named(
    content: str | None,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert run(["watch", "x"]) is Exit.CLUSTER
    printed = capsys.readouterr().err
    assert expected.format(path=path) in printed
    assert printed.count("\n") == 1


def test_an_empty_kubeconfig_variable_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", ":")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert run(["watch", "x"]) is Exit.CLUSTER
    expected = 'ClusterUnreachable: $KUBECONFIG, ":", names no file; name a cluster with --kubeconfig or $KUBECONFIG'
    assert capsys.readouterr().err == f"podium: {expected}\n"


def write_kubeconfig(path: Path, name: str, port: int) -> None:
    """Write a kubeconfig with one context, the current one, and a namespace."""
    content = {
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"of-{name}"}}],
        "users": [{"name": name, "user": {"token": "t"}}],
    }
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **content}))


def test_the_first_of_several_kubeconfigs_names_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for port, name in enumerate(("first", "second"), 1):
        write_kubeconfig(tmp_path / name, name, port)
    (tmp_path / "empty").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", ":".join(f"~/{name}" for name in ("missing", "empty", "first", "second")))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    given = ["--kubeconfig=~/second"]
    for options, space, port in (
        ([], "of-first", 1),
        (["--context", "second"], "of-second", 2),
        (given, "of-second", 2),
    ):
        assert run(["get", "trials", "x", *options]) is Exit.CLUSTER
        printed = capsys.readouterr().err
        assert f"/namespaces/{space}/" in printed
        assert f"127.0.0.1:{port} " in printed


def test_a_command_reads_its_kubeconfig_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client library reads it once more, because it resolves relative paths."""
    write_kubeconfig(tmp_path / "config", "x", 1)
    seen: list[Path] = []
    read = kubeconfig._read
    monkeypatch.setattr(kubeconfig, "_read", lambda path: (seen.append(path), read(path))[1])
    assert run(["get", "trials", "x", "--kubeconfig", str(tmp_path / "config")]) is Exit.CLUSTER
    assert seen == [tmp_path / "config"]


def test_in_a_pod_a_kubeconfig_takes_precedence_over_the_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """kubectl does the same. Nothing listens on the ports 1 and 2 of 127.0.0.1."""
    (tmp_path / "namespace").write_text("of-pod")
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text(Path(certifi.where()).read_text())
    monkeypatch.setattr(kubeconfig, "ACCOUNT", tmp_path)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    write_kubeconfig(tmp_path / "config", "x", 1)
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "2")
    for file, port, space in (("config", 1, "of-x"), ("missing", 2, "of-pod")):
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / file))
        assert run(["get", "trials", "x"]) is Exit.CLUSTER
        printed = capsys.readouterr().err
        assert f"127.0.0.1:{port} " in printed
        assert f"/namespaces/{space}/" in printed
    assert run(["get", "trials", "x", "--context", "other"]) is Exit.CLUSTER
    assert "there is no kubeconfig at" in capsys.readouterr().err


def test_every_sort_order_contains_each_trial_once() -> None:
    snapshot = snapshot_of(samples.search_at(100), None, None, samples.BEGIN)
    names = {trial.metadata.name for trial in snapshot.trials}
    for order in ORDERS.values():
        shown = [trial.metadata.name for trial in order(snapshot)]
        assert len(shown) == len(names)
        assert set(shown) == names
    best = [trial.status.best.value for trial in ORDERS["value"](snapshot) if trial.status.best]
    assert best == sorted(best, reverse=True)


def test_explain_names_the_holder_and_the_position_in_the_run_queue() -> None:
    snapshot = snapshot_of(samples.search_at(100), None, None, samples.BEGIN)
    waiting = next(trial for trial in snapshot.trials if trial.status.phase.value == "Suspended")
    text = "\n".join(explanation(snapshot, waiting))
    assert "Suspended  TimeSliceEnded" in text
    assert "holder       default/digits-" in text
    assert "run queue    position " in text
    assert "resumes      on the same GPUs: " in text
    assert "suspend 0." in text
    assert " s, resume 0." in text
    running = next(trial for trial in snapshot.trials if trial.status.phase.value == "Running")
    assert "resumes  " not in "\n".join(explanation(snapshot, running))
    assert "this trial, for" in "\n".join(explanation(snapshot, running))


def test_explain_shows_the_progress_of_a_live_migration_and_why_it_failed() -> None:
    snapshot = snapshot_of(samples.search_at(100), None, None, samples.BEGIN)
    trial = snapshot.trials[0]
    assert "migration  " not in "\n".join(explanation(snapshot, trial))
    began = snapshot.now - timedelta(seconds=3)
    names = {"sourceNode": "node-1", "targetNode": "node-2", "reason": "Rebalancing", "pod_uid": "u", "attempt": 1}
    migration = Migration(
        phase=MigrationPhase.FAILED, since=began, code="TargetFull", message="none\x1b is free", **names
    )
    changed = trial.model_copy(update={"status": trial.status.model_copy(update={"migration": migration})})
    line = "migration    Failed for 3 s, from node-1 to node-2 (Rebalancing)  TargetFull: none  is free"
    assert line in explanation(snapshot, changed)


def test_each_suspended_trial_is_listed_once() -> None:
    snapshot = snapshot_of(samples.search_at(100), None, None, samples.BEGIN)
    suspended = [trial for trial in snapshot.trials if trial.status.phase.value == "Suspended"]
    assert len(suspended_trials(list(snapshot.nodes))) == len(suspended)
