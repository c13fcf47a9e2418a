"""Records of the audit logs of a test run: what proves a use, and what was refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest
from grant_records import FOLDER, Record, Refusal, folder, is_refusal, load, load_all, record_of, requests_of, save
from rbac_grants import Grant, Permission, Request
from script_modules import load as load_module

from podium_devcluster.audit_log import Answer, AuditEvent, Review, Target

ROOT = Path(__file__).parents[3]
OWN = "system:serviceaccount:podium-system:"
AGENT, KUBELET = f"{OWN}podium-agent", "system:node:node-1"
POD = Target("", "pods/status", "default", "a")
BY_RBAC = Answer(403, "Forbidden", 'User "x" cannot patch resource "pods/status"', authorized=False)
BY_POLICY = Answer(403, "Forbidden", "ValidatingAdmissionPolicy 'p' denied request: NodeMismatch", authorized=True)
BY_QUOTA = Answer(403, "Forbidden", "exceeded quota", authorized=True)
ACCEPTED = Answer(200, "", "", authorized=True)


def event(answer: Answer = ACCEPTED, *, second: int = 0, **changed: object) -> AuditEvent:
    made = AuditEvent(
        id="1",
        stage="ResponseComplete",
        time=datetime(2026, 11, 26, 18, 0, second, tzinfo=UTC),
        user=AGENT,
        node="node-1",
        agent="",
        verb="patch",
        path="/api/v1/namespaces/default/pods/a/status",
        target=POD,
        answer=answer,
        review=None,
    )
    return replace(made, **changed)  # type: ignore[arg-type]


def test_an_authorized_request_is_a_use_whatever_its_answer() -> None:
    asked = Request(AGENT, "patch", "", "pods/status", "default", "a")
    missing = Answer(404, "NotFound", "", authorized=True)
    for answer in (ACCEPTED, missing, BY_POLICY):
        assert list(requests_of(event(answer))) == [asked]
    assert list(requests_of(event(BY_RBAC))) == []


def test_a_path_is_a_request_without_a_resource() -> None:
    asked = event(target=None, path="/version", verb="get", agent="podium/1 (linux)")
    assert list(requests_of(asked)) == [Request(AGENT, "get", url="/version", program="podium")]


def test_an_apply_that_creates_its_object_uses_create_too() -> None:
    verbs = [one.verb for one in requests_of(event(Answer(201, "", "", authorized=True)))]
    assert verbs == ["patch", "create"]


@pytest.mark.parametrize("allowed", [True, False])
def test_a_kubelets_question_stands_for_the_request(allowed: bool) -> None:
    review = Review(AGENT, "create", Target("", "nodes/checkpoint", "", "node-1"), allowed)
    reviews = Target("authorization.k8s.io", "subjectaccessreviews", "", "")
    found = list(requests_of(event(user=KUBELET, verb="create", target=reviews, review=review)))
    asked = Request(AGENT, "create", "", "nodes/checkpoint", "", "node-1")
    assert (asked in found) is allowed


@pytest.mark.parametrize(
    ("answer", "expected"), [(ACCEPTED, False), (BY_RBAC, True), (BY_POLICY, True), (BY_QUOTA, False)]
)
def test_rbac_and_policies_refuse(answer: Answer, expected: bool) -> None:
    assert is_refusal(event(answer)) is expected


def test_a_record_has_the_requests_of_podiums_accounts_only() -> None:
    events = [event(), event(), event(user="admin"), event(BY_RBAC, user="system:serviceaccount:default:default")]
    record = record_of(events, OWN, {})
    assert record.requests == {Request(AGENT, "patch", "", "pods/status", "default", "a")}
    assert record.refusals == frozenset()


@pytest.mark.parametrize(("second", "test"), [(5, ""), (10, "a"), (19, "a"), (21, "b")])
def test_a_refusal_belongs_to_the_newest_test_before_it(second: int, test: str) -> None:
    begun = datetime(2026, 11, 26, 18, 0, tzinfo=UTC).timestamp()
    (refusal,) = record_of([event(BY_RBAC, second=second)], OWN, {"b": begun + 20, "a": begun + 10}).refusals
    assert refusal.test == test
    assert "cannot patch" in refusal.message


def test_a_record_is_stored_and_loaded(tmp_path: Path) -> None:
    asked = Request(AGENT, "patch", "", "pods/status", "default", "a")
    role = {"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": []}
    refusals = frozenset({Refusal(asked, "cannot", "t")})
    record = Record("e2e-gw0", False, frozenset({"t"}), frozenset({asked}), refusals, (role,))
    save(record, tmp_path / "new")
    save(Record(tests=frozenset({"u"})), tmp_path / "new")
    assert load_all(tmp_path / "new") == [record, Record(tests=frozenset({"u"}))]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"requests": [{"what": 1}], "refusals": [], "tests": []}'])
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match="is not a record"):
        load(tmp_path / "a.json")


def test_too_many_records_are_refused(tmp_path: Path) -> None:
    for number in range(101):
        (tmp_path / f"{number}.json").touch()
    with pytest.raises(ValueError, match="has 101 records"):
        load_all(tmp_path)


def test_records_are_written_only_where_a_folder_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    assert folder() is None
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert folder() == tmp_path


@pytest.fixture(scope="module")
def check() -> ModuleType:
    return load_module(ROOT / "tests" / "grants" / "test_permissions_in_use.py")


def test_the_check_needs_every_test(check: ModuleType) -> None:
    records = [Record(tests=frozenset({"a"})), Record(tests=frozenset({"b"}))]
    assert check.not_run(["a", "b", "c"], records) == {"c"}
    assert check.not_run(["a", "b"], records) == set()


def test_refusals_count_outside_of_tests_that_provoke_them(check: ModuleType) -> None:
    asked = Request(AGENT, "get", "", "nodes")
    own, provoked = Refusal(asked, "m", "tests/e2e/test_a.py::t"), Refusal(asked, "m", "tests/e2e/test_uninstall.py::t")
    assert check.unprovoked([own, provoked]) == [own]


def test_requests_of_kube_scheduler_need_none_of_the_charts_own_permissions(check: ModuleType) -> None:
    account, permission = f"{OWN}podium-scheduler", Permission("list", "", "pods")
    own, theirs = (Grant(role, account, "", permission) for role in ("podium-scheduler", "system:kube-scheduler"))
    by_scheduler, by_extender = (Request(account, "list", "", "pods", program=one) for one in ("kube-scheduler", "x"))
    assert check.of_programs([own, theirs], [by_scheduler]) == {theirs}
    assert check.of_programs([own, theirs], [by_extender]) == {own}


def test_make_records_and_checks() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("test-clusters", "test-e2e"):
        recipe = makefile.split(f"\n{target}: ")[1].split("\n\n")[0]
        assert recipe.index("$(export_records)") < recipe.index("$(CLUSTERS)") < recipe.index("&& $(PYTEST) $(GRANTS)")
    assert f"export {FOLDER}=" in makefile
