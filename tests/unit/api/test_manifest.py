"""`podium.tune` builds the job that a YAML file would describe, and refuses what a cluster would refuse."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from podium_api.errors import SearchError
from podium_api.manifest import Work, manifest_of, objectives, warnings_of
from podium_api.space import loguniform
from podium_core.schema.job import GPU_SECONDS, HyperParamJob

SPEC: dict[str, Any] = {**objectives("acc", "max"), "trials": {"max": 4, "maxSteps": 10}}


def train(lr: float) -> None:
    print(lr)


def test_a_function_becomes_a_container() -> None:
    manifest = manifest_of("vit", Work(train, image="repo/vit:1"), {"lr": loguniform(1e-4, 1e-1)}, SPEC)
    job = HyperParamJob.model_validate(manifest)
    container = job.spec.template["spec"]["containers"][0]
    assert container["image"] == "repo/vit:1"
    assert b"def train(lr: float)" in base64.b64decode(container["env"][0]["value"])
    assert job.spec.parameters[0].scale == "log"
    assert job.spec.objective.direction == "maximize"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["python", "t.py"], ["python", "t.py", "$(podium.args)"]),
        (["python", "t.py", "--rate=$(podium.params.lr)"], ["python", "t.py", "--rate=$(podium.params.lr)"]),
    ],
)
def test_a_command_gets_the_parameters(words: list[str], expected: list[str]) -> None:
    manifest = manifest_of("vit", Work(words), {"lr": loguniform(1e-4, 1e-1)}, SPEC)
    assert manifest["spec"]["template"]["spec"]["containers"][0]["command"] == expected


@pytest.mark.parametrize("words", ["python t.py", [], ()])
def test_a_command_is_a_list_of_words(words: Any) -> None:
    with pytest.raises(SearchError, match="InvalidCommand"):
        manifest_of("vit", Work(words), {"lr": loguniform(1e-4, 1e-1)}, SPEC)


def test_what_a_cluster_refuses_is_refused_here() -> None:
    with pytest.raises(SearchError, match=r"spec\.trials\.max") as raised:
        manifest_of("vit", Work(train), {"lr": loguniform(1e-4, 1e-1)}, {**SPEC, "trials": {"max": 0}})
    assert raised.value.code


def test_a_cluster_gets_the_warnings_about_nodes_too() -> None:
    spec = {**SPEC, "checkpoint": {"path": "/ckpt", "volume": {"emptyDir": {}}}}
    manifest = manifest_of("vit", Work(train), {"lr": loguniform(1e-4, 1e-1)}, spec)
    assert [text.partition(":")[0] for text in warnings_of(manifest, local=False)] == ["CheckpointNotPersistent"]
    assert warnings_of(manifest, local=True) == ()


def test_the_mode_is_max_or_min() -> None:
    with pytest.raises(SearchError, match="mode must be 'max' or 'min'"):
        objectives("acc", "maximum")


def test_a_list_of_metrics_becomes_objectives() -> None:
    assert objectives(["acc", "size"], ["max", "min"]) == {
        "objectives": [{"metric": "acc", "direction": "maximize"}, {"metric": "size", "direction": "minimize"}]
    }
    assert objectives(("acc",), ("max",)) == objectives("acc", "max")


@pytest.mark.parametrize("mode", ["max", ["max"], ["max", "min", "min"], ["max", "least"], []])
def test_each_metric_has_a_mode(mode: Any) -> None:
    with pytest.raises(SearchError, match="InvalidMode: mode must be"):
        objectives(["acc", "size"], mode)


@pytest.mark.parametrize(
    ("metric", "mode", "error"),
    [
        ([], [], r"spec\.objectives"),
        (["a", "b", "c", "d", "e"], ["max"] * 5, r"spec\.objectives"),
        (["acc", "acc"], ["max", "min"], r"spec\.objectives"),
        (["acc", GPU_SECONDS], ["max", "max"], "GPUSecondsMaximized"),
        (GPU_SECONDS, "min", r"spec\.objective\.metric: Podium measures podium\.dev/gpu-seconds"),
    ],
)
def test_objectives_that_a_cluster_refuses_are_refused_here(metric: Any, mode: Any, error: str) -> None:
    spec = {**objectives(metric, mode), "trials": {"max": 4, "maxSteps": 10}, "policy": {"name": "pareto"}}
    with pytest.raises(SearchError, match=error):
        manifest_of("vit", Work(train), {"lr": loguniform(1e-4, 1e-1)}, spec)
