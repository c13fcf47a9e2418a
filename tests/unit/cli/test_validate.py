"""What `podium validate` says of a job, of a file without one, and of the standard input."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from podium_cli.exit_codes import Exit
from podium_cli.main import run

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
        (b"", "NothingToValidate: no HyperParamJob and no GPUQueue in {path}; one starts with apiVersion: podium.dev"),
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


@pytest.mark.parametrize("metadata", ["oops", '["x"]', "[]", "3"])
@pytest.mark.parametrize("command", ["validate", "run"])
def test_metadata_that_is_no_object_is_refused(
    command: str, metadata: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("{name: sweep, namespace: default}", metadata))
    assert run([command, str(path)]) is Exit.FAILED
    printed = capsys.readouterr()
    assert "metadata" in printed.out + printed.err


def test_a_name_that_cannot_be_encoded_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text('{"apiVersion": "podium.dev/v1alpha1", "kind": "HyperParamJob", "metadata": {"name": "\\ud800"}}')
    command = [sys.executable, "-m", "podium_cli.main", "validate", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == Exit.FAILED
    assert "Traceback" not in done.stderr
    assert "\\ud800: " in done.stdout


QUEUE = """
apiVersion: podium.dev/v1alpha1
kind: GPUQueue
metadata: {name: vision}
spec: {weight: 2, gpus: 8, namespaces: [team-vision]}
"""


@pytest.mark.parametrize(
    ("change", "code", "expected"),
    [
        (("", ""), Exit.OK, "{path}: vision: valid"),
        (("weight: 2", "weight: 0"), Exit.FAILED, "{path}: vision: InvalidValue: spec.weight: must be greater than 0"),
        (("weight: 2", "wait: 2"), Exit.FAILED, "spec.wait"),
        (("gpus: 8", "minimum: 9, gpus: 8"), Exit.FAILED, "MinimumAboveQuota: spec.minimum: minimum must not be"),
        (("name: vision", "name: team.vision"), Exit.FAILED, 'metadata.name: "team.vision" cannot be named in'),
        (("{name: vision}", "[vision]"), Exit.FAILED, "without a name: "),
        (("v1alpha1", "v9"), Exit.FAILED, "write apiVersion: podium.dev/v1alpha1"),
    ],
)
def test_validate_checks_queues(
    change: tuple[str, str], code: Exit, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text(QUEUE.replace(*change) if change[0] else QUEUE)
    assert run(["validate", str(path)]) is code
    assert expected.format(path=path) in capsys.readouterr().out


def test_validate_lists_every_error_of_a_queue_beside_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "both.yaml"
    path.write_text(JOB + "---" + QUEUE.replace("weight: 2", "weight: -1").replace("gpus: 8", "gpus: -8"))
    assert run(["validate", str(path)]) is Exit.FAILED
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1] for line in lines] == ["sweep", "vision", "vision"]
    assert ["spec.weight" in lines[1], "spec.gpus" in lines[2]] == [True, True]
