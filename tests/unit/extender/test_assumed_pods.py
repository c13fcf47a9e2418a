"""How long a pod is assumed on its best node: what ends an assumption, and what does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from podium_core.placement.affinity import ANY_POD
from podium_core.placement.node_parser import PlacedPod
from podium_core.placement.views import PodNeed
from podium_extender.state.assumptions import ASSUME_SECONDS, MAX_ASSUMED, AssumedPods


def place(assumed: AssumedPods, node: str, at: float = 0.0, *, uid: str = "p", name: str = "") -> list[str]:
    return assumed.assume(("default", name or uid), PlacedPod(uid, node, PodNeed(1), affinity_terms=(ANY_POD,)), at)


ENDS: list[tuple[str, Callable[[AssumedPods], list[str]], str]] = [
    ("bound where it was assumed", lambda assumed: assumed.observe("p", "a"), "confirmed"),
    ("bound elsewhere", lambda assumed: assumed.observe("p", "b"), "elsewhere"),
    ("asked about again", lambda assumed: assumed.forget("p"), "asked_again"),
    ("deleted", lambda assumed: assumed.remove("p"), "gone"),
    ("never seen again", lambda assumed: assumed.expire(ASSUME_SECONDS), "expired"),
    ("the clock was set back", lambda assumed: assumed.expire(-1.0), "expired"),
]


@pytest.mark.parametrize(("why", "end", "how"), ENDS, ids=[end[0] for end in ENDS])
def test_how_an_assumption_ends(why: str, end: Callable[[AssumedPods], list[str]], how: str) -> None:
    outcomes: list[str] = []
    assumed = AssumedPods(ASSUME_SECONDS, outcomes.append)
    assert place(assumed, "a") == ["a"]
    assert [pod.uid for pod in assumed.on("a").values()] == ["p"]
    assert assumed.terms.any_may_match("any", {})
    assert end(assumed) == ["a"]
    assert not assumed.terms.any_may_match("any", {})
    assert outcomes == [how]
    assert (len(assumed), dict(assumed.on("a"))) == (0, {})
    assert end(assumed) == []
    assert outcomes == [how]


def test_what_does_not_end_an_assumption() -> None:
    assumed = AssumedPods()
    place(assumed, "a")
    assert assumed.observe("p", "") == []  # an event from before it was bound comes late
    assert assumed.observe("q", "a") == []
    assert assumed.expire(ASSUME_SECONDS - 0.001) == []
    assert len(assumed) == 1


def test_a_pod_is_assumed_on_one_node() -> None:
    assumed = AssumedPods()
    place(assumed, "a")
    assert sorted(place(assumed, "b", 1.0)) == ["a", "b"]
    assert (list(assumed.on("a")), list(assumed.on("b"))) == ([], [("default", "p")])
    assert assumed.expire(ASSUME_SECONDS) == []  # the second time counts
    assert assumed.expire(1.0 + ASSUME_SECONDS) == ["b"]


def test_pods_of_the_same_name_do_not_end_each_others_assumption() -> None:
    assumed = AssumedPods()
    place(assumed, "a", uid="first", name="p")
    place(assumed, "a", uid="second", name="p")
    assert assumed.remove("first") == ["a"]
    assert [pod.uid for pod in assumed.on("a").values()] == ["second"]
    assert assumed.remove("second") == ["a"]
    assert (len(assumed), dict(assumed.on("a"))) == (0, {})


def test_the_number_of_assumed_pods_is_limited() -> None:
    assumed = AssumedPods()
    for number in range(MAX_ASSUMED + 3):
        place(assumed, "a", uid=str(number))
    assert len(assumed) == MAX_ASSUMED
    assert next(iter(assumed.on("a").values())).uid == "3"
