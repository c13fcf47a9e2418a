"""Validation without an API server: the table of invalid jobs, and cases that do not fit the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from script_modules import load

from podium_core.acceptance.findings import errors_of, findings
from podium_core.schema.job import HyperParamJob, JobSpec
from podium_core.schema.job_rules import JOB_RULES
from podium_core.schema.manifests import read_manifests
from podium_core.schema.rules import Refusal
from podium_core.schema.search.space import MAX_COUNTED_POINTS, env_name, grid_points
from podium_core.schema.validation import check, parse_job, problems

ROOT = Path(__file__).parents[3]


TABLE: Any = load(Path(__file__).with_name("bad_jobs.py"))


def spec_of(**change: Any) -> JobSpec:
    parsed = parse_job(TABLE.changed({f"spec.{path}": value for path, value in change.items()}))
    assert isinstance(parsed, HyperParamJob), parsed
    return parsed.spec


def test_the_good_job_has_no_problems() -> None:
    assert problems(TABLE.good()) == ()
    assert findings(TABLE.good()) == ()


@pytest.mark.parametrize("job", TABLE.bad(), ids=lambda job: job.name)
def test_invalid_jobs_are_rejected_with_field_and_remedy(job: Any) -> None:
    reported = problems(job.manifest)
    assert any(
        problem.field.startswith(job.field) and job.check in problem.message and problem.code == job.code
        for problem in reported
    ), reported


def test_every_rule_has_an_invalid_job() -> None:
    rules = {rule.code for rule in JOB_RULES if rule.holds is not None}
    assert rules <= {job.code for job in TABLE.bad()}


@pytest.mark.parametrize(
    ("example", "codes"),
    [
        ("vision", []),
        ("sklearn", []),
        ("finetune", []),
    ],
)
def test_the_example_jobs_have_only_known_problems(example: str, codes: list[tuple[str, str]]) -> None:
    manifest = read_manifests([ROOT / f"crds/examples/{example}.yaml"])[0]
    assert [(problem.code, problem.field) for problem in problems(manifest)] == codes


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({"kind": "Job"}, "kind: this is podium.dev/v1alpha1 Job: write"),
        ({"apiVersion": "podium.dev/v2", "kind": "HyperParamJob"}, "apiVersion: this is podium.dev/v2 HyperParamJob"),
        ({"metadata": {"name": "x"}}, "spec.parameters: is required"),
        ({**TABLE.good(), "metadata": {}}, "metadata.name: is required"),
        ({**TABLE.good(), "metadata": None, "spec": None}, "spec.parameters: is required"),
    ],
)
def test_manifests_that_are_not_jobs_are_rejected(manifest: dict[str, Any], message: str) -> None:
    rejected = parse_job(manifest)
    assert isinstance(rejected, Refusal)
    assert str(rejected).startswith(message)


def test_all_invalid_fields_are_reported_at_once() -> None:
    manifest = TABLE.changed({"spec.objective.direction": "up", "spec.trials.max": 0, "spec.parameters.0.min": "a"})
    assert [problem.field for problem in problems(manifest)] == [
        "spec.objective.direction",
        "spec.parameters[0].min",
        "spec.trials.max",
    ]


def test_infinity_and_nan_are_rejected() -> None:
    for value in (float("inf"), float("nan")):
        rejected = parse_job(TABLE.changed({"spec.parameters.0.max": value}))
        assert isinstance(rejected, Refusal)
        assert rejected.field == "spec.parameters[0].max"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_name_that_is_not_text_is_rejected(form: str) -> None:
    manifest = TABLE.changed({"spec.objective.metric": "val\ud800", "spec.metrics": {"format": form}})
    assert all("\ud800" not in str(problem) for problem in problems(manifest))


@pytest.mark.parametrize(
    ("name", "variable"),
    [("lr", "LR"), ("learning-rate", "LEARNING_RATE"), ("opt.beta1", "OPT_BETA1"), ("_x", "_X")],
)
def test_a_parameter_has_an_environment_variable(name: str, variable: str) -> None:
    assert env_name(name) == f"PODIUM_PARAM_{variable}"


@pytest.mark.parametrize(
    ("parameters", "points"),
    [
        ([{"name": "a", "values": [1, 2, 3]}], 3),
        ([{"name": "a", "type": "boolean"}, {"name": "b", "values": ["x", "y"]}], 4),
        ([{"name": "a", "type": "int", "min": 1, "max": 5}], 5),
        ([{"name": "a", "type": "int", "min": 1, "max": 5, "step": 3}], 2),
        ([{"name": "a", "min": 0, "max": 1, "step": 0.1}], 11),
        ([{"name": "a", "min": 0, "max": 0.3, "step": 0.1}], 4),
        ([{"name": "a", "min": 0, "max": 1}], None),
        ([{"name": "a", "min": 0, "max": 1e300, "step": 1e-300}], MAX_COUNTED_POINTS),
        ([{"name": "a", "min": -1.7e308, "max": 1.7e308, "step": 1}], MAX_COUNTED_POINTS),
        ([{"name": f"a{n}", "min": 0, "max": 1e300, "step": 1} for n in range(20)], MAX_COUNTED_POINTS),
        ([{"name": "a", "min": 1.7e308, "max": -1.7e308, "step": 1}], 1),
    ],
)
def test_grid_points_are_counted(parameters: list[dict[str, Any]], points: int | None) -> None:
    assert grid_points(spec_of(parameters=parameters)) == points


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpus": {"perTrial": 0}}, "not ranked and never suspended"),
        (
            {"suspension": {"methods": ["cuda-checkpoint", "container-checkpoint"]}, "gpus": {"memory": "8Gi"}},
            "container-checkpoint is experimental",
        ),
        (
            {"suspension": {"methods": ["cuda-checkpoint"]}, "gpus": {"memory": "8Gi"}},
            "does not list cuda-checkpoint cannot suspend trials: add freeze",
        ),
        ({"checkpoint": {"path": "/ckpt", "volume": {"emptyDir": {}}}}, "a new attempt starts from step 0"),
        (
            {"search": {"algorithm": "grid"}, "parameters": [{"name": "a", "values": [1, 2]}]},
            "2 trials will be created",
        ),
        ({"search": {"algorithm": "grid"}, "parameters": [{"name": "a", "values": list(range(9))}]}, "not tried"),
    ],
)
def test_accepted_jobs_can_have_warnings(change: dict[str, Any], words: str) -> None:
    found = findings(TABLE.changed({f"spec.{path}": value for path, value in change.items()}))
    assert errors_of(found) == ()
    assert words in " ".join(map(str, found))


@pytest.mark.parametrize(
    "change",
    [
        {"trials.maxSteps": None, "policy": {"name": "fifo"}},
        {"trials.maxSteps": None, "gpus": {"perTrial": 0}},
        {"trials.parallel": "auto"},
        {"trials.maxSteps": 2.5},
        {"trials.maxSteps": 1e-9},
        {"parameters": [{"name": "n", "type": "int", "min": 1, "max": 64, "scale": "log"}]},
        {"parameters": [{"name": "n", "type": "int", "values": [64, 128]}]},
        {"parameters": [{"name": "n", "values": [64, "auto", True, 0.5]}]},
        {"template.spec.containers.0.args": ["$(HOME)", "--bs=$(podium.params.bs)"]},
        {"template.spec.restartPolicy": "Never"},
        {"template.spec.hostPID": False},
        {"template.spec.containers.0.readinessProbe": {"exec": {"command": ["true"]}}},
        {"template.metadata": {"labels": {"team": "a"}, "annotations": {"x/y": "z"}}},
        {"metrics": {"format": "text", "filter": "(?P<name>[a-z]+): (?P<value>[0-9.]+)"}},
        {"objective.additionalMetrics": []},
        {"objective.additionalMetrics": ["eval/acc", "val.f1", "0", "µ", "a", "b", "c", "d"]},
        {"budget": {"gpuSeconds": 100, "deadline": "2030-01-01T00:00:00Z"}},
        {
            "checkpoint": {"path": "/ckpt", "volume": {"emptyDir": {}}, "keep": 1, "retain": False},
            "template.spec.containers.0.args": ["--from=$(podium.checkpoint)"],
        },
        {
            "checkpoint": {
                "path": "/ckpt",
                "volume": {"claimName": "runs"},
                "keep": 3,
                "retain": True,
                "resumeArgs": ["--resume=$(podium.checkpoint)", "--lr=$(podium.params.lr)"],
            },
            "suspension": {"methods": ["app-checkpoint"]},
        },
        {
            "checkpoint": {"path": "/ckpt", "volume": {"hostPath": {"path": "/data"}}},
            "suspension": {"methods": ["freeze", "app-checkpoint"], "gracePeriodSeconds": 600},
        },
    ],
    ids=str,
)
def test_valid_jobs_are_accepted(change: dict[str, Any]) -> None:
    assert check(spec_of(**change)) == ()
