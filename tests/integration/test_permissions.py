"""docs/reference/permissions.md lists exactly the permissions that the chart grants."""

from __future__ import annotations

import json
import re
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from permission_table import CHART, NAMESPACE, PAGE, WIDEST, Key, bound_roles, explanations, key_of, rendered
from rbac_grants import ROLES, expand

pytestmark = pytest.mark.integration
Objects = list[dict[str, Any]]
SECONDS = 30.0  # that an API server takes at most to read a new binding
# what decides about a role: these values, and whether an account of Podium exists at all
CONDITIONS = {*WIDEST, "userRoles.aggregate"}


@pytest.fixture(scope="module")
def charts(binary: Callable[[str], Path]) -> Mapping[str, Objects]:
    """The objects of the chart with few and with all permissions."""
    return {name: rendered(binary("helm"), values) for name, values in (("default", {}), ("widest", WIDEST))}


def keys(objects: Objects) -> set[Key]:
    """Return the permissions of the chart's own roles."""
    own = {item["metadata"]["name"] for item in objects if item["kind"] in ROLES}
    bindings = [item for item in objects if not item["kind"].endswith("RoleBinding") or item["roleRef"]["name"] in own]
    return {key_of(grant) for grant in expand(bindings)}


def test_the_page_lists_exactly_what_the_chart_grants(charts: Mapping[str, Objects]) -> None:
    granted = {key for objects in charts.values() for key in keys(objects)}
    listed = explanations(PAGE.read_text()).keys()
    assert [f"{role}: {permission}" for role, _, permission in sorted(granted - listed)] == [], "not on the page"
    assert [f"{role}: {permission}" for role, _, permission in sorted(listed - granted)] == [], "not in the chart"


def test_the_page_lists_the_roles_of_kubernetes_that_the_chart_binds(charts: Mapping[str, Objects]) -> None:
    objects = charts["widest"]
    own = {item["metadata"]["name"] for item in objects if item["kind"] in ROLES}
    others = {
        item["roleRef"]["name"]: item["metadata"].get("namespace", "")
        for item in objects
        if item["kind"].endswith("RoleBinding") and item["roleRef"]["name"] not in own
    }
    assert others == bound_roles(PAGE.read_text())


def test_every_permission_exists_with_the_widest_values(charts: Mapping[str, Objects]) -> None:
    assert keys(charts["default"]) < keys(charts["widest"])
    conditions: set[str] = set()
    for path in CHART.rglob("templates/**/*.yaml"):
        text = path.read_text()
        if re.search(r"^kind: (Cluster)?Role$", text, re.MULTILINE):
            for condition in re.findall(r"\{\{-? (?:if|with|range) (.*?)\}\}", text):
                conditions |= set(re.findall(r"\.Values\.([A-Za-z.]+)", condition))
    assert conditions == CONDITIONS


def test_the_page_names_the_values_that_add_permissions() -> None:
    assert all(f"`{value}" in PAGE.read_text() for value in WIDEST)


def test_roles_are_granted_in_podiums_namespace_only(charts: Mapping[str, Objects]) -> None:
    assert {namespace for _, namespace, _ in keys(charts["widest"])} == {"", NAMESPACE}


@pytest.mark.parametrize(
    ("role", "changes"), [("podium-view", set()), ("podium-edit", {"create hyperparamjobs", "patch hyperparamtrials"})]
)
def test_a_tenant_with_only_this_role_reads_logs_and_no_other_object_of_kubernetes(
    role: str, changes: set[str], charts: Mapping[str, Objects], binary: Callable[[str], Path], kubeconfig: Path
) -> None:
    name = f"tenant-{uuid.uuid4().hex[:8]}"

    def kubectl(*words: str, given: str = "") -> str:
        command = [str(binary("kubectl")), f"--kubeconfig={kubeconfig}", *words]
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False).stdout

    def may(right: str) -> bool:
        return kubectl("auth", "can-i", *right.split(), f"--as={name}", f"--namespace={name}").strip() == "yes"

    rules = next(item["rules"] for item in charts["default"] if item["metadata"]["name"] == role)
    rbac = {"apiGroup": "rbac.authorization.k8s.io"}
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {"apiVersion": f"{rbac['apiGroup']}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{rbac['apiGroup']}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": name},
            "roleRef": rbac | {"kind": "ClusterRole", "name": name},
            "subjects": [rbac | {"kind": "User", "name": name}],
        },
    ]
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    try:
        kubectl("create", "-f", "-", given=given)
        deadline = time.monotonic() + SECONDS
        while not may("get hyperparamjobs"):
            assert time.monotonic() < deadline, f"the binding of {role} has no effect within {SECONDS:g} s"
        assert [may(right) for right in ("get pods", "get pods/log", "list hyperparamtrials")] == [True] * 3
        others = ("list pods", "create pods", "create pods/exec", "get secrets", "get configmaps", "list gpunodes")
        assert [right for right in others if may(right)] == []
        assert {right for right in ("create hyperparamjobs", "patch hyperparamtrials") if may(right)} == changes
    finally:
        kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", given=given)
