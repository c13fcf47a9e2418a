"""Condition Accepted: what a user learns about a job that cannot be run, and about one that can."""

from __future__ import annotations

from typing import Any

import pytest
from operator_builders import accepted, job_manifest, moment

from podium_operator.jobs.acceptance import Claim, ClaimModes, claim_name, condition
from podium_searchers.registry import missing_packages

CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("policy setting", {"policy": {"name": "hermes", "settings": {"speed": 3}}}, ["spec.policy.settings", "speed"]),
    ("search setting", {"search": {"settings": {"pace": 1}}}, ["spec.search.settings.pace"]),
    ("filter", {"metrics": {"format": "text", "filter": "("}}, ["spec.metrics.filter"]),
    (
        "two problems at once",
        {"search": {"settings": {"pace": 1}}, "metrics": {"format": "text", "filter": "("}},
        ["spec.search.settings.pace", "spec.metrics.filter"],
    ),
    ("shape", {"trials": {"max": 0}}, ["trials.max"]),
]


@pytest.mark.parametrize(("spec", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_refused_job_names_the_wrong_fields(spec: dict[str, Any], words: list[str]) -> None:
    said = condition(job_manifest(**spec), moment())
    assert (said["type"], said["status"]) == ("Accepted", "False")
    assert said["reason"]
    for word in words:
        assert word in said["message"]


def test_a_valid_job_is_accepted() -> None:
    manifest = job_manifest()
    manifest["metadata"]["generation"] = 3
    said = condition(manifest, moment())
    assert (said["status"], said["reason"], said["observedGeneration"]) == ("True", "Valid", 3)


def test_the_message_of_an_accepted_job_holds_warnings() -> None:
    grid = {"search": {"algorithm": "grid"}, "parameters": [{"name": "a", "values": [1, 2]}]}
    assert "2 trials will be created" in condition(job_manifest(**grid), moment())["message"]


FREEZE, CUDA, SAVES = "freeze", "cuda-checkpoint", "app-checkpoint"
VOLUME = {"path": "/c", "volume": {"hostPath": {"path": "/runs"}}}
MEMORY = {"perTrial": 1, "memory": "1Gi"}


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({}, True),
        ({"suspension": {"methods": [FREEZE]}}, True),
        ({"suspension": {"methods": [FREEZE, CUDA]}, "gpus": MEMORY}, False),
        ({"suspension": {"methods": [FREEZE, SAVES]}, "checkpoint": VOLUME}, False),
        ({"suspension": {"methods": [FREEZE]}, "checkpoint": VOLUME}, True),
        ({"gpus": {"perTrial": 0}}, False),
    ],
)
def test_methods_that_keep_memory_on_a_reserved_gpu_are_refused(spec: dict[str, Any], refused: bool) -> None:
    manifest = job_manifest(**spec)
    said = condition(manifest, moment(), reserved_gpus=True)
    assert (said["reason"] == "GPUMemoryNotMovable") is refused, said["message"]
    assert not refused or "spec.suspension.methods" in said["message"]
    owned = condition(manifest, moment())
    assert owned["status"] == "True", owned["message"]


CKPT = {"checkpoint": {"path": "/c", "volume": {"claimName": "runs"}}}
RWO, RWX = "ReadWriteOnce", "ReadWriteMany"


@pytest.mark.parametrize(
    ("payload", "status", "reason"),
    [
        ({"spec": {"accessModes": [RWX]}, "status": {"accessModes": [RWX]}}, "True", "Valid"),
        ({"spec": {"accessModes": [RWO, RWX]}}, "True", "Valid"),
        ({"spec": {"accessModes": [RWO]}}, "False", "VolumeNotShared"),
        ({"spec": {"accessModes": ["ReadWriteOncePod"]}}, "False", "VolumeNotShared"),
        ({"spec": {"accessModes": ["ReadOnlyMany"]}}, "False", "VolumeNotShared"),
        ({"spec": {"accessModes": [RWX]}, "status": {"accessModes": [RWO]}}, "False", "VolumeNotShared"),
        (None, "Unknown", "VolumeNotFound"),
    ],
    ids=["shared", "not bound yet", "one node", "one pod", "read only", "bound to less", "not there"],
)
def test_checkpoints_need_a_volume_that_every_node_can_write(
    payload: dict[str, Any] | None, status: str, reason: str
) -> None:
    manifest = job_manifest(**CKPT)
    assert claim_name(manifest) == "runs"
    claim = Claim("runs", None if payload is None else ClaimModes.model_validate(payload).modes)
    said = condition(manifest, moment(), claim)
    assert (said["status"], said["reason"]) == (status, reason)
    if status != "True":
        assert said["message"].startswith("spec.checkpoint.volume.claimName: ")
        assert "runs" in said["message"]
    if reason == "VolumeNotShared":
        assert claim.modes is not None
        assert ", ".join(claim.modes) in said["message"]
        assert "use a claim with ReadWriteMany" in said["message"]


def test_a_wrong_job_with_a_missing_claim_is_refused_at_once() -> None:
    assert (
        condition(job_manifest(search={"settings": {"pace": 1}}, **CKPT), moment(), Claim("runs", None))["status"]
        == "False"
    )


@pytest.mark.parametrize("volume", [{"hostPath": {"path": "/srv"}}, {"emptyDir": {}}])
def test_volumes_without_a_claim_are_not_checked(volume: dict[str, Any]) -> None:
    assert claim_name(job_manifest(checkpoint={"path": "/c", "volume": volume})) is None
    assert claim_name(job_manifest()) is None
    assert claim_name(job_manifest(trials={"max": 0})) is None


@pytest.mark.parametrize(("before", "moved"), [("True", False), ("False", True)])
def test_the_transition_time_changes_only_with_the_status(before: str, moved: bool) -> None:
    manifest = job_manifest()
    manifest["status"] = {"conditions": [accepted(before)]}
    assert (condition(manifest, moment(9))["lastTransitionTime"] == moment(9)) is moved


def test_an_algorithm_whose_package_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real look-up of packages runs; only the name that it looks for is one that exists nowhere."""
    manifest = job_manifest(search={"algorithm": "cmaes"})
    assert condition(manifest, moment())["status"] == ("False" if missing_packages("cmaes") else "True")
    monkeypatch.setattr("podium_searchers.registry._PACKAGES", {"cmaes": ("podium_no_such_package",)})
    said = condition(manifest, moment())
    assert (said["status"], said["reason"]) == ("False", "SearcherNotInstalled")
    assert "podium_no_such_package" in said["message"]
    assert "kube-podium[searchers]" in said["message"]
