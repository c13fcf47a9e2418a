"""The release workflow: it can be read, calls targets that exist, and gives each job only the rights that it needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
# what each job of the release may write; none may read or write anything else but the contents
MAY_WRITE = {
    "check": set(),
    "build": set(),
    "push": {"packages"},
    "attest": {"attestations", "id-token"},
    "publish": {"contents"},
}


def read(path: Path) -> dict[str, Any]:
    """Return a workflow; YAML 1.1 reads the key `on` as true."""
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    document["on"] = document.pop(True)
    return document


RELEASE = read(ROOT / ".github/workflows/release.yml")


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_targets_exist_jobs_end_and_actions_have_versions(path: Path) -> None:
    workflow = read(path)
    assert "permissions" in workflow, "without it, a job gets the repository's default rights"
    for name, job in workflow["jobs"].items():
        assert 0 < job["timeout-minutes"] <= 120, name
    for step in steps(workflow):
        assert set(re.findall(r"\bmake ([a-z0-9-]+)", step.get("run", ""))) <= TARGETS
        if "uses" in step:
            assert re.fullmatch(r"[a-z-]+/[a-z-]+@v\d+", step["uses"]), step["uses"]


def test_actions_have_one_version_in_all_workflows() -> None:
    used = {step["uses"] for path in WORKFLOWS for step in steps(read(path)) if "uses" in step}
    assert len({name.partition("@")[0] for name in used}) == len(used), sorted(used)


def test_each_job_of_the_release_has_the_least_rights() -> None:
    assert RELEASE["permissions"] == {}
    granted = {name: job["permissions"] for name, job in RELEASE["jobs"].items()}
    assert {
        name: {key for key, right in rights.items() if right == "write"} for name, rights in granted.items()
    } == MAY_WRITE
    for rights in granted.values():
        assert {key for key, right in rights.items() if right == "read"} <= {"contents"}


def test_only_a_version_tag_starts_the_release_and_nothing_is_built_before_the_checks() -> None:
    assert RELEASE["on"] == {"push": {"tags": ["v*"]}}
    jobs = RELEASE["jobs"]
    order = {
        name: {job["needs"]} if isinstance(job.get("needs"), str) else {*job.get("needs", ())}
        for name, job in jobs.items()
    }
    assert order["build"] == {"check"}
    assert all(order[name] for name in jobs if name != "check")
    commands = [step.get("run", "") for step in jobs["check"]["steps"]]
    assert 'make release-check TAG="$GITHUB_REF_NAME"' in commands
    assert "make test-unit" in commands


def test_secrets_reach_the_login_only_and_no_registry_is_named() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text()
    for step in steps(RELEASE):
        with_secrets = "secrets." in str(step)
        assert with_secrets == (step.get("name") == "log in")
        # an expression in a command would be executed as a part of it
        assert "${{" not in step.get("run", "")
    hosts = re.findall(r"(?:oci|docker|https?)://([^\s\"']+)", text)
    assert {host.partition("/")[0] for host in hosts} == {"$REGISTRY"}


def test_a_checkout_leaves_no_token_for_later_steps() -> None:
    for step in steps(RELEASE):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
