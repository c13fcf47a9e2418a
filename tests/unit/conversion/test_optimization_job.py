"""OptimizationJobs of Kubeflow Trainer, and the runtimes that they refer to."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from podium_core.conversion.convert import Converted, convert
from podium_core.schema.manifests import read_manifests

HERE = Path(__file__).parent / "kubeflow"
(JOB,) = read_manifests([HERE / "optimization-job.yaml"])
(RUNTIME,) = read_manifests([HERE / "runtime.yaml"])


def converted(change: Any = None, *others: dict[str, Any]) -> Converted:
    """Return the conversion of the example after `change`, a function of its spec."""
    source = copy.deepcopy(JOB)
    if change is not None:
        change(source["spec"])
    (result,) = convert([source, *others])
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


def test_two_objectives_and_patches_are_refused() -> None:
    def change(spec: dict[str, Any]) -> None:
        spec["objectives"].append({"metric": "seconds"})
        spec["trainJobTemplate"]["spec"]["runtimePatches"] = [{"manager": "x"}]

    says = "\n".join(map(str, converted(change, RUNTIME).refusals))
    assert "spec.objectives: 2 objectives, but a job has one" in says
    assert "spec.trainJobTemplate.spec.runtimePatches" in says


def test_an_unknown_space_is_refused_by_name() -> None:
    def change(spec: dict[str, Any]) -> None:
        spec["parameters"][0]["searchSpace"] = {"normal": {"mu": "0"}}

    says = "\n".join(map(str, converted(change, RUNTIME).refusals))
    assert 'spec.parameters[0].searchSpace.normal: {"mu": "0"} is not a field of OptimizationJob' in says
