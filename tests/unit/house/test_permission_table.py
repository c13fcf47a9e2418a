"""The page of permissions as a table, and which permissions a run leaves unexplained."""

from __future__ import annotations

import pytest
from permission_table import PAGE, Explanation, bound_roles, explanations, unexplained
from rbac_grants import Grant, Permission

HEAD = "| Resource | Where | Verbs | Why | Not used by the tests on clusters |\n| --- | --- | --- | --- | --- |\n"
USED = "| `pods/status` | everywhere | `get` `list` | It reads. | |\n"
UNUSED = "| `leases.coordination.k8s.io` named `one` | own namespace | `patch` | It writes. | No test does. |\n"
GET, LIST = (Permission(verb, "", "pods/status") for verb in ("get", "list"))
PATCH = Permission("patch", "coordination.k8s.io", "leases", "one")


def page(*rows: str) -> str:
    return f"# Title\n\n## `worker`\n\nText.\n\n{HEAD}{''.join(rows)}\nText.\n"


def grant(permission: Permission, namespace: str = "") -> Grant:
    return Grant("worker", "account", namespace, permission)


def test_each_verb_of_a_row_is_a_permission() -> None:
    assert explanations(page(USED, UNUSED)) == {
        ("worker", "", GET): Explanation("It reads.", ""),
        ("worker", "", LIST): Explanation("It reads.", ""),
        ("worker", "podium-system", PATCH): Explanation("It writes.", "No test does."),
    }


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (USED + USED, "worker: get pods/status is listed twice"),
        (USED.replace("`pods/status`", "pods"), "worker: the row pods"),
        (USED.replace("everywhere", "here"), "has no resource, place, verbs or reason"),
        (USED.replace("`get` `list`", "get"), "has no resource, place, verbs or reason"),
        (USED.replace("It reads.", ""), "has no resource, place, verbs or reason"),
    ],
)
def test_malformed_rows_are_refused(row: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        explanations(page(row))
    assert message in str(error.value)


def test_a_permission_that_is_neither_used_nor_explained_is_found() -> None:
    known = explanations(page(USED, UNUSED))
    grants = [grant(GET), grant(LIST), grant(PATCH, "podium-system"), grant(Permission("watch", "", "pods"))]
    assert unexplained(grants, {grant(GET)}, known) == [grant(LIST), grant(Permission("watch", "", "pods"))]


def test_a_permission_of_another_namespace_is_not_explained() -> None:
    assert unexplained([grant(PATCH)], set(), explanations(page(UNUSED))) == [grant(PATCH)]


def test_the_page_can_be_read() -> None:
    text = PAGE.read_text()
    rows = explanations(text)
    assert len(rows) > 50
    assert any(row.unused for row in rows.values())
    assert any(not row.unused for row in rows.values())
    assert bound_roles(text)["extension-apiserver-authentication-reader"] == "kube-system"
