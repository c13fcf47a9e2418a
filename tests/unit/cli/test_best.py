"""`podium best`: the best trial of a search, in each of its formats, also of a run of `podium run`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from podium_cli.exit_codes import Exit
from podium_cli.main import run
from podium_cli.samples import search_at


def test_the_best_trial_has_value_step_and_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["best", "--sample"]) is Exit.OK
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "trial        digits-9 (Succeeded) of job digits (Succeeded, 12/12 trials ended)"
    assert shown[1] == "value        val_acc 0.96119 (larger is better)"
    assert shown[2] == "step         24 (epoch)"
    assert shown[3].split() == ["parameters", "lr", "0.005406"]
    assert run(["best", "--sample", "-o", "json"]) is Exit.OK
    best = json.loads(capsys.readouterr().out)
    assert (best["trial"], best["value"], best["step"]) == ("digits-9", 0.96119, 24.0)
    assert best["parameters"] == {"lr": 0.005406, "width": 64, "batch": 64, "activation": "tanh"}


def test_the_parameters_can_be_pasted_behind_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = search_at(600)
    best = next(one for one in objects if one["metadata"]["name"] == "digits-9")
    best["spec"]["parameters"] = {"lr": 1e-05, "flag": True, "name": "a b; $(reboot)"}
    folder = tmp_path / "digits" / "objects"
    folder.mkdir(parents=True)
    for one in objects:
        name = "job" if one["kind"] == "HyperParamJob" else one["metadata"]["name"]
        (folder / f"{name}.json").write_text(json.dumps(one))
    assert run(["best", "--from-files", str(tmp_path / "digits"), "-o", "args"]) is Exit.OK
    line = capsys.readouterr().out
    assert shlex.split(line) == ["--lr=1e-05", "--flag=true", "--name=a b; $(reboot)"]


def test_a_search_without_a_value_has_no_best_trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": search_at(0)}))
    assert run(["best", "--from-files", str(tmp_path)]) is Exit.NOT_FOUND
    assert "NoValue: no trial of digits (Running) has reported val_acc" in capsys.readouterr().err
