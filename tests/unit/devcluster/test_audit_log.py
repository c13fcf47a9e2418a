"""The audit log of the API server: its policy, its events, and files that rotate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podium_devcluster.audit_log import MAX_LINE_BYTES, AuditLog, AuditLogError, Review, Target, parse_event
from podium_devcluster.paths import Cache, ClusterPaths
from podium_devcluster.runtime import audit, controlplane

TENANT = "system:serviceaccount:victim:tenant"
# as kube-apiserver 1.36 writes it
REFUSED: dict[str, Any] = {
    "kind": "Event",
    "apiVersion": "audit.k8s.io/v1",
    "level": "Metadata",
    "auditID": "2d9f6d1c-9ed2-4f2e-9d33-8f2a3d1e5b60",
    "stage": "ResponseComplete",
    "requestURI": "/apis/podium.dev/v1alpha1/namespaces/victim/hyperparamtrials/sweep-0/status?fieldManager=test",
    "verb": "patch",
    "user": {"username": TENANT, "groups": ["system:authenticated"]},
    "sourceIPs": ["127.0.0.1"],
    "userAgent": "test",
    "objectRef": {
        "resource": "hyperparamtrials",
        "namespace": "victim",
        "name": "sweep-0",
        "apiGroup": "podium.dev",
        "apiVersion": "v1alpha1",
        "subresource": "status",
    },
    "responseStatus": {
        "metadata": {},
        "status": "Failure",
        "message": "hyperparamtrials.podium.dev \"sweep-0\" is forbidden: ValidatingAdmissionPolicy 'p' denied it",
        "reason": "Forbidden",
        "code": 403,
    },
    "requestReceivedTimestamp": "2026-11-26T18:13:34.123456Z",
    "stageTimestamp": "2026-11-26T18:13:34.125456Z",
    "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "RBAC: allowed by ..."},
}


def line(**changed: Any) -> bytes:
    return json.dumps({key: value for key, value in (REFUSED | changed).items() if value is not None}).encode() + b"\n"


def test_an_event_is_parsed() -> None:
    event = parse_event(line())
    assert event.user == TENANT
    assert event.verb == "patch"
    assert event.target == Target("podium.dev", "hyperparamtrials/status", "victim", "sweep-0")
    assert (event.answer.code, event.answer.reason, event.answer.authorized) == (403, "Forbidden", True)
    assert "ValidatingAdmissionPolicy" in event.answer.message
    assert event.path == "/apis/podium.dev/v1alpha1/namespaces/victim/hyperparamtrials/sweep-0/status"
    assert event.time.timestamp() == pytest.approx(1795716814.123456)
    assert event.review is None


def test_the_node_of_a_token_is_read() -> None:
    extra = {"authentication.kubernetes.io/node-name": ["node-a"], "other": ["x"]}
    assert parse_event(line(user={"username": TENANT, "extra": extra})).node == "node-a"
    assert parse_event(line()).node == ""


def test_an_impersonated_user_counts() -> None:
    assert parse_event(line(user={"username": "admin"}, impersonatedUser={"username": TENANT})).user == TENANT


def test_a_path_without_an_object_has_no_target() -> None:
    event = parse_event(line(objectRef=None, requestURI="/version?timeout=32s", verb="get", responseStatus=None))
    assert (event.target, event.path, event.answer.code) == (None, "/version", 0)


@pytest.mark.parametrize(("allowed", "expected"), [(True, True), (False, False), (None, False)])
def test_a_kubelets_question_is_a_review(allowed: bool | None, expected: bool) -> None:
    wanted = {"group": "", "resource": "nodes", "subresource": "checkpoint", "name": "node-1", "verb": "create"}
    event = parse_event(
        line(
            objectRef={"resource": "subjectaccessreviews", "apiGroup": "authorization.k8s.io"},
            requestObject={"spec": {"user": TENANT, "resourceAttributes": wanted}},
            responseObject={"status": {"allowed": allowed}},
        )
    )
    assert event.review == Review(TENANT, "create", Target("", "nodes/checkpoint", "", "node-1"), expected)


def test_a_question_about_a_path_is_no_review() -> None:
    spec = {"user": TENANT, "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
    reviews = {"resource": "subjectaccessreviews", "apiGroup": "authorization.k8s.io"}
    assert parse_event(line(objectRef=reviews, requestObject={"spec": spec})).review is None


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "kind must be Event"),
        (b'{"kind": "Pod"}', "kind must be Event"),
        (b"\xff", "no JSON"),
        (line(auditID=None), "auditID must be a string (got None)"),
        (line(stage="Later"), "stage must be one of RequestReceived"),
        (line(user="me"), "user must be an object (got 'me')"),
        (line(user={"username": 3}), "username must be a string (got 3)"),
        (line(objectRef=[1]), "objectRef must be an object (got [1])"),
        (line(responseStatus={"code": "403"}), "responseStatus.code must be a number (got '403')"),
        (line(requestReceivedTimestamp="soon"), "Invalid isoformat string: 'soon'"),
        (b" " * (MAX_LINE_BYTES + 1), f"has {MAX_LINE_BYTES + 1} bytes"),
    ],
)
def test_other_lines_are_refused(bad: bytes, message: str) -> None:
    with pytest.raises(AuditLogError) as error:
        parse_event(bad)
    assert message in str(error.value)
    assert len(str(error.value)) < 500


@pytest.fixture
def paths(tmp_path: Path) -> ClusterPaths:
    found = ClusterPaths.of("a", Cache(tmp_path))
    found.audit.mkdir(parents=True)
    return found


def identities(log: AuditLog) -> list[str]:
    return [event.id for event in log.new_events()]


def test_each_event_is_read_once_also_after_a_rotation(paths: ClusterPaths) -> None:
    log, file = AuditLog(paths), paths.audit / "audit.log"
    assert identities(log) == []
    file.write_bytes(line(auditID="1"))
    assert identities(log) == ["1"]
    with file.open("ab") as more:
        more.write(line(auditID="2"))
    file.rename(paths.audit / "audit-2026-11-26T18-13-34.123.log")
    file.write_bytes(line(auditID="3"))
    assert identities(log) == ["2", "3"]
    assert identities(log) == []


def test_a_line_that_is_being_written_is_read_later(paths: ClusterPaths) -> None:
    log, file = AuditLog(paths), paths.audit / "audit.log"
    whole = line(auditID="1")
    file.write_bytes(whole[:50])
    assert identities(log) == []
    file.write_bytes(whole)
    assert identities(log) == ["1"]


def test_skipped_events_are_not_read(paths: ClusterPaths) -> None:
    log, file = AuditLog(paths), paths.audit / "audit.log"
    file.write_bytes(b"not read\n")
    log.skip()
    assert identities(log) == []


def test_a_line_without_an_end_is_refused(paths: ClusterPaths) -> None:
    (paths.audit / "audit.log").write_bytes(b"x" * (MAX_LINE_BYTES + 10))
    with pytest.raises(AuditLogError, match="has a line of more than"):
        list(AuditLog(paths).new_events())


def test_a_log_with_all_its_backups_may_have_lost_some(paths: ClusterPaths) -> None:
    log = AuditLog(paths)
    (paths.audit / "audit.log").touch()
    for number in range(audit.BACKUPS):
        assert log.complete
        (paths.audit / f"audit-2026-11-26T18-13-3{number}.000.log").touch()
    assert not log.complete


def test_the_api_server_writes_at_most_100_megabytes(paths: ClusterPaths) -> None:
    argv = controlplane.apiserver(Path("/bin"), paths)
    flags = dict(word.removeprefix("--").split("=", 1) for word in argv[1:])
    assert flags["audit-log-path"] == str(paths.audit / "audit.log")
    assert flags["audit-policy-file"] == str(paths.audit_policy)
    assert int(flags["audit-log-maxsize"]) * (int(flags["audit-log-maxbackup"]) + 1) <= 100


def test_the_policy_records_accounts_and_neither_health_nor_components() -> None:
    policy = json.loads(audit.policy())
    health, reviews, users, groups, rest = policy["rules"]
    assert health == {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/metrics"]}
    assert reviews["level"] == "RequestResponse"
    assert "system:kube-scheduler" in users["users"]
    assert groups["userGroups"] == ["system:nodes", "system:serviceaccounts:kube-system"]
    assert rest == {"level": "Metadata"}


def test_a_request_with_an_invalid_token_has_no_user() -> None:
    assert parse_event(line(user={}, responseStatus={"code": 401})).user == ""
