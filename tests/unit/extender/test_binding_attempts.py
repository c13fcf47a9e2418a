"""When a node with failed binding attempts is omitted, and when it is tried again."""

from __future__ import annotations

from podium_extender.verbs.node_selection import FORGET_SECONDS, MAX_ATTEMPTS, MAX_PODS, BindingAttempts

NAMES = ("a", "b", "c")


def fail(tried: BindingAttempts, uid: str, *nodes: str, at: float = 0.0) -> None:
    for node in nodes:
        for _ in range(MAX_ATTEMPTS):
            tried.record(uid, node, at)


def test_a_node_has_a_number_of_attempts() -> None:
    tried = BindingAttempts()
    tried.record("p", "a", 0.0)
    assert tried.untried("p", NAMES, 0.0) == NAMES
    tried.record("p", "a", 0.0)
    assert tried.untried("p", NAMES, 0.0) == ("b", "c")
    assert tried.untried("q", NAMES, 0.0) == NAMES


def test_after_attempts_on_all_nodes_all_are_allowed_again() -> None:
    tried = BindingAttempts()
    fail(tried, "p", *NAMES)
    assert tried.untried("p", NAMES, 0.0) == NAMES
    tried.record("p", "a", 0.0)
    assert tried.untried("p", NAMES, 0.0) == NAMES


def test_attempts_are_forgotten_after_a_while_and_when_the_clock_is_set_back() -> None:
    for later in (FORGET_SECONDS, -1.0):
        tried = BindingAttempts()
        fail(tried, "p", "a", at=0.0)
        assert tried.untried("p", NAMES, FORGET_SECONDS - 1) == ("b", "c")
        assert tried.untried("p", NAMES, later) == NAMES
        tried.record("p", "a", later)
        assert tried.untried("p", NAMES, later) == NAMES


def test_a_node_is_tried_again_after_a_while_although_the_pod_is_retried_often() -> None:
    """With a retry every few seconds, the attempts on the nodes of a large cluster would take a day."""
    many = tuple(f"n{i:03d}" for i in range(1000))
    tried, where = BindingAttempts(), []
    for turn in range(100):
        now = 10.0 * turn
        where.append(tried.untried("p", many, now)[0])
        tried.record("p", where[-1], now)
    assert where[:4] == ["n000", "n000", "n001", "n001"]
    assert where[61:63] == ["n000", "n000"], "ten minutes after its second try"
    assert len(set(where)) <= FORGET_SECONDS / 10 / MAX_ATTEMPTS + 1


def test_the_number_of_remembered_pods_is_limited() -> None:
    tried = BindingAttempts()
    fail(tried, "first", "a")
    for number in range(MAX_PODS):
        tried.record(str(number), "a", 0.0)
    assert tried.untried("first", NAMES, 0.0) == NAMES
