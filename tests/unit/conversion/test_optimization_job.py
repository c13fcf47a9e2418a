"""OptimizationJobs of Kubeflow Trainer, and the runtimes that they refer to."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from podium_core.conversion.convert import Converted, convert
from podium_core.conversion.given import Given
from podium_core.schema.manifests import read_manifests

HERE = Path(__file__).parent / "kubeflow"
(JOB,) = read_manifests([HERE / "optimization-job.yaml"])
(RUNTIME,) = read_manifests([HERE / "runtime.yaml"])


def converted(change: Any = None, *others: dict[str, Any], given: Given | None = None) -> Converted:
    """Return the conversion of the example after `change`, a function of its spec."""
    source = copy.deepcopy(JOB)
    if change is not None:
        change(source["spec"])
    (result,) = convert([source, *others], given)
    return result


def test_the_example_with_its_runtime() -> None:
    result = converted(None, RUNTIME)
    assert result.refusals == ()
    assert result.job is not None
    spec = result.job["spec"]
    assert spec["search"] == {"algorithm": "random", "seed": 42}
    assert spec["gpus"] == {"perTrial": 2}
    assert spec["parameters"][1] == {"name": "batch_size", "values": ["16", "32", "64"]}
    (container,) = spec["template"]["spec"]["containers"]
    assert container["image"] == "pytorch/pytorch:2.13.0"
    assert container["resources"] == {"limits": {"memory": "16Gi"}}
    env = {one["name"]: one["value"] for one in container["env"]}
    assert env["KUBEFLOW_TRAINER_OPT_LEARNING_RATE"] == "$(podium.params.learning_rate)"
    assert env["PET_NPROC_PER_NODE"] == "2"


def test_without_the_runtime_the_image_is_missing() -> None:
    assert 'runtime "torch-distributed" is not in the file' in str(converted().refusals[0])


def several(*metrics: str) -> Any:
    def change(spec: dict[str, Any]) -> None:
        spec["objectives"].extend({"metric": one, "direction": "Maximize"} for one in metrics)

    return change


@pytest.mark.parametrize(
    ("given", "policy", "steps"),
    [(Given(max_steps=9.0), "pareto", 9), (None, "fifo", None), (Given(gpus=0), "fifo", None)],
)
def test_several_objectives_stay_several(given: Given | None, policy: str, steps: int | None) -> None:
    result = converted(several("accuracy"), RUNTIME, given=given)
    assert result.refusals == ()
    assert result.job is not None
    spec = result.job["spec"]
    assert spec["objectives"] == [
        {"metric": "val_loss", "direction": "minimize"},
        {"metric": "accuracy", "direction": "maximize"},
    ]
    assert "objective" not in spec
    assert spec["policy"] == {"name": policy}
    assert spec["trials"].get("maxSteps") == steps
    assert 'print lines like {"step": 1, "val_loss": 0.5, "accuracy": 0.5}' in "\n".join(map(str, result.notes))


def test_more_objectives_than_a_job_has_are_refused() -> None:
    says = "\n".join(map(str, converted(several("a", "b", "c", "d"), RUNTIME).refusals))
    assert "spec.objectives: 5 objectives, but a job has one to 4" in says


def test_no_objective_is_refused() -> None:
    says = "\n".join(map(str, converted(lambda spec: spec.update(objectives=[]), RUNTIME).refusals))
    assert "spec.objectives" in says


def test_patches_are_refused() -> None:
    def change(spec: dict[str, Any]) -> None:
        spec["trainJobTemplate"]["spec"]["runtimePatches"] = [{"manager": "x"}]

    says = "\n".join(map(str, converted(change, RUNTIME).refusals))
    assert "spec.trainJobTemplate.spec.runtimePatches" in says


def test_an_unknown_space_is_refused_by_name() -> None:
    def change(spec: dict[str, Any]) -> None:
        spec["parameters"][0]["searchSpace"] = {"normal": {"mu": "0"}}

    says = "\n".join(map(str, converted(change, RUNTIME).refusals))
    assert 'spec.parameters[0].searchSpace.normal: {"mu": "0"} is not a field of OptimizationJob' in says
