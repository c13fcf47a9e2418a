"""Single fields of Katib's Experiment: refused with path, value and cure, or changed with a note."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from podium_core.conversion.convert import Converted, convert
from podium_core.conversion.given import Given
from podium_core.conversion.katib.metrics import named_groups
from podium_core.schema.manifests import read_manifests

(RANDOM,) = read_manifests([Path(__file__).parent / "katib" / "random.yaml"])
TEMPLATE = ("spec", "trialTemplate", "trialSpec", "spec", "template", "spec")
SPACE = ("spec", "parameters", 0, "feasibleSpace")


def changed(*changes: tuple[tuple[Any, ...], Any], given: Given | None = None) -> Converted:
    """Return the conversion of the random example after changes, each a path and its value."""
    experiment = copy.deepcopy(RANDOM)
    for (*parents, last), value in changes:
        node: Any = experiment
        for part in parents:
            node = node[part]
        node[last] = value
    (result,) = convert([experiment], given)
    return result


CONTAINER = (*TEMPLATE, "containers", 0)
WIDTH = {"type": "int", "min": 8, "max": 64, "step": 8}
RATE = {"type": "float", "min": 1e-4, "max": 1, "scale": "log"}
GPU = ((*CONTAINER, "resources"), {"limits": {"nvidia.com/gpu": 2}})


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("spec", "parallelTrials"), 3, "spec.parallelTrials: 3 is not a field of Katib"),
        (("apiVersion",), "kubeflow.org/v1alpha3", 'apiVersion: "kubeflow.org/v1alpha3" is not kubeflow.org/v1beta1'),
        (("spec", "maxTrialCount"), None, "spec.maxTrialCount: is missing, which means no limit in Katib: add it"),
        (("spec", "maxTrialCount"), "many", 'must be a whole number of at least 1, not "many"'),
        (("spec", "objective", "type"), "max", 'spec.objective.type: must be minimize, maximize, not "max"'),
        ((*SPACE, "min"), "0.1.2", 'feasibleSpace.min: must be a finite number, not "0.1.2"'),
        ((*SPACE, "min"), "7", "spec.parameters[0].feasibleSpace: min 7 is greater than max 0.05"),
        ((*SPACE, "list"), ["1"], "spec.parameters[0].feasibleSpace.list"),
        (
            (*SPACE, "distribution"),
            "beta",
            'distribution: must be uniform, unknown, logUniform, normal, logNormal, not "beta"',
        ),
        (
            ("spec", "parameters", 0, "parameterType"),
            "float",
            "parameterType: must be double, int, discrete, categorical",
        ),
        (("spec", "algorithm", "algorithmName"), "grid", "feasibleSpace.step: grid search needs a step for lr"),
        (("spec", "algorithm", "algorithmName"), "annealing", '"annealing" is not an algorithm that Podium knows'),
        (("spec", "algorithm", "algorithmSettings"), [{"name": "x", "value": "1"}], "x is not a setting of random"),
        (("spec", "earlyStopping"), {"algorithmName": "asha"}, '"asha" is not known: use medianstop'),
        (("spec", "resumePolicy"), "Always", 'resumePolicy: must be Never, LongRunning, FromVolume, not "Always"'),
        (("spec", "trialTemplate", "primaryContainerName"), "main", 'has no container "main"'),
        (("spec", "trialTemplate", "trialParameters", 0, "reference"), "rate", '"rate" is not known: name one of'),
        ((*CONTAINER, "command"), ["x", "${trialParameters.depth}"], "${trialParameters.depth} is not one of"),
        (
            (*CONTAINER, "resources"),
            {"limits": {"nvidia.com/gpu": "one"}},
            '"one" is not a whole number',
        ),
        ((*TEMPLATE, "hostPID"), True, "converted job: spec.template.spec.hostPID: remove hostPID"),
        (("spec", "trialTemplate", "trialSpec", "kind"), "RayJob", "RayJob is not a kind that can be converted"),
        (("spec", "trialTemplate", "trialSpec", "spec", "completions"), 3, "completions: a trial has one pod"),
        (("metadata", "name"), "x" * 60, "the name must have at most 52 characters"),
    ],
)
def test_a_field_is_refused_with_its_path_value_and_cure(path: tuple[Any, ...], value: Any, says: str) -> None:
    result = changed((path, value))
    assert result.job is None
    assert says in "\n".join(map(str, result.refusals))


def test_all_problems_are_reported_at_once() -> None:
    result = changed((("spec", "colour"), "red"), (("spec", "objective", "type"), "up"), ((*SPACE, "min"), "low"))
    assert [one.field for one in result.refusals] == [
        "spec.parameters[0].feasibleSpace.min",
        "spec.objective.type",
        "spec.colour",
    ]


def test_gpus_are_counted_and_removed_from_the_resources() -> None:
    job = changed(GPU).job
    assert job is not None
    assert job["spec"]["gpus"] == {"perTrial": 2}
    assert job["spec"]["policy"] == {"name": "fifo"}
    assert "resources" not in job["spec"]["template"]["spec"]["containers"][0]
    ranked = changed(GPU, given=Given(max_steps=9)).job
    assert ranked is not None
    assert "policy" not in ranked["spec"]


def test_early_stopping_of_trials_with_gpus_needs_their_length() -> None:
    early = (("spec", "earlyStopping"), {"algorithmName": "medianstop"})
    assert "give --max-steps N" in str(changed(GPU, early).refusals[0])
    job = changed(GPU, early, given=Given(max_steps=9)).job
    assert job is not None
    assert job["spec"]["policy"]["name"] == "median_stop"


def test_what_would_stop_a_suspended_trial_is_left_out_with_a_note() -> None:
    probe: Any = ((*CONTAINER, "livenessProbe"), {"exec": {}})
    env: Any = ((*CONTAINER, "env"), [{"name": "NVIDIA_VISIBLE_DEVICES"}])
    result = changed(probe, env, ((*TEMPLATE, "restartPolicy"), "OnFailure"), ((*TEMPLATE, "schedulerName"), "volcano"))
    assert result.job is not None
    fields = "\n".join(note.field for note in result.notes)
    for field in ("livenessProbe", "env", "restartPolicy", "schedulerName"):
        assert field in fields
    assert "schedulerName" not in result.job["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("kind", "space", "expected"),
    [
        ("int", {"min": "8", "max": "64", "step": "8"}, WIDTH),
        ("int", {"min": "8", "max": "64", "step": "8", "distribution": "logUniform"}, {**WIDTH, "scale": "log"}),
        ("int", {"min": "4", "max": "64", "step": "8", "distribution": "logUniform"}, {**WIDTH, "min": 4}),
        (
            "double",
            {"min": "1e-4", "max": "1", "distribution": "logUniform"},
            {"type": "float", "min": 1e-4, "max": 1, "scale": "log"},
        ),
        ("double", {"min": "3", "max": "3"}, {"values": [3]}),
        ("discrete", {"list": ["0.5", "1"]}, {"values": [0.5, 1]}),
        ("categorical", {"list": ["1", "true", "sgd"]}, {"values": ["1", "true", "sgd"]}),
    ],
)
def test_spaces(kind: str, space: dict[str, Any], expected: dict[str, Any]) -> None:
    result = changed((("spec", "parameters", 0), {"name": "lr", "parameterType": kind, "feasibleSpace": space}))
    assert result.job is not None, result.refusals
    assert result.job["spec"]["parameters"][0] == {"name": "lr", **expected}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"([\w|-]+)\s*=\s*([+-]?\d*)", r"(?P<name>[\w|-]+)\s*=\s*(?P<value>[+-]?\d*)"),
        (r"\((a)\)(?:x)[()]((1)(2)?)", r"\((?P<name>a)\)(?:x)[()](?P<value>(1)(2)?)"),
        (r"(?P<k>a)=(?P<v>1)", r"(?P<name>a)=(?P<value>1)"),
        (r"(a)", None),
    ],
)
def test_groups_by_position_get_names(pattern: str, expected: str | None) -> None:
    assert named_groups(pattern) == expected


def test_an_mpi_job_gets_the_gpus_of_its_workers() -> None:
    (experiment,) = read_manifests([Path(__file__).parent / "katib" / "mpijob-horovod.yaml"])
    workers = experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["mpiReplicaSpecs"]["Worker"]
    workers["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 4
    (result,) = convert([experiment])
    assert result.job is not None
    assert result.job["spec"]["gpus"] == {"perTrial": 8}


def test_parameter_servers_are_refused() -> None:
    (experiment,) = read_manifests([Path(__file__).parent / "katib" / "tfjob-mnist-with-summaries.yaml"])
    groups = experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["tfReplicaSpecs"]
    groups["PS"] = {"replicas": 1, "template": groups["Worker"]["template"]}
    (result,) = convert([experiment])
    assert "PS pods serve the others" in str(result.refusals[0])


def test_a_list_of_saved_experiments_is_converted_one_by_one() -> None:
    results = convert([{"kind": "List", "apiVersion": "v1", "items": [RANDOM, RANDOM]}])
    assert [result.name for result in results] == ["random", "random"]
