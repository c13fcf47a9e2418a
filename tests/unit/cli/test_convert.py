"""The command `podium convert`, and what other commands do with the searches of other tools."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from podium_cli.exit_codes import Exit
from podium_cli.main import run
from podium_core.schema.manifests import parse_manifests

DATA = Path(__file__).parents[1] / "conversion"
RANDOM, GRID = str(DATA / "katib" / "random.yaml"), str(DATA / "wandb" / "grid.yaml")
Captured = pytest.CaptureFixture[str]


def test_the_job_goes_to_standard_output_and_the_notes_to_standard_error(capsys: Captured) -> None:
    assert run(["convert", RANDOM]) is Exit.OK
    shown = capsys.readouterr()
    (job,) = parse_manifests(shown.out)
    assert (job["kind"], job["metadata"]["name"]) == ("HyperParamJob", "random")
    assert all(": random: note: " in line for line in shown.err.splitlines())


def test_several_files_become_several_documents_or_a_list(capsys: Captured) -> None:
    options = ["--image", "i:1", "-o"]
    assert run(["convert", RANDOM, GRID, *options, "yaml"]) is Exit.OK
    assert len(parse_manifests(capsys.readouterr().out)) == 2
    assert run(["convert", RANDOM, GRID, *options, "json"]) is Exit.OK
    assert [one["kind"] for one in json.loads(capsys.readouterr().out)["items"]] == ["HyperParamJob"] * 2


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(Path(RANDOM).read_text()))
    assert run(["convert", "-", "--name", "mine"]) is Exit.OK
    assert parse_manifests(capsys.readouterr().out)[0]["metadata"]["name"] == "mine"


def test_a_refusal_prints_a_line_for_each_field_and_no_job(capsys: Captured) -> None:
    assert run(["convert", RANDOM, str(DATA / "katib" / "enas-cpu.yaml")]) is Exit.FAILED
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "enas-cpu: NotConvertible: spec.algorithm.algorithmName: " in shown.err
    assert "podium: NotConvertible: 1 of 2 searches cannot be converted" in shown.err


def test_a_file_without_a_search_is_refused(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "pod.yaml").write_text("kind: Pod")
    assert run(["convert", str(tmp_path / "pod.yaml")]) is Exit.FAILED
    assert "podium: NothingToConvert: " in capsys.readouterr().err
    (tmp_path / "large.yaml").write_text("a" * (5 << 20))
    assert run(["convert", str(tmp_path / "large.yaml")]) is Exit.FAILED
    assert "podium: FileTooLarge: " in capsys.readouterr().err


@pytest.mark.parametrize("command", ["validate", "plan", "run"])
@pytest.mark.parametrize("file", [RANDOM, GRID, str(DATA / "kubeflow" / "optimization-job.yaml")])
def test_other_commands_refuse_such_files_and_name_convert(command: str, file: str, capsys: Captured) -> None:
    assert run([command, file]) is Exit.FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("podium: ConversionRequired: ")
    assert line.endswith(f"convert it with `podium convert {file}`")
