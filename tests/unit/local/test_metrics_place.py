"""Where metrics are on one machine: a path and a port of each trial's own, and what is refused because it is shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podium_core.schema.job import HyperParamJob
from podium_local.devices import DeviceRequest
from podium_local.errors import LocalError
from podium_local.metrics.place import metrics_place, own_path
from podium_local.preparation import RunOptions, prepare

FILE = {"source": "file", "path": "/results/m.jsonl"}
PAGE = {"source": "prometheus", "port": 8000}


def manifest(words: list[str], metrics: dict[str, Any], **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "command": ["python3", *words]}
    given: dict[str, Any] = {
        "objective": {"metric": "loss", "direction": "minimize"},
        "parameters": [{"name": "lr", "min": 0.0, "max": 1.0}],
        "trials": {"max": 4, "maxSteps": 10},
        "metrics": metrics,
        "checkpoint": {"path": "/ckpt", "volume": {"emptyDir": {}}},
        "template": {"spec": {"containers": [container]}},
    }
    body = {"metadata": {"name": "j"}, "spec": {**given, **spec}}
    return {"apiVersion": "podium.dev/v1alpha1", "kind": "HyperParamJob", **body}


def job(words: list[str], metrics: dict[str, Any], **spec: Any) -> HyperParamJob:
    return HyperParamJob.model_validate(manifest(words, metrics, **spec))


def prepared(folder: Path, given: dict[str, Any], **options: Any) -> HyperParamJob:
    """Prepare a run as `podium run` does, and return its job."""
    request = DeviceRequest(gpus="none", slots=options.pop("slots", None), cpus=options.pop("cpus", 2))
    made = prepare(given, RunOptions(folder / "run", folder, folder, devices=request, **options), {"PATH": "/usr/bin"})
    made.state.folder.close()
    return made.state.job


@pytest.mark.parametrize(
    ("path", "words", "own"),
    [
        ("/logs", ["--logdir=/logs"], "/logs"),
        ("/logs", ["--logdir", "/logs/"], "/logs"),
        ("/logs/run", ["--logdir=/logs"], "/logs"),
        ("/results/m.csv", ["--out=/results/m.csv"], "/results/m.csv"),
        ("/results/m.csv", ["--out=/results", "--file=/results/m.csv"], "/results/m.csv"),
        ("/results/m.csv", ["sh", "-c", "train --out '/results' | tee x"], "/results"),
        ("/logs", ["--logdir=/logs2", "--data=/data/logs", "--out=/logs/deeper"], ""),
        ("/tmp/never/m.csv", ["--out=/tmp"], ""),  # a folder of this machine may hold other things
        ("/m.csv", ["--root=/"], ""),
    ],
)
def test_the_path_of_the_command_that_a_trial_has_for_itself(path: str, words: list[str], own: str) -> None:
    assert own_path(path, words) == own


def test_paths_of_a_trial() -> None:
    place = metrics_place(job(["--out=/results"], FILE))
    assert place.paths(Path("/f/j-0")) == {"/results": "/f/j-0/results"}
    assert place.of_trial(Path("/c/j-0"), Path("/f/j-0")).path == "/f/j-0/results/m.jsonl"
    relative = metrics_place(job([], {"source": "tensorboard", "path": "tb/run"}))
    assert relative.of_trial(Path("/c/j-0"), Path("/f/j-0")).path == "/c/j-0/tb/run"
    assert relative.own == ""


def test_a_path_that_all_trials_would_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"PathShared.*/results/m\.jsonl.*--out=.*relative to checkpoint\.path"):
        prepared(tmp_path, manifest(["-c", "pass"], FILE))
    alone = prepared(tmp_path, manifest(["-c", "pass"], FILE, trials={"max": 1, "maxSteps": 2}))
    assert alone.spec.metrics.path == "/results/m.jsonl"


def test_a_path_is_also_found_when_it_is_mapped_or_beside_the_job(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()  # of an earlier run without Podium: not for the trials
    (tmp_path / "train.py").write_text("")
    given = manifest(["/app/train.py", "--logdir=/app/logs"], {"source": "tensorboard", "path": "/app/logs"})
    assert metrics_place(prepared(tmp_path, given)).own == "/app/logs"
    mapped = prepared(tmp_path / "other", given, paths={"/app": str(tmp_path)})
    assert metrics_place(mapped).own == f"{tmp_path}/logs"


def test_a_port_that_several_trials_would_share_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"PortShared.*port is 8000.*\$\(podium\.metricsPort\).*parallel: 1"):
        prepared(tmp_path, manifest(["-c", "pass"], PAGE))
    one = {"max": 4, "maxSteps": 10, "parallel": 1}
    assert not metrics_place(prepared(tmp_path / "one", manifest(["-c", "pass"], PAGE, trials=one))).own_port
    prepared(tmp_path / "slots", manifest(["-c", "pass"], PAGE), cpus=1, slots=1)


@pytest.mark.parametrize(
    "words", [["-c", "pass", "--port=$(podium.metricsPort)"], ["-c", "serve(environ['PODIUM_METRICS_PORT'])"], ["s.py"]]
)
def test_a_port_is_chosen_where_the_template_or_the_script_uses_it(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "s.py").write_text("import os\nserve(int(os.environ['PODIUM_METRICS_PORT']))\n")
    assert metrics_place(prepared(tmp_path, manifest(words, PAGE))).own_port


def test_the_placeholder_needs_the_source(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="PortRequired"):
        prepared(tmp_path, manifest(["-c", "pass", "$(podium.metricsPort)"], {}))
