"""Adaptation of a pod template to this machine, and the command and environment of an attempt."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_local.devices import Device
from podium_local.errors import LocalError
from podium_local.processes.launch import Place, launch
from podium_local.template import Site, adapt, mapped, with_command

PATH = "/usr/bin:/bin"


def template(*command: str, **more: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "image": "i", "command": list(command), **more}]}}


def site(folder: Path, **more: Any) -> Site:
    return Site(folder, folder, environ={"PATH": PATH}, **more)


def main_of(adapted: dict[str, Any]) -> dict[str, Any]:
    main: dict[str, Any] = adapted["spec"]["containers"][0]
    return main


def test_a_script_of_the_image_is_found_beside_the_job_file(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    adapted = adapt(template("sh", "/app/src/train.py", "--data=/app/src"), site(tmp_path))
    assert main_of(adapted.template)["command"] == ["sh", str(tmp_path / "src" / "train.py"), f"--data={tmp_path}/src"]
    assert main_of(adapted.template)["workingDir"] == str(tmp_path)
    assert any("/app/src/train.py does not exist here" in note for note in adapted.notes)


def test_paths_are_mapped_in_words_and_variables(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    env = [{"name": "DATA", "value": "/data/mnist"}]
    given = template("sh", "/app/train.py", "--data=/data", env=env)
    adapted = adapt(given, site(tmp_path, paths={"/app": str(tmp_path), "/data": "/srv"}))
    main = main_of(adapted.template)
    assert main["command"] == ["sh", str(tmp_path / "train.py"), "--data=/srv"]
    assert main["env"] == [{"name": "DATA", "value": "/srv/mnist"}]
    assert adapted.notes == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data", "/srv"),
        ("/data/a", "/srv/a"),
        ("--in=/data/a:/data/b", "--in=/srv/a:/srv/b"),
        ("/database", "/database"),
        ("/old/data", "/old/data"),
    ],
)
def test_only_whole_paths_are_mapped(text: str, expected: str) -> None:
    assert mapped(text, {"/data": "/srv"}) == expected


@pytest.mark.parametrize(
    ("given", "reason", "named"),
    [
        (template(), "CommandMissing", "command"),
        (template("no-such-program"), "CommandNotFound", "'no-such-program'"),
        (template("sh", "train.py"), "ScriptMissing", "train.py"),
        (template("sh", env=[{"name": "TOKEN", "valueFrom": {}}]), "VariableUnknown", "env[0].valueFrom"),
    ],
)
def test_what_cannot_run_here_is_refused(tmp_path: Path, given: dict[str, Any], reason: str, named: str) -> None:
    with pytest.raises(LocalError) as refused:
        adapt(given, site(tmp_path))
    assert refused.value.reason == reason
    assert named in refused.value.message


def test_what_a_pod_has_besides_is_noted(tmp_path: Path) -> None:
    mounts = [{"name": "data", "mountPath": "/no-such-folder"}]
    given = template("sh", envFrom=[{"secretRef": {"name": "s"}}], volumeMounts=mounts)
    given["spec"]["initContainers"] = [{"name": "download"}]
    given["spec"]["containers"].append({"name": "sidecar"})
    notes = "\n".join(adapt(given, site(tmp_path)).notes)
    for named in ("download", "sidecar", "envFrom", "--map /no-such-folder=FOLDER"):
        assert named in notes


def test_python_is_that_of_podium_where_no_other_is_installed(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    adapted = adapt(template("python3", "train.py"), Site(tmp_path, tmp_path, environ={"PATH": "/nowhere"}))
    assert main_of(adapted.template)["command"][0] == sys.executable


@pytest.mark.parametrize("activated", [True, False])
def test_another_python_than_that_of_podium_is_named(
    activated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    folder = tmp_path / "venv" / "bin" if activated else tmp_path / "other"
    folder.mkdir(parents=True)
    (folder / "python3").write_text("#!/bin/sh\n")
    (folder / "python3").chmod(0o755)
    (tmp_path / "train.py").touch()
    adapted = adapt(template("python3", "train.py"), Site(tmp_path, tmp_path, environ={"PATH": str(folder)}))
    assert any(str(folder / "python3") in note for note in adapted.notes) is not activated


def test_a_command_of_this_machine_gets_all_parameters_unless_it_names_some() -> None:
    manifest = {"spec": {"template": template("python", "old.py")}}
    plain = with_command(manifest, ("python", "new.py"))["spec"]["template"]
    assert main_of(plain)["command"] == ["python", "new.py", "$(podium.args)"]
    named = with_command(manifest, ("python", "new.py", "$(podium.params.lr)"))["spec"]["template"]
    assert main_of(named)["command"] == ["python", "new.py", "$(podium.params.lr)"]
    assert main_of(manifest["spec"]["template"])["command"] == ["python", "old.py"], "the given manifest is unchanged"


def job(**spec: Any) -> HyperParamJob:
    container = {
        "name": "main",
        "image": "i",
        "command": ["train", "$(podium.args)", "--out=/ckpt/out"],
        "env": [{"name": "RATE", "value": "$(podium.params.lr)"}, {"name": "TOKEN", "inherit": True}],
        "workingDir": "/work",
    }
    given: dict[str, Any] = {
        "objective": {"metric": "loss", "direction": "minimize"},
        "parameters": [{"name": "lr", "min": 0.0, "max": 1.0}],
        "trials": {"max": 1, "maxSteps": 10},
        "template": {"spec": {"containers": [container]}},
        "checkpoint": {
            "path": "/ckpt",
            "volume": {"claimName": "c"},
            "resumeArgs": ["--resume", "$(podium.checkpoint)"],
        },
    }
    return HyperParamJob.model_validate({"metadata": {"name": "j"}, "spec": {**given, **spec}})


def trial() -> HyperParamTrial:
    spec = {"job": "j", "number": 0, "parameters": {"lr": 0.5}}
    return HyperParamTrial.model_validate({"metadata": {"name": "j-0"}, "spec": spec})


def place(*devices: Device, **more: Any) -> Place:
    environ = {"PATH": PATH, "TOKEN": "secret", "PODIUM_TRIAL": "another"}
    return Place(devices, Path("/runs/j/ckpt/j-0"), Path("/runs/j/python"), environ, **more)


def test_parameters_and_variables_are_those_of_a_cluster() -> None:
    started = launch(job(), trial(), 1, place(Device("cpu-0", 0, 4, 2), resume="step-3"))
    folder = "/runs/j/ckpt/j-0"
    assert started.command == ["train", "--lr=0.5", f"--out={folder}/out", "--resume", f"{folder}/step-3"]
    assert started.folder == "/work"
    expected = {
        "PODIUM_TRIAL": "j-0",
        "PODIUM_ATTEMPT": "1",
        "PODIUM_CHECKPOINT": folder,
        "PODIUM_RESUME": f"{folder}/step-3",
        "PODIUM_PARAM_LR": "0.5",
        "RATE": "0.5",
        "TOKEN": "secret",
        "OMP_NUM_THREADS": "2",
        "PODIUM_PYTHON": "/runs/j/python",
    }
    assert {name: started.environment.get(name) for name in expected} == expected
    assert "CUDA_VISIBLE_DEVICES" not in started.environment


def test_variables_are_expanded_as_kubernetes_does() -> None:
    container = {
        "name": "main",
        "image": "i",
        "command": ["train", "--name=$(PODIUM_TRIAL)", "--to=$(OUT)/$(NONE)", "$$(OUT)", "$OUT"],
        "env": [{"name": "OUT", "value": "/ckpt/out"}, {"name": "LOG", "value": "$(OUT)/log-$(PODIUM_TRIAL)"}],
        "workingDir": "/work",
    }
    started = launch(job(template={"spec": {"containers": [container]}}), trial(), 0, place())
    folder = "/runs/j/ckpt/j-0/out"
    assert started.command == ["train", "--name=j-0", f"--to={folder}/$(NONE)", "$(OUT)", "$OUT"]
    assert started.environment["LOG"] == f"{folder}/log-$(PODIUM_TRIAL)", "the template's variables come first"


def test_an_argument_of_an_inactive_parameter_is_left_out() -> None:
    container = {
        "name": "main",
        "image": "i",
        "command": ["train", "--lr=$(podium.params.lr)", "--momentum", "$(podium.params.momentum)"],
        "workingDir": "/work",
    }
    parameters = [
        {"name": "lr", "min": 0.0, "max": 1.0},
        {"name": "momentum", "min": 0.0, "max": 1.0, "when": {"parameter": "lr", "in": [0.1]}},
    ]
    given = job(parameters=parameters, template={"spec": {"containers": [container]}})
    assert launch(given, trial(), 0, place()).command == ["train", "--lr=0.5"]


def test_a_trial_sees_only_its_gpus() -> None:
    gpus = (Device("GPU-a", 0, 1, 4, is_gpu=True), Device("GPU-b", 1, 1, 4, is_gpu=True))
    assert launch(job(), trial(), 0, place(*gpus)).environment["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    hidden = launch(job(), trial(), 0, place(Device("cpu-0", 0, 4, 1), hides_gpus=True))
    assert hidden.environment["CUDA_VISIBLE_DEVICES"] == ""
