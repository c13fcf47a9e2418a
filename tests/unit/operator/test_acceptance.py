"""The condition Accepted: what a user learns about a job that cannot be run, or about one that can."""

from __future__ import annotations

from typing import Any

import pytest
from operator_builders import accepted, job_manifest, moment

from podium_operator.acceptance import condition

CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("policy setting", {"policy": {"name": "hermes", "settings": {"speed": 3}}}, ["spec.policy.settings", "speed"]),
    ("queue", {"queue": "research"}, ["spec.queue", "research"]),
    ("filter", {"metrics": {"format": "text", "filter": "("}}, ["spec.metrics.filter"]),
    (
        "two at once",
        {"queue": "q", "metrics": {"format": "text", "filter": "("}},
        ["spec.queue", "spec.metrics.filter"],
    ),
    ("shape", {"trials": {"max": 0}}, ["trials.max"]),
]


@pytest.mark.parametrize(("spec", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_wrong_job_names_the_fields(spec: dict[str, Any], words: list[str]) -> None:
    said = condition(job_manifest(**spec), moment())
    assert (said["type"], said["status"]) == ("Accepted", "False")
    assert said["reason"]
    for word in words:
        assert word in said["message"]


def test_a_good_job() -> None:
    manifest = job_manifest()
    manifest["metadata"]["generation"] = 3
    said = condition(manifest, moment())
    assert (said["status"], said["reason"], said["observedGeneration"]) == ("True", "Valid", 3)


def test_what_a_user_might_not_expect_is_said() -> None:
    grid = {"search": {"algorithm": "grid"}, "parameters": [{"name": "a", "values": [1, 2]}]}
    assert "2 trials will be made" in condition(job_manifest(**grid), moment())["message"]


@pytest.mark.parametrize(("before", "moved"), [("True", False), ("False", True)])
def test_the_moment_moves_with_the_status_only(before: str, moved: bool) -> None:
    manifest = job_manifest()
    manifest["status"] = {"conditions": [accepted(before)]}
    assert (condition(manifest, moment(9))["lastTransitionTime"] == moment(9)) is moved
