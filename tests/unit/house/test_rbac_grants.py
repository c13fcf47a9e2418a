"""The permissions of RBAC objects, and which requests need them."""

from __future__ import annotations

from typing import Any

import pytest
from rbac_grants import Grant, Permission, Request, expand, matches, used

WORKER = "system:serviceaccount:system:worker"


def role(kind: str, name: str, *rules: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "namespace": namespace}, "rules": list(rules)}


def binding(kind: str, target: str, namespace: str = "", to: str | None = None) -> dict[str, Any]:
    return {
        "kind": kind,
        "metadata": {"name": "any", "namespace": namespace},
        "roleRef": {"kind": to or kind.removesuffix("Binding"), "name": target},
        "subjects": [{"kind": "ServiceAccount", "name": "worker", "namespace": "system"}],
    }


def rule(verbs: str, groups: str, resources: str, *names: str) -> dict[str, Any]:
    split = {"verbs": verbs, "apiGroups": groups, "resources": resources}
    return {key: value.split(",") for key, value in split.items()} | ({"resourceNames": list(names)} if names else {})


def grant(permission: Permission, namespace: str = "") -> Grant:
    return Grant("r", WORKER, namespace, permission)


def test_a_rule_is_expanded_to_each_verb_group_resource_and_name() -> None:
    grants = expand(
        [role("ClusterRole", "r", rule("get,list", ",a", "x,y/status", "n")), binding("ClusterRoleBinding", "r")]
    )
    assert len(grants) == 2 * 2 * 2
    assert Grant("r", WORKER, "", Permission("list", "a", "y/status", "n")) in grants


def test_a_role_without_a_binding_is_of_no_account() -> None:
    (one,) = expand([role("ClusterRole", "r", rule("get", "", "x"))])
    assert one.account == ""


def test_a_role_binding_limits_a_cluster_role_to_its_namespace() -> None:
    objects = [role("ClusterRole", "r", rule("get", "", "x")), binding("RoleBinding", "r", "here", to="ClusterRole")]
    (one,) = expand(objects)
    assert one == Grant("r", WORKER, "here", Permission("get", "", "x"))


def test_roles_of_the_same_name_in_two_namespaces_are_two() -> None:
    objects = [role("Role", "r", rule("get", "", kind), namespace=kind) for kind in ("x", "y")]
    assert [one.permission.resource for one in expand([*objects, binding("RoleBinding", "r", "x")])] == ["y", "x"]


def test_a_binding_to_an_unknown_role_is_an_error() -> None:
    with pytest.raises(ValueError, match="ClusterRoleBinding any names ClusterRole system:other: unknown"):
        expand([binding("ClusterRoleBinding", "system:other")])


def test_the_rules_of_other_roles_can_be_given() -> None:
    (one,) = expand(
        [binding("ClusterRoleBinding", "system:other")], [role("ClusterRole", "system:other", rule("get", "", "x"))]
    )
    assert (one.role, one.account) == ("system:other", WORKER)


def test_other_subjects_and_objects() -> None:
    people = binding("ClusterRoleBinding", "r") | {
        "subjects": [{"kind": "Group", "name": "g"}, {"kind": "User", "name": "u"}]
    }
    objects = [{"kind": "ConfigMap"}, role("ClusterRole", "r", rule("get", "", "x")), people]
    assert [one.account for one in expand(objects)] == ["group:g", "u"]


def test_too_many_grants_are_refused() -> None:
    wide = rule("get", "", ",".join(f"x{number}" for number in range(10_001)))
    with pytest.raises(ValueError, match="10001 grants"):
        expand([role("ClusterRole", "r", wide)])


@pytest.mark.parametrize(
    ("permission", "asked", "expected"),
    [
        (Permission("get", "", "pods"), Request(WORKER, "get", "", "pods", "a", "n"), True),
        (Permission("get", "", "pods"), Request(WORKER, "list", "", "pods"), False),
        (Permission("get", "", "pods"), Request("other", "get", "", "pods"), False),
        (Permission("get", "a", "pods"), Request(WORKER, "get", "", "pods"), False),
        (Permission("get", "", "pods"), Request(WORKER, "get", "", "pods/status"), False),
        (Permission("get", "", "pods/status"), Request(WORKER, "get", "", "pods"), False),
        (Permission("*", "*", "*"), Request(WORKER, "deletecollection", "a", "x/y", "b"), True),
        (Permission("get", "", "*/status"), Request(WORKER, "get", "", "pods/status"), True),
        (Permission("get", "", "*/status"), Request(WORKER, "get", "", "pods/log"), False),
        (Permission("get", "", "*/status"), Request(WORKER, "get", "", "pods"), False),
        (Permission("get", "", "pods", "one"), Request(WORKER, "get", "", "pods", "a", "one"), True),
        (Permission("get", "", "pods", "one"), Request(WORKER, "get", "", "pods", "a", "two"), False),
        (Permission("create", "", "pods", "one"), Request(WORKER, "create", "", "pods", "a"), False),
        (Permission("list", "", "pods", "one"), Request(WORKER, "list", "", "pods", "a"), False),
        (Permission("get", url="/healthz"), Request(WORKER, "get", url="/healthz"), True),
        (Permission("get", url="/healthz"), Request(WORKER, "get", url="/healthz/etcd"), False),
        (Permission("get", url="/healthz/*"), Request(WORKER, "get", url="/healthz/etcd"), True),
        (Permission("get", url="*"), Request(WORKER, "get", url="/version"), True),
        (Permission("get", url="*"), Request(WORKER, "get", "", "pods"), False),
        (Permission("*", "*", "*"), Request(WORKER, "get", url="/version"), False),
    ],
)
def test_matching(permission: Permission, asked: Request, expected: bool) -> None:
    assert matches(grant(permission), asked) is expected


@pytest.mark.parametrize(("namespace", "expected"), [("here", True), ("there", False), ("", False)])
def test_a_grant_of_a_namespace_matches_only_there(namespace: str, expected: bool) -> None:
    asked = Request(WORKER, "list", "", "pods", namespace)
    assert matches(grant(Permission("list", "", "pods"), "here"), asked) is expected


def test_used_grants_are_those_of_at_least_one_request() -> None:
    listing, watching = (grant(Permission(verb, "", "pods")) for verb in ("list", "watch"))
    requests = [Request(WORKER, "list", "", "pods", "a"), Request("other", "watch", "", "pods")]
    assert used([listing, watching], requests) == {listing}


def test_a_role_in_a_namespace_grants_no_paths() -> None:
    paths = {"verbs": ["get"], "nonResourceURLs": ["/healthz"]}
    assert expand([role("Role", "r", paths, namespace="a")]) == []
    assert [one.permission.url for one in expand([role("ClusterRole", "r", paths)])] == ["/healthz"]


def test_texts_of_grants() -> None:
    named = Permission("get", "coordination.k8s.io", "leases", "one")
    assert str(grant(named, "a")) == "r: get leases.coordination.k8s.io named one in a"
    assert str(grant(Permission("get", url="/version"))) == "r: get /version"
