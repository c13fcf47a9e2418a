"""When a node that a pod did not get is left out, and when it is tried again."""

from __future__ import annotations

from podium_extender.verbs.binding_attempts import FORGET_SECONDS, MAX_ATTEMPTS, MAX_PODS, BindingAttempts

NAMES = ("a", "b", "c")


def fail(tried: BindingAttempts, uid: str, *nodes: str, at: float = 0.0) -> None:
    for node in nodes:
        for _ in range(MAX_ATTEMPTS):
            tried.record(uid, node, at)


def test_a_node_has_so_many_tries() -> None:
    tried = BindingAttempts()
    tried.record("p", "a", 0.0)
    assert tried.untried("p", NAMES, 0.0) == NAMES
    tried.record("p", "a", 0.0)
    assert tried.untried("p", NAMES, 0.0) == ("b", "c")
    assert tried.untried("q", NAMES, 0.0) == NAMES


def test_after_each_has_had_its_tries_all_begin_anew() -> None:
    tried = BindingAttempts()
    fail(tried, "p", *NAMES)
    assert tried.untried("p", NAMES, 0.0) == NAMES
    tried.record("p", "a", 0.0)
    assert tried.untried("p", NAMES, 0.0) == NAMES


def test_it_is_forgotten_after_a_while_and_when_the_clock_is_set_back() -> None:
    for later in (FORGET_SECONDS, -1.0):
        tried = BindingAttempts()
        fail(tried, "p", "a", at=0.0)
        assert tried.untried("p", NAMES, FORGET_SECONDS - 1) == ("b", "c")
        assert tried.untried("p", NAMES, later) == NAMES
        tried.record("p", "a", later)
        assert tried.untried("p", NAMES, later) == NAMES


def test_a_node_is_tried_again_after_a_while_however_often_the_pod_is_asked_about_meanwhile() -> None:
    """kube-scheduler asks every few seconds: a large cluster's nodes would have their tries for a day."""
    many = tuple(f"n{i:03d}" for i in range(1000))
    tried, where = BindingAttempts(), []
    for turn in range(100):
        now = 10.0 * turn
        where.append(tried.untried("p", many, now)[0])
        tried.record("p", where[-1], now)
    assert where[:4] == ["n000", "n000", "n001", "n001"]
    assert where[61:63] == ["n000", "n000"], "ten minutes after its second try"
    assert len(set(where)) <= FORGET_SECONDS / 10 / MAX_ATTEMPTS + 1


def test_no_more_than_so_many_pods_are_remembered() -> None:
    tried = BindingAttempts()
    fail(tried, "first", "a")
    for number in range(MAX_PODS):
        tried.record(str(number), "a", 0.0)
    assert tried.untried("first", NAMES, 0.0) == NAMES
