"""All example Experiments of Katib: what is converted, what is refused and why, and what the jobs say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podium_core.acceptance.findings import errors_of, findings
from podium_core.conversion.convert import Converted, convert
from podium_core.conversion.given import Given
from podium_core.logs.line_reader import line_reader
from podium_core.schema.job import HyperParamJob
from podium_core.schema.manifests import dump_manifests, parse_manifests, read_manifests
from podium_core.schema.metrics.config import metrics_config_of

HERE = Path(__file__).parent
FILES = sorted((HERE / "katib").glob("*.yaml"))
TEMPLATES = HERE / "trial-templates.yaml"
SETTINGS = "spec.algorithm.algorithmSettings"
ARCHITECTURES = {"darts-cpu", "darts-gpu", "enas-cpu", "enas-gpu"}
REFUSED = {
    "argo-workflow": "spec.trialTemplate.trialSpec.kind: Workflow has several steps",
    "pipeline-run": "spec.trialTemplate.trialSpec.kind: PipelineRun has several steps",
    **dict.fromkeys(ARCHITECTURES, "spec.algorithm.algorithmName"),
}
NEAREST = {  # examples whose notes must name this field
    "bayesian-optimization": "spec.algorithm.algorithmName",
    "simple-pbt": "spec.algorithm.algorithmName",
    "hyperopt-distribution": "spec.parameters[0].feasibleSpace.distribution",
    "tfjob-mnist-with-summaries": "spec.metricsCollectorSpec.collector.kind",
    "pytorchjob-mnist": "spec.trialTemplate.trialSpec.spec.pytorchReplicaSpecs",
    "long-running-resume": "spec.resumePolicy",
}


def converted(name: str, given: Given | None = None) -> Converted:
    """Return the conversion of one example; the ConfigMap of the trial templates is always there."""
    (result,) = convert(read_manifests([HERE / "katib" / f"{name}.yaml", TEMPLATES]), given)
    return result


def spec_of(name: str, given: Given | None = None) -> dict[str, Any]:
    """Return the spec of the job for one example."""
    job = converted(name, given).job
    assert job is not None
    return dict(job["spec"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_becomes_a_valid_job_or_is_refused_with_its_field(path: Path) -> None:
    result = converted(path.stem)
    if path.stem in REFUSED:
        assert result.job is None
        assert REFUSED[path.stem] in str(result.refusals[0])
        return
    assert result.refusals == ()
    assert result.job is not None
    assert errors_of(findings(result.job)) == ()
    assert parse_manifests(dump_manifests([result.job])) == [result.job]


def test_nine_of_ten_examples_without_architecture_search_are_converted() -> None:
    others = [path.stem for path in FILES if path.stem not in ARCHITECTURES]
    done = [name for name in others if converted(name).job is not None]
    assert len(others) == 29
    assert len(done) >= 0.9 * len(others)


@pytest.mark.parametrize(("name", "field"), NEAREST.items())
def test_a_change_of_meaning_has_a_note(name: str, field: str) -> None:
    assert field in [note.field for note in converted(name).notes]


def test_the_random_search() -> None:
    spec = spec_of("random")
    assert spec["objective"] == {"metric": "loss", "direction": "minimize", "target": 0.001}
    assert spec["trials"] == {"max": 12, "parallel": 3, "maxFailed": 3}
    assert spec["parameters"][0] == {"name": "lr", "type": "float", "min": 0.01, "max": 0.05}
    (container,) = spec["template"]["spec"]["containers"]
    assert container["command"][-2:] == ["--lr=$(podium.params.lr)", "--momentum=$(podium.params.momentum)"]
    assert container["resources"] == {"limits": {"memory": "1Gi", "cpu": "0.5"}}


def test_hyperband_fixes_its_resource_and_becomes_a_policy() -> None:
    spec = spec_of("hyperband")
    assert [one["name"] for one in spec["parameters"]] == ["lr", "momentum"]
    assert spec["policy"] == {"name": "hyperband", "settings": {"eta": 2, "rungs": 1}}
    assert spec["trials"]["maxSteps"] == 2
    assert "--epochs=2" in spec["template"]["spec"]["containers"][0]["command"]


def test_a_population_that_never_leaves_its_first_generation_is_random() -> None:
    spec = spec_of("simple-pbt")
    assert spec["search"] == {"algorithm": "random"}
    assert spec["template"]["spec"]["volumes"] == [{"name": "katib-trial", "emptyDir": {}}]
    assert "checkpoint" not in spec


def test_a_population_takes_its_settings_and_needs_a_volume() -> None:
    result = converted("simple-pbt", Given(max_trials=100, max_steps=20, gpus=1))
    assert result.job is not None
    spec = result.job["spec"]
    settings = {"population": 40, "interval": 6, "quantile": 0.2, "resampleProbability": 0}
    assert spec["search"] == {"algorithm": "pbt", "settings": settings}
    assert spec["trials"] == {"max": 100, "parallel": 40, "maxFailed": 3, "maxSteps": 20}
    claim = {"claimName": "simple-pbt-checkpoints"}
    assert spec["checkpoint"] == {"path": "/var/log/katib/checkpoints", "volume": claim}
    assert "policy" not in spec
    notes = {note.field: note.message for note in result.notes}
    assert "create the PersistentVolumeClaim simple-pbt-checkpoints (ReadWriteMany)" in notes[SETTINGS]
    assert "write checkpoints at least every 6 steps" in notes["spec.algorithm.algorithmName"]
    assert "2 becomes 40" in notes["spec.parallelTrialCount"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n_population": "1"}, 'n_population must be a whole number from 2 to 1000, not "1"'),
        ({"n_population": "many"}, 'n_population must be a whole number from 2 to 1000, not "many"'),
        ({"n_population": None}, f"{SETTINGS}: pbt needs the setting n_population: add it"),
        ({"suggestion_trial_dir": None}, "pbt needs the setting suggestion_trial_dir"),
        ({"suggestion_trial_dir": "checkpoints"}, 'must be a folder such as /checkpoints, not "checkpoints"'),
        ({"truncation_threshold": "0.7"}, "truncation_threshold must be above 0, or no trial is replaced, and at most"),
        ({"truncation_threshold": "0"}, 'are among the best, not "0"'),
        ({"truncation_threshold": "0.01"}, "a quantile of 0.01 of 40 trials holds none: set population to at least"),
        ({"resample_probability": "25"}, 'resample_probability must be a number from 0 to 1, not "25"'),
        ({"rate": "1"}, "rate is not a setting of pbt: remove it"),
        ({"medianstop": None}, "spec.earlyStopping: pbt itself ends bad trials: remove earlyStopping"),
        ({"length": None}, "spec.algorithm.algorithmName: pbt compares trials at parts of their length"),
        ({"length": float("inf")}, "spec.algorithm.algorithmName: pbt compares trials at parts of their length"),
    ],
)
def test_a_setting_of_a_population_is_refused_with_its_value_and_cure(change: dict[str, Any], says: str) -> None:
    (experiment,) = read_manifests([HERE / "katib" / "simple-pbt.yaml"])
    algorithm = experiment["spec"]["algorithm"]
    settings = {one["name"]: one["value"] for one in algorithm["algorithmSettings"]}
    settings |= {name: value for name, value in change.items() if name not in ("medianstop", "length")}
    listed = [{"name": name, "value": value} for name, value in settings.items() if value is not None]
    algorithm["algorithmSettings"] = listed
    if "medianstop" in change:
        experiment["spec"]["earlyStopping"] = {"algorithmName": "medianstop"}
    (result,) = convert([experiment], Given(max_trials=100, max_steps=change.get("length", 20)))
    assert result.job is None
    assert says in "\n".join(map(str, result.refusals))


def test_median_stopping_takes_its_settings() -> None:
    policy = spec_of("median-stop", Given(max_steps=20))["policy"]
    assert policy == {"name": "median_stop", "settings": {"peers": 1, "grace": 0.1}}


def test_the_lines_of_katibs_example_are_read_by_the_converted_filter() -> None:
    result = converted("file-metrics-collector")
    read = line_reader(metrics_config_of(HyperParamJob.model_validate(result.job)))
    (parsed,) = read("INFO {metricName: accuracy, metricValue: 0.9812};{metricName: loss, metricValue: 0.05}")
    assert parsed.value == 0.9812
    assert [one.value for one in parsed.additional] == [0.05]


def test_the_file_of_the_metrics_is_the_standard_output(tmp_path: Path) -> None:
    import subprocess

    (container,) = spec_of("file-metrics-collector")["template"]["spec"]["containers"]
    assert container["volumeMounts"] == [{"name": "katib-metrics", "mountPath": "/katib"}]
    shell, option, script, *_ = container["command"]
    file = tmp_path / "mnist.log"
    writes = ["python3", "-c", f"open({str(file)!r}, 'a').write('loss=0.5\\n')"]
    command = [shell, option, script.replace("/katib/mnist.log", str(file)), *writes]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == "loss=0.5\n"


def test_a_trial_of_several_pods_is_one_process_of_a_group_of_one() -> None:
    (container,) = spec_of("pytorchjob-mnist")["template"]["spec"]["containers"]
    assert {"name": "WORLD_SIZE", "value": "1"} in container["env"]


def test_the_metadata_of_a_trial() -> None:
    (container,) = spec_of("trial-metadata-substitution")["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value") or one["valueFrom"] for one in container["env"]}
    assert env["TRIAL_NAME"] == {"fieldRef": {"fieldPath": "metadata.labels['podium.dev/trial']"}}
    assert (env["TRIAL_NAMESPACE"], env["TRIAL_KIND"]) == ("kubeflow", "Job")
    assert (env["TRIAL_LABEL_CUSTOM"], env["TRIAL_ANNOTATION_CUSTOM"]) == ("custom-label", "custom-annotation")


def test_a_template_in_a_config_map_must_be_in_the_files() -> None:
    (alone,) = convert(read_manifests([HERE / "katib" / "trial-configmap-source.yaml"]))
    assert "kubectl get configmap trial-templates -n kubeflow -o yaml" in str(alone.refusals[0])
    assert converted("trial-configmap-source").job is not None
